// OpenAI's SDK for Node: `openai_node_sdk.js URL KEY`. A prompt chooses its reply; see `weir lab origin ai --help`.

import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { run, textOf, uniqueWord } from "./checks.js";

const [baseURL, apiKey] = process.argv.slice(2);
const model = "weir-small";
const client = (options = {}) => new OpenAI({ baseURL, apiKey, timeout: 20_000, ...options });
const prompt = (directives) => [{ role: "user", content: `hi [weir ${directives}]` }];

const parameters = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer", minimum: 1, maximum: 9 } },
  required: ["city", "days"],
  additionalProperties: false,
};
const tools = ["weather", "tide"].map((name) => ({ type: "function", function: { name, strict: true, parameters } }));
const Forecast = z.object({ city: z.string(), wet: z.boolean() });

await run({
  "chat answers whole": async () => {
    const reply = await client().chat.completions.create({ model, messages: prompt("bytes=100 word=5eed0001 prompt=9") });
    assert.equal(reply.choices[0].message.content, textOf("5eed0001", 100));
    assert.equal(reply.usage.total_tokens, 34);
    assert.ok(reply._request_id);
  },
  "chat streams": async () => {
    const stream = await client().chat.completions.create({
      model, messages: prompt("bytes=150 events=7 word=5eed0002 prompt=9"), stream: true,
      stream_options: { include_usage: true },
    });
    let text = "";
    let usage;
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, textOf("5eed0002", 150));
    assert.equal(usage.prompt_tokens, 9);
  },
  "no chunk of usage comes that was not requested": async () => {
    const stream = await client().chat.completions.create({ model, messages: prompt("bytes=30 events=3"), stream: true });
    for await (const chunk of stream) {
      assert.equal(chunk.choices.length, 1);
    }
  },
  "tools are called": async () => {
    const reply = await client().chat.completions.create({ model, messages: prompt("calls=2 word=5eed0003"), tools });
    const calls = reply.choices[0].message.tool_calls;
    assert.deepEqual(calls.map((call) => call.function.name), ["weather", "tide"]);
    assert.equal(JSON.parse(calls[0].function.arguments).city, "city 5eed0003");
  },
  "calls stream in pieces": async () => {
    const stream = client().chat.completions.stream({ model, messages: prompt("calls=2 events=7 word=5eed0004"), tools });
    const completion = await stream.finalChatCompletion();
    const calls = completion.choices[0].message.tool_calls;
    assert.equal(calls.length, 2);
    assert.equal(JSON.parse(calls[0].function.arguments).city, "city 5eed0004");
  },
  "structured outputs parse": async () => {
    const response_format = zodResponseFormat(Forecast, "forecast");
    const reply = await client().chat.completions.parse({ model, messages: prompt("word=5eed0005"), response_format });
    assert.equal(reply.choices[0].message.parsed.city, "city 5eed0005");
  },
  "responses answer, stream and parse": async () => {
    const reply = await client().responses.create({ model, input: "[weir bytes=60 word=5eed0006]" });
    assert.equal(reply.output_text, textOf("5eed0006", 60));
    const stream = client().responses.stream({ model, input: "[weir bytes=90 events=5 word=5eed0007]" });
    assert.equal((await stream.finalResponse()).output_text, textOf("5eed0007", 90));
    const format = zodTextFormat(Forecast, "forecast");
    const parsed = await client().responses.parse({ model, input: "[weir word=5eed0008]", text: { format } });
    assert.equal(parsed.output_parsed.city, "city 5eed0008");
  },
  "embeddings are the same as floats and as base64": async () => {
    const words = { model: "weir-embedding", input: ["one", "two"], dimensions: 8 };
    const base64 = await client().embeddings.create(words);
    const floats = await client().embeddings.create({ ...words, encoding_format: "float" });
    assert.deepEqual(base64.data.map((one) => one.embedding), floats.data.map((one) => one.embedding));
    assert.equal(floats.data[1].embedding.length, 8);
  },
  "a refusal of load is retried": async () => {
    const word = uniqueWord();
    const messages = prompt(`status=429 fails=2 retry_after_ms=50 bytes=16 word=${word}`);
    const reply = await client({ maxRetries: 2 }).chat.completions.create({ model, messages });
    assert.equal(reply.choices[0].message.content, textOf(word, 16));
  },
  "every status has its error": async () => {
    const kinds = [
      [400, OpenAI.BadRequestError], [401, OpenAI.AuthenticationError], [403, OpenAI.PermissionDeniedError],
      [404, OpenAI.NotFoundError], [422, OpenAI.UnprocessableEntityError], [429, OpenAI.RateLimitError],
      [500, OpenAI.InternalServerError],
    ];
    for (const [status, kind] of kinds) {
      const messages = prompt(`status=${status} code=c${status} should_retry=false`);
      const error = await client().chat.completions.create({ model, messages }).then(() => undefined, (error) => error);
      assert.ok(error instanceof kind, `${status}: ${error}`);
      assert.equal(error.code, `c${status}`);
    }
  },
  "an error in a stream throws": async () => {
    const messages = prompt("events=5 fault=error at=2");
    const stream = await client().chat.completions.create({ model, messages, stream: true });
    await assert.rejects(async () => {
      for await (const _ of stream);
    }, OpenAI.APIError);
  },
  "a stream may be left early": async () => {
    const messages = prompt("bytes=4000 events=900 gap=5ms");
    const stream = await client().chat.completions.create({ model, messages, stream: true });
    let seen = 0;
    for await (const _ of stream) {
      seen += 1;
      if (seen === 3) break;
    }
    assert.equal(seen, 3);
  },
});
