// A server of MCP, by the official SDK: `mcp_server.js PORT`. It speaks streamable HTTP at `/mcp`, with sessions and resumption.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { McpServer, ResourceTemplate } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

/** Keeps every event of every stream of a session. */
class Events {
  events = [];

  async storeEvent(streamId, message) {
    this.events.push({ streamId, message });
    return String(this.events.length);
  }

  async replayEventsAfter(lastEventId, { send }) {
    const position = Number(lastEventId);
    const last = this.events[position - 1];
    if (!last) return "";
    for (const [index, { streamId, message }] of this.events.entries()) {
      if (index >= position && streamId === last.streamId) await send(String(index + 1), message);
    }
    return last.streamId;
  }
}

const text = (value) => ({ content: [{ type: "text", text: String(value) }] });
const pause = (millis) => new Promise((resolve) => setTimeout(resolve, millis));

/** A server for one session. */
function made() {
  const server = new McpServer({ name: "weir-test", version: "1" }, { instructions: "For tests." });
  const tool = (name, config, action) => server.registerTool(name, { description: `The tool ${name}.`, ...config }, action);
  const progress = (extra, step, total, message) => {
    const progressToken = extra._meta?.progressToken;
    const params = { progressToken, progress: step, total, message };
    return progressToken === undefined ? undefined : extra.sendNotification({ method: "notifications/progress", params });
  };
  tool("add", { inputSchema: { a: z.number(), b: z.number() } }, async ({ a, b }) => text(a + b));
  tool("place", {}, async () => text(process.pid));
  tool("secret", { inputSchema: { text: z.string() } }, async (words) => text(`secret ${words.text}`));
  tool("fails", {}, async () => {
    throw new Error("it always fails");
  });
  tool("slow", { inputSchema: { steps: z.number() } }, async ({ steps }, extra) => {
    for (let step = 1; step <= steps; step += 1) {
      await progress(extra, step, steps, `step ${step}`);
      await pause(10);
    }
    return text(`${steps} steps`);
  });
  tool("cut", {}, async (extra) => {
    await progress(extra, 1, 2, "before");
    extra.closeSSEStream();
    await pause(200);
    await progress(extra, 2, 2, "behind");
    return text("resumed");
  });
  tool("asks", {}, async (extra) => {
    const requestedSchema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
    const params = { mode: "form", message: "Which city?", requestedSchema };
    const response = await server.server.elicitInput(params, { relatedRequestId: extra.requestId });
    return text(`${response.action} ${response.content.city}`);
  });
  tool("samples", {}, async (extra) => {
    const messages = [{ role: "user", content: { type: "text", text: "say it" } }];
    const reply = await server.server.createMessage({ messages, maxTokens: 10 }, { relatedRequestId: extra.requestId });
    return text(`${reply.model}: ${reply.content.text}`);
  });
  const note = (uri, words) => ({ contents: [{ uri: uri.href, text: words, mimeType: "text/plain" }] });
  server.registerResource("one", "weir://notes/one", { mimeType: "text/plain" }, async (uri) => note(uri, "the first note"));
  server.registerResource("any", new ResourceTemplate("weir://notes/{name}", { list: undefined }), {}, async (uri, { name }) =>
    note(uri, `the note ${name}`),
  );
  server.registerPrompt("greet", { argsSchema: { name: z.string() } }, ({ name }) => ({
    messages: [{ role: "user", content: { type: "text", text: `Greet ${name}.` } }],
  }));
  return server;
}

const sessions = new Map();

createServer(async (request, response) => {
  const id = request.headers["mcp-session-id"];
  let transport = sessions.get(id);
  if (!transport && id) {
    const error = { jsonrpc: "2.0", id: null, error: { code: -32001, message: "Session not found" } };
    response.writeHead(404, { "content-type": "application/json" }).end(JSON.stringify(error));
    return;
  }
  if (!transport) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      eventStore: new Events(),
      retryInterval: 50,
      onsessioninitialized: (session) => sessions.set(session, transport),
      onsessionclosed: (session) => sessions.delete(session),
    });
    await made().connect(transport);
  }
  await transport.handleRequest(request, response);
}).listen(Number(process.argv[2]), "127.0.0.1");
