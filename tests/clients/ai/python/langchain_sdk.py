"""LangChain over OpenAI's SDK: `langchain_sdk.py URL KEY`. A prompt chooses its reply; see `weir lab origin ai --help`."""

import sys
import time

import openai
from checks import refused, run
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

URL, KEY = sys.argv[1], sys.argv[2]


def chat(**words):
    return ChatOpenAI(model="weir-small", base_url=URL, api_key=KEY, timeout=20, **words)


def text_of(word, size):
    """The text of the origin: groups of sixteen bytes."""
    groups = "".join(f"{word}{number:07x} " for number in range(size // 16 + 1))
    return groups[:size]


class Weather(BaseModel):
    """Finds something."""

    city: str
    days: int


def chat_answers_whole():
    reply = chat().invoke("[weir bytes=100 word=5eed0001 prompt=9]")
    assert reply.content == text_of("5eed0001", 100)
    assert reply.usage_metadata["input_tokens"] == 9, reply.usage_metadata


def chat_streams_with_and_without_usage():
    for wants_usage in [True, False]:
        pieces = list(chat(stream_usage=wants_usage).stream("[weir bytes=150 events=7 word=5eed0002 prompt=9]"))
        assert "".join(piece.content for piece in pieces) == text_of("5eed0002", 150)
        seen = [piece.usage_metadata for piece in pieces if piece.usage_metadata]
        assert [usage["input_tokens"] for usage in seen] == ([9] if wants_usage else []), seen


def tools_are_called_whole_and_in_pieces():
    model = chat().bind_tools([Weather])
    reply = model.invoke("[weir calls=1 word=5eed0003]")
    assert reply.tool_calls[0]["args"]["city"] == "city 5eed0003", reply
    whole = None
    for piece in model.stream("[weir calls=1 events=6 word=5eed0004]"):
        whole = piece if whole is None else whole + piece
    assert whole.tool_calls[0]["args"]["city"] == "city 5eed0004", whole


def structured_outputs_parse():
    for method in ["json_schema", "function_calling"]:
        found = chat().with_structured_output(Weather, method=method).invoke("[weir word=5eed0005]")
        assert isinstance(found, Weather) and found.city == "city 5eed0005", found


def responses_answer_and_stream():
    model = chat(use_responses_api=True)
    assert model.invoke("[weir bytes=60 word=5eed0006]").text == text_of("5eed0006", 60)
    pieces = model.stream("[weir bytes=90 events=5 word=5eed0007]")
    assert "".join(piece.text for piece in pieces) == text_of("5eed0007", 90)


def embeddings_come():
    model = OpenAIEmbeddings(
        model="weir-embedding", base_url=URL, api_key=KEY, dimensions=8, check_embedding_ctx_length=False
    )
    vectors = model.embed_documents(["one", "two"])
    assert len(vectors) == 2 and len(vectors[0]) == 8 and vectors[0] != vectors[1]


def a_refusal_of_load_is_retried():
    unique = f"{time.time_ns() & 0xFFFFFFFF:08x}"
    reply = chat(max_retries=2).invoke(f"[weir status=429 fails=2 retry_after_ms=50 bytes=16 word={unique}]")
    assert reply.content == text_of(unique, 16)


def an_error_has_its_class():
    refused(openai.PermissionDeniedError, lambda: chat(max_retries=0).invoke("[weir status=403 code=c403]"))


run(
    [
        chat_answers_whole, chat_streams_with_and_without_usage, tools_are_called_whole_and_in_pieces,
        structured_outputs_parse, responses_answer_and_stream, embeddings_come, a_refusal_of_load_is_retried,
        an_error_has_its_class,
    ]
)
