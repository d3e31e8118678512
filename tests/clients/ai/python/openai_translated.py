"""OpenAI's SDK in front of a provider that speaks Anthropic's dialect: `openai_translated.py URL KEY`. Checks of what the translation
gives another form than a provider of its own dialect has.
"""

import json
import sys

import openai
from checks import refused, run

URL, KEY = sys.argv[1], sys.argv[2]
MODEL = "claude-weir"


def client(**words):
    return openai.OpenAI(base_url=URL, api_key=KEY, timeout=20, **words)


def prompt(directives, text="hi"):
    return [{"role": "user", "content": f"{text} [weir {directives}]"}]


def a_chat_has_the_tokens_of_the_message():
    reply = client().chat.completions.create(
        model=MODEL, messages=prompt("bytes=100 word=5eed0001 prompt=90 cached=60 written=10"), user="u1"
    )
    assert reply.object == "chat.completion" and reply.model == MODEL and reply.id.startswith("msg_"), reply
    choice = reply.choices[0]
    assert (len(choice.message.content), choice.finish_reason) == (100, "stop")
    usage = reply.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (90, 25, 115), usage
    assert usage.prompt_tokens_details.cached_tokens == 60 and reply._request_id


def a_limit_of_tokens_cuts():
    reply = client().chat.completions.create(model=MODEL, messages=prompt("bytes=80"), max_completion_tokens=5)
    assert (reply.choices[0].finish_reason, reply.usage.completion_tokens) == ("length", 5)


def a_large_reply_needs_a_limit_that_it_fits():
    word = dict(model=MODEL, messages=prompt("bytes=65536 word=5eed0003"))
    whole = client().chat.completions.create(max_completion_tokens=20_000, **word).choices[0]
    assert (len(whole.message.content), whole.finish_reason) == (65536, "stop")
    # Anthropic requires a limit: without one of the client it is 8,192 tokens.
    cut = client().chat.completions.create(**word)
    assert (cut.usage.completion_tokens, cut.choices[0].finish_reason) == (8192, "length")


def a_lost_member_is_named():
    raw = client().chat.completions.with_raw_response.create(model=MODEL, messages=prompt("bytes=4"), seed=7)
    assert raw.headers["x-weir-translation-loss"] == "seed", raw.headers
    assert len(raw.parse().choices[0].message.content) == 4


def a_tool_with_its_result_comes_back():
    tool = {"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
    }}}
    api = client()
    messages = prompt("calls=1 word=5eed0002")
    message = api.chat.completions.create(model=MODEL, messages=messages, tools=[tool]).choices[0].message
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "city 5eed0002"}
    messages += [message.model_dump(exclude_none=True)]
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "12"} for call in message.tool_calls]
    messages += prompt("bytes=16", "and now")
    final = api.chat.completions.create(model=MODEL, messages=messages, tools=[tool])
    assert len(final.choices[0].message.content) == 16


def several_choices_are_refused():
    error = refused(
        openai.BadRequestError,
        lambda: client().chat.completions.create(model=MODEL, messages=prompt("bytes=4"), n=2),
        "'n' cannot be translated",
    )
    assert error.param == "n" and error.type == "invalid_request_error", error.body


def every_status_has_its_error():
    api = client(max_retries=0)
    for status, kind, wanted, code in [
        (400, openai.BadRequestError, 400, None),
        (401, openai.AuthenticationError, 401, "invalid_api_key"),
        (403, openai.PermissionDeniedError, 403, "forbidden"),
        (404, openai.NotFoundError, 404, "model_not_found"),
        (429, openai.RateLimitError, 429, "rate_limit_exceeded"),
        (500, openai.InternalServerError, 500, None),
        (529, openai.InternalServerError, 503, "overloaded"),
    ]:
        error = refused(
            kind, lambda: api.chat.completions.create(model=MODEL, messages=prompt(f"status={status}"))
        )
        assert (error.status_code, error.code) == (wanted, code), (error, error.body)
        assert error.request_id


run(
    [
        a_chat_has_the_tokens_of_the_message, a_limit_of_tokens_cuts, a_large_reply_needs_a_limit_that_it_fits,
        a_lost_member_is_named,
        a_tool_with_its_result_comes_back, several_choices_are_refused, every_status_has_its_error,
    ]
)
