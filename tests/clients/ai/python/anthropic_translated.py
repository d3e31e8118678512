"""Anthropic's SDK in front of a provider that speaks OpenAI's dialect: `anthropic_translated.py URL KEY`. Checks of what the
translation gives another form than a provider of its own dialect has.
"""

import sys

import anthropic
from checks import refused, run

URL, KEY = sys.argv[1].removesuffix("/v1"), sys.argv[2]
MODEL = "weir-small"


def client(**words):
    return anthropic.Anthropic(base_url=URL, api_key=KEY, timeout=20, **words)


def prompt(directives, text="hi"):
    return [{"role": "user", "content": f"{text} [weir {directives}]"}]


def ask(directives, **words):
    return client().messages.create(model=MODEL, max_tokens=4096, messages=prompt(directives), **words)


def a_message_has_the_tokens_of_the_chat():
    reply = ask("bytes=100 prompt=9 cached=4", system="short")
    assert reply.id.startswith("chatcmpl-") and reply.stop_reason == "end_turn", reply
    assert (reply.usage.input_tokens, reply.usage.cache_read_input_tokens, reply.usage.output_tokens) == (5, 4, 25)


TOOL = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def a_tool_with_its_result_comes_back():
    api = client()
    messages = prompt("calls=1 word=5eed0002")
    reply = api.messages.create(model=MODEL, max_tokens=4096, messages=messages, tools=[TOOL])
    assert reply.content[0].input == {"city": "city 5eed0002"}, reply
    messages.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in reply.content]})
    result = {"type": "tool_result", "tool_use_id": reply.content[0].id, "content": "12"}
    messages.append({"role": "user", "content": [result, {"type": "text", "text": "and now [weir bytes=16]"}]})
    final = api.messages.create(model=MODEL, max_tokens=4096, messages=messages, tools=[TOOL])
    assert len(final.content[0].text) == 16, final


def a_refusal_and_a_filter_stop():
    assert ask("finish=content_filter bytes=8").stop_reason == "refusal"


def a_lost_member_is_named():
    raw = client().messages.with_raw_response.create(
        model=MODEL, max_tokens=9, messages=prompt("bytes=4"), extra_body={"top_k": 5}
    )
    assert raw.headers["x-weir-translation-loss"] == "top_k", raw.headers
    assert raw.parse().content[0].text


def an_address_of_a_document_is_refused():
    block = {"type": "document", "source": {"type": "url", "url": "http://a.example/b.pdf"}}
    error = refused(
        anthropic.BadRequestError,
        lambda: client().messages.create(
            model=MODEL, max_tokens=9, messages=[{"role": "user", "content": [block]}]
        ),
        "cannot be translated",
    )
    assert error.body["error"]["type"] == "invalid_request_error", error.body


def an_overload_is_one():
    api = client(max_retries=0)
    error = refused(
        anthropic.InternalServerError,
        lambda: api.messages.create(model=MODEL, max_tokens=9, messages=prompt("status=503")),
    )
    assert error.status_code == 529 and error.body["error"]["type"] == "overloaded_error", error.body


run(
    [
        a_message_has_the_tokens_of_the_chat, a_tool_with_its_result_comes_back, a_refusal_and_a_filter_stop,
        a_lost_member_is_named, an_address_of_a_document_is_refused, an_overload_is_one,
    ]
)
