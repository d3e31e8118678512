// The official SDK of MCP: `mcp_sdk.js DIRECT THROUGH KEY [LIMITED]`. Each check runs with the server's own URL, and with that of a
// gateway in front of it, and both give the same objects. KEY may use all tools, LIMITED only `add` and `slow`.

import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CreateMessageRequestSchema, ElicitRequestSchema, McpError } from "@modelcontextprotocol/sdk/types.js";
import { run } from "./checks.js";

const [direct, through, KEY, LIMITED] = process.argv.slice(2);

/** Runs an action with a client of its own. */
async function connected(url, action, { key = KEY, prepare = () => {}, capabilities = {} } = {}) {
  const requestInit = { headers: { authorization: `Bearer ${key}` } };
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit });
  const client = new Client({ name: "weir-tests", version: "1" }, { capabilities });
  prepare(client);
  await client.connect(transport);
  try {
    return await action(client, transport);
  } finally {
    await transport.terminateSession();
    await client.close();
  }
}

/** Both give the same, which is returned. */
async function same(action, words) {
  const [first, second] = [await connected(direct, action, words), await connected(through, action, words)];
  assert.deepEqual(second, first);
  return first;
}

await run({
  "the handshake is the same": async () => {
    const found = await same(async (client) => [client.getServerVersion(), client.getServerCapabilities(), client.getInstructions()]);
    assert.equal(found[2], "For tests.");
  },
  "tools are listed and called": async () => {
    const [listed, added, failed] = await same(async (client) => [
      await client.listTools(),
      await client.callTool({ name: "add", arguments: { a: 2, b: 3 } }),
      await client.callTool({ name: "fails" }),
    ]);
    assert.equal(listed.tools.length, 8);
    assert.equal(added.content[0].text, "5");
    assert.ok(failed.isError);
  },
  "a tool that does not exist is the same error": async () => {
    await same((client) => client.callTool({ name: "nothing" }).catch((error) => [error.code, error.message]));
  },
  "progress comes over the stream": async () => {
    const [seen] = await same(async (client) => {
      const seen = [];
      const onprogress = ({ progress, total, message }) => seen.push([progress, total, message]);
      const result = await client.callTool({ name: "slow", arguments: { steps: 5 } }, undefined, { onprogress });
      return [seen, result];
    });
    assert.deepEqual(seen.map(([progress]) => progress), [1, 2, 3, 4, 5]);
  },
  "resources and prompts are the same": async () => {
    const found = await same(async (client) => [
      await client.listResources(),
      await client.listResourceTemplates(),
      await client.readResource({ uri: "weir://notes/one" }),
      await client.readResource({ uri: "weir://notes/two" }),
      await client.listPrompts(),
      await client.getPrompt({ name: "greet", arguments: { name: "Ada" } }),
    ]);
    assert.equal(found[3].contents[0].text, "the note two");
  },
  "a server asks the user over the stream": async () => {
    const prepare = (client) =>
      client.setRequestHandler(ElicitRequestSchema, () => ({ action: "accept", content: { city: "Rome" } }));
    const words = { prepare, capabilities: { elicitation: {} } };
    const found = await same((client) => client.callTool({ name: "asks" }), words);
    assert.equal(found.content[0].text, "accept Rome");
  },
  "a server wants a text of the clients model": async () => {
    const reply = { role: "assistant", content: { type: "text", text: "said" }, model: "m", stopReason: "endTurn" };
    const prepare = (client) => client.setRequestHandler(CreateMessageRequestSchema, () => reply);
    const found = await same((client) => client.callTool({ name: "samples" }), { prepare, capabilities: { sampling: {} } });
    assert.equal(found.content[0].text, "m: said");
  },
  "a stream that the server closes is resumed": async () => {
    const [seen, result] = await same(async (client) => {
      const seen = [];
      const onprogress = ({ message }) => seen.push(message);
      return [seen, await client.callTool({ name: "cut" }, undefined, { onprogress, timeout: 10_000 })];
    });
    assert.deepEqual(seen, ["before", "behind"]);
    assert.equal(result.content[0].text, "resumed");
  },
  "a session ends with a delete": async () => {
    for (const url of [direct, through]) {
      const id = await connected(url, async (_, transport) => transport.sessionId);
      assert.ok(id);
      const headers = {
        authorization: `Bearer ${KEY}`,
        "mcp-session-id": id,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
      };
      const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping" });
      assert.equal((await fetch(url, { method: "POST", headers, body })).status, 404);
    }
  },
  "a limited key sees and calls only its tools": async () => {
    const all = await connected(direct, (client) => client.listTools());
    await connected(
      through,
      async (client) => {
        const { tools } = await client.listTools();
        assert.deepEqual(tools, all.tools.filter(({ name }) => ["add", "slow"].includes(name)));
        assert.equal((await client.callTool({ name: "add", arguments: { a: 1, b: 1 } })).content[0].text, "2");
        for (const name of ["secret", "nothing"]) {
          const refused = (error) => error instanceof McpError && error.code === -32602 && /Unknown tool/.test(error.message);
          await assert.rejects(client.callTool({ name, arguments: { text: "x" } }), refused);
        }
      },
      { key: LIMITED },
    );
  },
  "a wrong key is refused": async () => {
    await assert.rejects(connected(through, () => {}, { key: `sk-weir-${"b".repeat(43)}` }), /not valid/);
  },
});
