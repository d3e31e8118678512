"""Anthropic's SDK: `anthropic_sdk.py URL KEY [CHECK...]`, where the URL has no `/v1`: the SDK adds it. The checks named behind the key
do not run.
"""

import sys
import time

import anthropic
import httpx2 as httpx
from checks import refused, run

URL, KEY = sys.argv[1].removesuffix("/v1"), sys.argv[2]
MODEL = "claude-weir"


def client(**words):
    return anthropic.Anthropic(base_url=URL, api_key=KEY, timeout=20, **words)


def prompt(directives, text="hi"):
    return [{"role": "user", "content": f"{text} [weir {directives}]"}]


def text_of(word, size):
    """The text of the origin: groups of sixteen bytes."""
    groups = "".join(f"{word}{number:07x} " for number in range(size // 16 + 1))
    return groups[:size]


def ask(directives, **words):
    return client().messages.create(model=MODEL, max_tokens=4096, messages=prompt(directives), **words)


def a_message_is_answered_whole():
    reply = ask("bytes=100 word=5eed0001 prompt=90 cached=60 written=10", system="short")
    assert (reply.type, reply.role, reply.stop_reason) == ("message", "assistant", "end_turn")
    assert reply.content[0].text == text_of("5eed0001", 100)
    usage = reply.usage
    found = (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens, usage.output_tokens)
    assert found == (20, 60, 10, 25), usage
    assert reply._request_id


def a_limit_of_tokens_cuts():
    reply = client().messages.create(model=MODEL, max_tokens=3, messages=prompt("bytes=100"))
    assert (reply.stop_reason, reply.usage.output_tokens, len(reply.content[0].text)) == ("max_tokens", 3, 12)


def a_message_streams():
    with client().messages.stream(
        model=MODEL, max_tokens=4096, messages=prompt("bytes=200 events=9 word=5eed0002 prompt=7")
    ) as stream:
        said = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(said) == 9 and "".join(said) == text_of("5eed0002", 200) == final.content[0].text
    assert (final.usage.input_tokens, final.usage.output_tokens, final.stop_reason) == (7, 50, "end_turn")


def events_come_by_name():
    stream = client().messages.create(model=MODEL, max_tokens=4096, messages=prompt("events=2"), stream=True)
    names = [event.type for event in stream]
    assert names[0] == "message_start" and names[-1] == "message_stop" and names.count("content_block_delta") == 2


TOOL = {
    "name": "weather",
    "description": "Finds the weather.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
    },
}


def tools_are_called_whole_and_in_pieces():
    wanted = {"city": "city 5eed0003", "days": 7}
    reply = ask("calls=1 word=5eed0003", tools=[TOOL])
    assert reply.stop_reason == "tool_use" and reply.content[0].input == wanted
    with client().messages.stream(
        model=MODEL, max_tokens=4096, messages=prompt("calls=2 events=5 word=5eed0003"), tools=[TOOL]
    ) as stream:
        final = stream.get_final_message()
    assert final.content[0].input == wanted and len(final.content) == 2
    forced = ask("bytes=4", tools=[TOOL], tool_choice={"type": "any"})
    assert forced.content[0].name == "weather"


def tokens_are_counted():
    count = client().messages.count_tokens(model=MODEL, messages=prompt("prompt=42"))
    assert count.input_tokens == 42


def every_status_has_its_error():
    api = client(max_retries=0)
    for status, kind, word in [
        (400, anthropic.BadRequestError, "invalid_request_error"),
        (401, anthropic.AuthenticationError, "authentication_error"),
        (403, anthropic.PermissionDeniedError, "permission_error"),
        (404, anthropic.NotFoundError, "not_found_error"),
        (429, anthropic.RateLimitError, "rate_limit_error"),
        (500, anthropic.InternalServerError, "api_error"),
        (529, anthropic.InternalServerError, "overloaded_error"),
    ]:
        error = refused(
            kind, lambda: api.messages.create(model=MODEL, max_tokens=9, messages=prompt(f"status={status}"))
        )
        assert error.status_code == status and error.body["error"]["type"] == word, error


def a_refusal_of_load_is_retried():
    unique = f"{time.time_ns() & 0xFFFFFFFF:08x}"
    reply = ask(f"status=529 fails=1 retry_after_ms=20 bytes=16 word={unique}")
    assert reply.content[0].text == text_of(unique, 16)


def an_error_in_a_stream_raises():
    stream = client().messages.create(
        model=MODEL, max_tokens=4096, messages=prompt("events=5 fault=error at=2"), stream=True
    )
    refused(anthropic.APIStatusError, lambda: list(stream), "api_error")


def a_cut_stream_raises():
    stream = client(max_retries=0).messages.create(
        model=MODEL, max_tokens=4096, messages=prompt("events=3 fault=closed at=1"), stream=True
    )
    # A gateway ends it with an error event.
    refused((httpx.RemoteProtocolError, anthropic.APIError), lambda: list(stream))


CHECKS = [
    a_message_is_answered_whole, a_limit_of_tokens_cuts, a_message_streams, events_come_by_name,
    tools_are_called_whole_and_in_pieces, tokens_are_counted, every_status_has_its_error,
    a_refusal_of_load_is_retried, an_error_in_a_stream_raises, a_cut_stream_raises,
]
run([check for check in CHECKS if check.__name__ not in sys.argv[3:]])
