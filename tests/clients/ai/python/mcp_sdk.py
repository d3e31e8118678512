"""The official SDK of MCP: `mcp_sdk.py DIRECT THROUGH KEY`. Each check runs with the server's own URL, and with that of a gateway in
front of it, and both give the same objects. KEY is a key of the gateway that may use all tools.
"""

import sys
from contextlib import asynccontextmanager

from checks import refused_async, run
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import CreateMessageResult, ElicitResult, TextContent

DIRECT, THROUGH, KEY = sys.argv[1:4]
MODES = ["legacy", "auto"]


@asynccontextmanager
async def connected(url, mode="legacy", key=KEY, **words):
    async with create_mcp_http_client({"authorization": f"Bearer {key}"} if key else None) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode, cache=None, **words) as client:
            yield client


async def same(action, modes=MODES, **words):
    """Both give the same, which is returned."""
    result = None
    for mode in modes:
        results = []
        for url in [DIRECT, THROUGH]:
            async with connected(url, mode, **words) as client:
                results.append(await action(client))
        assert results[0] == results[1], f"{mode}: directly {results[0]!r}, through {results[1]!r}"
        result = results[0]
    return result


def plain(result):
    """An object without what differs from call to call."""
    return result.model_dump(mode="json", by_alias=True)


async def the_handshake_is_the_same():
    async def facts(client):
        info = client.server_info
        return client.protocol_version, info and plain(info), plain(client.server_capabilities), client.instructions

    legacy = await same(facts, ["legacy"])
    assert legacy[0] == "2025-11-25" and legacy[3] == "For tests.", legacy
    modern = await same(facts, ["auto"])
    assert modern[0] == "2026-07-28", modern


async def tools_are_listed_and_called():
    async def action(client):
        listed = await client.list_tools()
        called = [
            await client.call_tool("add", {"a": 2, "b": 3}),
            await client.call_tool("fails"),
            await client.call_tool("odd.name/with-\u00fcmlaut"),
        ]
        return plain(listed), [plain(one) for one in called]

    listed, called = await same(action)
    assert len(listed["tools"]) == 9, listed
    assert called[0]["structuredContent"] == {"result": 5} and called[1]["isError"], called


async def a_tool_that_does_not_exist_is_an_error():
    async def action(client):
        try:
            return plain(await client.call_tool("nothing", {}))
        except MCPError as error:
            return error.code, error.message

    await same(action)


async def progress_comes_over_the_stream():
    async def action(client):
        seen = []

        async def report(progress, total, message):
            seen.append((progress, total, message))

        result = await client.call_tool("slow", {"steps": 5}, progress_callback=report)
        return seen, plain(result)

    seen, _ = await same(action)
    assert seen == [(step, 5, f"step {step}") for step in range(1, 6)], seen


async def resources_and_prompts_are_the_same():
    async def action(client):
        return [
            plain(one)
            for one in [
                await client.list_resources(),
                await client.list_resource_templates(),
                await client.read_resource("weir://notes/one"),
                await client.read_resource("weir://notes/two"),
                await client.list_prompts(),
                await client.get_prompt("greet", {"name": "Ada"}),
            ]
        ]

    found = await same(action)
    assert found[2]["contents"][0]["text"] == "the first note", found[2]


async def a_server_asks_the_user_over_the_stream():
    async def respond(context, params):
        return ElicitResult(action="accept", content={"city": "Rome"})

    async def action(client):
        return plain(await client.call_tool("asks"))

    found = await same(action, ["legacy"], elicitation_callback=respond)
    assert found["content"][0]["text"] == "accept Rome", found


async def a_server_wants_a_text_of_the_clients_model():
    async def respond(context, params):
        assert params.messages[0].content.text == "say it"
        return CreateMessageResult(
            role="assistant", content=TextContent(type="text", text="said"), model="m", stop_reason="endTurn"
        )

    async def action(client):
        return plain(await client.call_tool("samples"))

    found = await same(action, ["legacy"], sampling_callback=respond)
    assert found["content"][0]["text"] == "m: said", found


async def a_stream_that_the_server_closes_is_resumed():
    async def action(client):
        seen = []

        async def report(progress, total, message):
            seen.append(message)

        result = await client.call_tool("cut", progress_callback=report, read_timeout_seconds=10)
        return seen, plain(result)

    seen, result = await same(action, ["legacy"])
    assert seen == ["before", "behind"] and result["content"][0]["text"] == "resumed", (seen, result)


async def a_session_ends_with_a_delete():
    for url in [DIRECT, THROUGH]:
        async with create_mcp_http_client({"authorization": f"Bearer {KEY}"}) as http:
            ids = []

            async def keep(response):
                ids.append(response.request.headers.get("mcp-session-id"))

            http.event_hooks["response"].append(keep)
            async with Client(streamable_http_client(url, http_client=http), mode="legacy", cache=None) as client:
                await client.list_tools()
            session = next(one for one in ids if one)
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            headers = {"mcp-session-id": session, "accept": "application/json, text/event-stream"}
            ended = await http.post(url, json=ping, headers=headers)
            assert ended.status_code == 404, (url, ended.status_code, ended.text)


async def a_session_stays_at_its_server():
    for _ in range(4):
        async with connected(THROUGH) as client:
            places = {plain(await client.call_tool("place"))["structuredContent"]["result"] for _ in range(6)}
            assert len(places) == 1, places


async def a_key_that_is_wrong_is_refused():
    async def enter():
        async with connected(THROUGH, key="sk-weir-" + "b" * 43):
            pass

    def leaves(error):
        return [one for inner in error.exceptions for one in leaves(inner)] if hasattr(error, "exceptions") else [error]

    error = await refused_async(BaseException, enter())
    assert any(isinstance(one, MCPError) and "not valid" in one.message for one in leaves(error)), leaves(error)


run(
    [
        the_handshake_is_the_same,
        tools_are_listed_and_called,
        a_tool_that_does_not_exist_is_an_error,
        progress_comes_over_the_stream,
        resources_and_prompts_are_the_same,
        a_server_asks_the_user_over_the_stream,
        a_server_wants_a_text_of_the_clients_model,
        a_stream_that_the_server_closes_is_resumed,
        a_session_ends_with_a_delete,
        a_session_stays_at_its_server,
        a_key_that_is_wrong_is_refused,
    ]
)
