// The official SDK of MCP with two servers under one name: `mcp_federated.js PYTHON NODE THROUGH KEY LIMITED`. PYTHON and NODE are the
// URLs of the servers, which the gateway at THROUGH names `python` and `node`. KEY may use all tools, LIMITED only `add` of the first and
// `slow` of both.

import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { run } from "./checks.js";

const [python, node, through, KEY, LIMITED] = process.argv.slice(2);

/** Runs an action with a client of its own. */
async function connected(action, url = through, key = KEY) {
  const requestInit = { headers: { authorization: `Bearer ${key}` } };
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit });
  const client = new Client({ name: "weir-tests", version: "1" }, { capabilities: {} });
  await client.connect(transport);
  try {
    return await action(client);
  } finally {
    await transport.terminateSession();
    await client.close();
  }
}

await run({
  "tools are those of each server with its name": async () => {
    const wanted = [];
    for (const [name, url] of [["python", python], ["node", node]]) {
      const { tools } = await connected((client) => client.listTools(), url);
      wanted.push(...tools.map((tool) => ({ ...tool, name: `${name}__${tool.name}` })));
    }
    const { tools } = await connected((client) => client.listTools());
    assert.deepEqual(tools, wanted);
  },
  "calls go to their server": async () => {
    await connected(async (client) => {
      assert.equal(client.getServerVersion().name, "joint");
      const places = new Set();
      for (const name of ["python", "node"]) {
        const added = await client.callTool({ name: `${name}__add`, arguments: { a: 2, b: 3 } });
        assert.equal(added.content[0].text, "5");
        places.add((await client.callTool({ name: `${name}__place` })).content[0].text);
      }
      assert.equal(places.size, 2);
      const { prompts } = await client.listPrompts();
      assert.deepEqual(prompts.map(({ name }) => name), ["python__greet", "node__greet"]);
      const greeting = await client.getPrompt({ name: "node__greet", arguments: { name: "Ada" } });
      assert.equal(greeting.messages[0].content.text, "Greet Ada.");
    });
  },
  "progress comes over the stream": async () => {
    await connected(async (client) => {
      for (const name of ["python", "node"]) {
        const seen = [];
        const onprogress = ({ progress }) => seen.push(progress);
        await client.callTool({ name: `${name}__slow`, arguments: { steps: 3 } }, undefined, { onprogress });
        assert.deepEqual(seen, [1, 2, 3]);
      }
    });
  },
  "a key sees and calls only its tools": async () => {
    const check = async (client) => {
      const { tools } = await client.listTools();
      assert.deepEqual(tools.map(({ name }) => name), ["python__add", "python__slow", "node__slow"]);
      for (const name of ["python__secret", "node__add"]) {
        await assert.rejects(client.callTool({ name, arguments: { text: "x" } }), { code: -32602 });
      }
    };
    await connected(check, through, LIMITED);
  },
});
