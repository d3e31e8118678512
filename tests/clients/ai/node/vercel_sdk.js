// Vercel's AI SDK: `vercel_sdk.js URL KEY`. A prompt chooses its reply; see `weir lab origin ai --help`.

import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, embed, generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { run, textOf, uniqueWord } from "./checks.js";

const [baseURL, apiKey] = process.argv.slice(2);
const provider = createOpenAI({ baseURL, apiKey });
const chat = provider.chat("weir-small");
const responses = provider.responses("weir-small");
const prompt = (directives) => `hi [weir ${directives}]`;

const schema = jsonSchema({
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer", minimum: 1, maximum: 9 } },
  required: ["city", "days"],
  additionalProperties: false,
});
const weather = tool({ description: "Finds something.", inputSchema: schema });

await run({
  "chat answers whole": async () => {
    const { text, usage } = await generateText({ model: chat, prompt: prompt("bytes=100 word=5eed0001 prompt=9") });
    assert.equal(text, textOf("5eed0001", 100));
    assert.equal(usage.inputTokens, 9);
  },
  "chat streams with its usage": async () => {
    const result = streamText({ model: chat, prompt: prompt("bytes=150 events=7 word=5eed0002 prompt=9") });
    let text = "";
    for await (const piece of result.textStream) text += piece;
    assert.equal(text, textOf("5eed0002", 150));
    assert.equal((await result.usage).inputTokens, 9);
    assert.equal(await result.finishReason, "stop");
  },
  "tools are called whole and in pieces": async () => {
    const whole = await generateText({ model: chat, prompt: prompt("calls=1 word=5eed0003"), tools: { weather }, stopWhen: stepCountIs(1) });
    assert.equal(whole.toolCalls[0].input.city, "city 5eed0003");
    const stream = streamText({ model: chat, prompt: prompt("calls=1 events=6 word=5eed0004"), tools: { weather } });
    assert.equal((await stream.toolCalls)[0].input.city, "city 5eed0004");
  },
  "structured outputs parse": async () => {
    const { object } = await generateObject({ model: chat, schema, prompt: prompt("word=5eed0005") });
    assert.equal(object.city, "city 5eed0005");
  },
  "responses answer and stream": async () => {
    const { text } = await generateText({ model: responses, prompt: prompt("bytes=60 word=5eed0006") });
    assert.equal(text, textOf("5eed0006", 60));
    const result = streamText({ model: responses, prompt: prompt("bytes=90 events=5 word=5eed0007") });
    assert.equal(await result.text, textOf("5eed0007", 90));
  },
  "embeddings come": async () => {
    const { embedding } = await embed({ model: provider.embedding("weir-embedding"), value: "one" });
    assert.ok(embedding.length > 1);
  },
  "a refusal of load is retried": async () => {
    const word = uniqueWord();
    const directives = `status=429 fails=1 retry_after_ms=50 bytes=16 word=${word}`;
    const { text } = await generateText({ model: chat, prompt: prompt(directives), maxRetries: 2 });
    assert.equal(text, textOf(word, 16));
  },
  "an error has its status": async () => {
    const failure = generateText({ model: chat, prompt: prompt("status=403 code=c403"), maxRetries: 0 });
    await assert.rejects(failure, (error) => APICallError.isInstance(error) && error.statusCode === 403);
  },
});
