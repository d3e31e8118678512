"""OpenAI's SDK: `openai_sdk.py URL KEY [CHECK...]`. The URL is that of the lab's origin, or of what stands in front of it. The
checks named behind the key do not run.

A prompt chooses its reply by words such as `[weir bytes=40 word=5eed0001]`; see `weir lab origin ai --help`.
"""

import asyncio
import struct
import sys
import time
from typing import Literal

import httpx2 as httpx
import openai
from checks import refused, run
from pydantic import BaseModel

URL, KEY = sys.argv[1], sys.argv[2]
MODEL = "weir-small"


def client(**words):
    return openai.OpenAI(base_url=URL, api_key=KEY, timeout=20, **words)


def prompt(directives, text="hi"):
    return [{"role": "user", "content": f"{text} [weir {directives}]"}]


def text_of(word, size):
    """The text of the origin: groups of sixteen bytes."""
    groups = "".join(f"{word}{number:07x} " for number in range(size // 16 + 1))
    return groups[:size]


def chat_answers_whole():
    reply = client().chat.completions.create(
        model=MODEL, messages=prompt("bytes=100 word=5eed0001 prompt=9 cached=4 reasoning=3"), user="u1"
    )
    assert reply.object == "chat.completion" and reply.model == MODEL and reply.id.startswith("chatcmpl-")
    choice = reply.choices[0]
    assert (choice.message.content, choice.finish_reason) == (text_of("5eed0001", 100), "stop")
    usage = reply.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (9, 28, 37), usage
    assert usage.prompt_tokens_details.cached_tokens == 4
    assert usage.completion_tokens_details.reasoning_tokens == 3
    assert reply._request_id


def a_large_reply_arrives_whole():
    reply = client().chat.completions.create(model=MODEL, messages=prompt("bytes=65536 word=5eed0002"))
    assert reply.choices[0].message.content == text_of("5eed0002", 65536)


def several_choices_and_a_limit_of_tokens():
    reply = client().chat.completions.create(model=MODEL, messages=prompt("bytes=80"), n=2, max_completion_tokens=5)
    assert [choice.index for choice in reply.choices] == [0, 1]
    assert {choice.finish_reason for choice in reply.choices} == {"length"}
    assert reply.usage.completion_tokens == 10


def chat_streams_with_and_without_usage():
    for options in [None, {"include_usage": True}]:
        words = {} if options is None else {"stream_options": options}
        stream = client().chat.completions.create(
            model=MODEL, messages=prompt("bytes=200 events=9 word=5eed0003 prompt=7"), stream=True, **words
        )
        chunks = list(stream)
        assert chunks[0].choices[0].delta.role == "assistant"
        said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert said == text_of("5eed0003", 200)
        reported = [chunk.usage for chunk in chunks if chunk.usage]
        assert len(reported) == (options is not None), reported
        assert not reported or (reported[0].prompt_tokens, reported[0].completion_tokens) == (7, 50)
        assert len({chunk.id for chunk in chunks}) == 1


def a_stream_of_any_line_ends_and_cuts_is_the_same():
    for form in ["lines=crlf", "lines=cr", "lines=mixed", "split=utf8", "split=bytes", "comments=1"]:
        directives = f"bytes=150 events=3 word=5eed0004 text=mixed {form}"
        stream = client().chat.completions.create(model=MODEL, messages=prompt(directives), stream=True)
        said = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert "\U0001f600" in said and said.startswith("5eed00040000000 "), (form, said)
        assert len(said.encode()) == 150, form


def a_stream_may_be_left_early():
    stream = client().chat.completions.create(model=MODEL, messages=prompt("bytes=4000 events=900 gap=5ms"), stream=True)
    seen = 0
    for chunk in stream:
        seen += bool(chunk.choices and chunk.choices[0].delta.content)
        if seen == 3:
            break
    stream.close()


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Finds something.",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "unit": {"type": "string", "enum": ["celsius"]},
                    "days": {"type": "integer", "minimum": 1, "maximum": 9},
                },
                "required": ["city", "unit", "days"],
                "additionalProperties": False,
            },
        },
    }
    for name in ["weather", "tide"]
]


def tools_are_called_and_their_results_taken():
    import json

    api = client()
    messages = prompt("calls=2 word=5eed0005")
    reply = api.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS)
    message = reply.choices[0].message
    assert reply.choices[0].finish_reason == "tool_calls" and message.content is None
    assert [call.function.name for call in message.tool_calls] == ["weather", "tide"]
    assert json.loads(message.tool_calls[0].function.arguments) == {
        "city": "city 5eed0005", "unit": "celsius", "days": 7,
    }
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "12"})
    messages.extend(prompt("bytes=16", "and now"))
    final = api.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS)
    assert final.choices[0].finish_reason == "stop" and len(final.choices[0].message.content) == 16
    forced = api.chat.completions.create(
        model=MODEL, messages=prompt("bytes=4"), tools=TOOLS,
        tool_choice={"type": "function", "function": {"name": "tide"}},
    )
    assert forced.choices[0].message.tool_calls[0].function.name == "tide"


def calls_stream_in_pieces():
    import json

    api = client()
    with api.chat.completions.stream(
        model=MODEL, messages=prompt("calls=2 events=7 word=5eed0006"), tools=TOOLS
    ) as stream:
        kinds = [event.type for event in stream]
        completion = stream.get_final_completion()
    calls = completion.choices[0].message.tool_calls
    assert [call.function.name for call in calls] == ["weather", "tide"], kinds
    assert all(json.loads(call.function.arguments)["days"] == 7 for call in calls)
    assert kinds.count("tool_calls.function.arguments.done") == 2, kinds


class Day(BaseModel):
    name: str
    wet: bool


class Forecast(BaseModel):
    city: str
    unit: Literal["celsius", "fahrenheit"]
    days: list[Day]
    note: str | None


def structured_outputs_parse():
    completion = client().chat.completions.parse(
        model=MODEL, messages=prompt("word=5eed0007"), response_format=Forecast
    )
    found = completion.choices[0].message.parsed
    assert isinstance(found, Forecast) and found.city == "city 5eed0007" and len(found.days) == 2, found
    with client().chat.completions.stream(
        model=MODEL, messages=prompt("word=5eed0007 events=11"), response_format=Forecast
    ) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.parsed == found


def a_cut_or_filtered_structure_and_a_refusal_are_told_apart():
    words = dict(model=MODEL, response_format=Forecast)
    api = client()
    refused(
        openai.LengthFinishReasonError,
        lambda: api.chat.completions.parse(messages=prompt(""), max_tokens=3, **words),
    )
    refused(
        openai.ContentFilterFinishReasonError,
        lambda: api.chat.completions.parse(messages=prompt("finish=content_filter"), **words),
    )
    message = api.chat.completions.parse(messages=prompt("refusal=1 bytes=16"), **words).choices[0].message
    assert message.parsed is None and len(message.refusal) == 16


def responses_answer_whole():
    reply = client().responses.create(
        model=MODEL, input="[weir bytes=60 word=5eed0008 prompt=9 cached=2]", instructions="short"
    )
    assert reply.status == "completed" and reply.output_text == text_of("5eed0008", 60)
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.total_tokens) == (9, 15, 24)
    assert reply.usage.input_tokens_details.cached_tokens == 2
    cut = client().responses.create(model=MODEL, input="[weir bytes=60]", max_output_tokens=3)
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def responses_stream_in_the_order_that_accumulators_need():
    with client().responses.stream(model=MODEL, input="[weir bytes=90 events=5 word=5eed0009]") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == text_of("5eed0009", 90)
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert len(deltas) == 5 and "".join(event.delta for event in deltas) == final.output_text
    assert [event.sequence_number for event in events] == sorted(event.sequence_number for event in events)
    assert events[-1].type == "response.completed" and final.usage.output_tokens == 23


def responses_call_tools_and_parse():
    import json

    tools = [{"type": "function", **TOOLS[0]["function"]}]
    reply = client().responses.create(model=MODEL, input="[weir calls=1 word=5eed000a]", tools=tools)
    call = reply.output[0]
    assert call.type == "function_call" and json.loads(call.arguments)["city"] == "city 5eed000a"
    with client().responses.stream(model=MODEL, input="[weir calls=1 events=4]", tools=tools) as stream:
        kinds = [event.type for event in stream]
    assert kinds.count("response.function_call_arguments.delta") == 4, kinds
    parsed = client().responses.parse(model=MODEL, input="[weir word=5eed000b]", text_format=Forecast)
    assert parsed.output_parsed.city == "city 5eed000b"


def completions_answer_and_stream():
    reply = client().completions.create(model=MODEL, prompt="[weir bytes=40 word=5eed000c prompt=3]")
    assert reply.choices[0].text == text_of("5eed000c", 40) and reply.usage.total_tokens == 13
    stream = client().completions.create(model=MODEL, prompt="[weir bytes=40 word=5eed000c events=4]", stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream if chunk.choices) == text_of("5eed000c", 40)


def embeddings_are_the_same_as_floats_and_as_base64():
    texts = ["one", "two"]
    base64 = client().embeddings.create(model="weir-embedding", input=texts, dimensions=8)
    floats = client().embeddings.create(model="weir-embedding", input=texts, dimensions=8, encoding_format="float")
    assert [one.embedding for one in base64.data] == [one.embedding for one in floats.data]
    assert len(floats.data[1].embedding) == 8 and base64.data[0].embedding != base64.data[1].embedding
    as_float32 = struct.unpack("<8f", struct.pack("<8f", *floats.data[0].embedding))
    assert list(as_float32) == floats.data[0].embedding
    tokens = client().embeddings.create(model="weir-embedding", input=[1, 2, 3], dimensions=4)
    assert len(tokens.data) == 1 and tokens.usage.prompt_tokens == tokens.usage.total_tokens


def models_are_listed():
    listed = [model.id for model in client().models.list()]
    assert "weir-small" in listed and client().models.retrieve("weir-large").owned_by
    error = refused(openai.NotFoundError, lambda: client().models.retrieve("no-such-model"))
    assert error.code == "model_not_found"


def every_status_has_its_error():
    api = client(max_retries=0)
    for status, kind in [
        (400, openai.BadRequestError), (401, openai.AuthenticationError), (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError), (409, openai.ConflictError), (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError), (500, openai.InternalServerError), (503, openai.InternalServerError),
    ]:
        error = refused(
            kind,
            lambda: api.chat.completions.create(
                model=MODEL, messages=prompt(f"status={status} type=t{status} code=c{status} should_retry=false")
            ),
        )
        assert (error.status_code, error.type, error.code) == (status, f"t{status}", f"c{status}"), error
        assert error.request_id


def a_refusal_of_load_is_retried_as_its_headers_say():
    api = client(max_retries=2)
    begun = time.monotonic()
    unique = f"{time.time_ns() & 0xFFFFFFFF:08x}"
    reply = api.chat.completions.create(
        model=MODEL, messages=prompt(f"status=429 fails=2 retry_after_ms=50 bytes=16 word={unique}")
    )
    assert reply.choices[0].message.content == text_of(unique, 16)
    assert 0.1 <= time.monotonic() - begun < 5
    headers = {}

    def note(response):
        headers.update(response.headers)

    api = openai.OpenAI(
        base_url=URL, api_key=KEY, max_retries=0, http_client=httpx.Client(event_hooks={"response": [note]})
    )
    refused(
        openai.RateLimitError,
        lambda: api.chat.completions.create(model=MODEL, messages=prompt("status=429 retry_after=3")),
    )
    assert headers["retry-after"] == "3" and headers["x-ratelimit-remaining-requests"] == "0", headers


def a_broken_connection_is_retried():
    unique = f"{time.time_ns() & 0xFFFFFFFF:08x}"
    reply = client(max_retries=1).chat.completions.create(
        model=MODEL, messages=prompt(f"fault=cut fails=1 bytes=16 word={unique}")
    )
    assert reply.choices[0].message.content == text_of(unique, 16)


def an_error_in_a_stream_raises():
    stream = client().chat.completions.create(model=MODEL, messages=prompt("events=5 fault=error at=2"), stream=True)
    seen = []

    def read():
        seen.extend(chunk.choices[0].delta.content for chunk in stream)

    refused(openai.APIError, read, "The server had an error")
    assert len([text for text in seen if text]) == 2, seen


def a_stream_without_done_ends_as_it_is_and_a_cut_one_raises():
    stream = client().chat.completions.create(model=MODEL, messages=prompt("events=3 fault=no_done"), stream=True)
    assert [chunk for chunk in stream][-1].choices[0].finish_reason == "stop"
    stream = client(max_retries=0).chat.completions.create(
        model=MODEL, messages=prompt("events=3 fault=closed at=1"), stream=True
    )
    # A gateway ends it with an error event.
    refused((httpx.RemoteProtocolError, openai.APIError), lambda: list(stream))


async def many_streams_at_a_time():
    api = openai.AsyncOpenAI(base_url=URL, api_key=KEY, timeout=25)

    async def one(number):
        word = f"{number:08x}"
        stream = await api.chat.completions.create(
            model=MODEL, messages=prompt(f"bytes=160 events=10 gap=10ms word={word}"), stream=True
        )
        said = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert said == text_of(word, 160), number

    await asyncio.gather(*(one(number) for number in range(100)))
    await api.close()


CHECKS = [
    chat_answers_whole, a_large_reply_arrives_whole, several_choices_and_a_limit_of_tokens,
    chat_streams_with_and_without_usage, a_stream_of_any_line_ends_and_cuts_is_the_same, a_stream_may_be_left_early,
    tools_are_called_and_their_results_taken, calls_stream_in_pieces, structured_outputs_parse,
    a_cut_or_filtered_structure_and_a_refusal_are_told_apart, responses_answer_whole,
    responses_stream_in_the_order_that_accumulators_need, responses_call_tools_and_parse,
    completions_answer_and_stream, embeddings_are_the_same_as_floats_and_as_base64, models_are_listed,
    every_status_has_its_error, a_refusal_of_load_is_retried_as_its_headers_say, a_broken_connection_is_retried,
    an_error_in_a_stream_raises, a_stream_without_done_ends_as_it_is_and_a_cut_one_raises, many_streams_at_a_time,
]
run([check for check in CHECKS if check.__name__ not in sys.argv[3:]])
