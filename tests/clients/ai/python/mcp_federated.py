"""The official SDK of MCP with two servers under one name: `mcp_federated.py PYTHON NODE THROUGH KEY LIMITED`. PYTHON and NODE are the
URLs of the servers, which the gateway at THROUGH names `python` and `node`. KEY may use all tools, LIMITED only `add` of the first and
`slow` of both.
"""

import sys
from contextlib import asynccontextmanager

from checks import refused_async, run
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

PYTHON, NODE, THROUGH, KEY, LIMITED = sys.argv[1:6]
SERVERS = {"python": PYTHON, "node": NODE}
MODES = ["legacy", "auto"]


@asynccontextmanager
async def connected(url=THROUGH, mode="legacy", key=KEY):
    async with create_mcp_http_client({"authorization": f"Bearer {key}"}) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode, cache=None) as client:
            yield client


async def one_server_is_seen():
    for mode in MODES:
        async with connected(mode=mode) as client:
            assert client.server_info.name == "joint", client.server_info
            assert client.protocol_version == "2025-11-25", client.protocol_version
            capabilities = client.server_capabilities
            assert capabilities.tools and capabilities.prompts and not capabilities.resources, capabilities
            assert client.instructions == "python__*: For tests.\n\nnode__*: For tests.", client.instructions


async def tools_are_those_of_each_server_with_its_name():
    wanted = []
    for name, url in SERVERS.items():
        async with connected(url) as client:
            for tool in (await client.list_tools()).tools:
                wanted.append({**tool.model_dump(mode="json"), "name": f"{name}__{tool.name}"})
    for mode in MODES:
        async with connected(mode=mode) as client:
            found = [tool.model_dump(mode="json") for tool in (await client.list_tools()).tools]
            assert found == wanted, [tool["name"] for tool in found]


async def calls_go_to_their_server():
    for mode in MODES:
        async with connected(mode=mode) as client:
            places = set()
            for name in SERVERS:
                result = await client.call_tool(f"{name}__add", {"a": 2, "b": 3})
                assert result.content[0].text == "5", result
                here = {(await client.call_tool(f"{name}__place")).content[0].text for _ in range(3)}
                assert len(here) == 1, here
                places |= here
                assert (await client.call_tool(f"{name}__fails")).is_error
            assert len(places) == 2, places
            odd = await client.call_tool("python__odd.name/with-\u00fcmlaut")
            assert odd.content[0].text == "odd", odd


async def progress_comes_over_the_stream():
    async with connected() as client:
        for name in SERVERS:
            seen = []

            async def report(progress, total, message):
                seen.append(progress)

            await client.call_tool(f"{name}__slow", {"steps": 4}, progress_callback=report)
            assert seen == [1, 2, 3, 4], (name, seen)


async def prompts_have_the_name_of_their_server():
    async with connected() as client:
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        assert names == ["python__greet", "node__greet"], names
        for name in names:
            prompt = await client.get_prompt(name, {"name": "Ada"})
            assert prompt.messages[0].content.text == "Greet Ada.", prompt


async def other_things_are_errors_and_the_session_goes_on():
    async with connected() as client:
        error = await refused_async(MCPError, client.list_resources(), "Method not found")
        assert error.code == -32601, error.code
        for name in ["add", "other__add", "python_add"]:
            error = await refused_async(MCPError, client.call_tool(name, {"a": 1, "b": 1}), "Unknown tool")
            assert error.code == -32602, error.code
        await client.send_ping()
        await client.list_tools()


async def a_key_sees_and_calls_only_its_tools():
    for mode in MODES:
        async with connected(mode=mode, key=LIMITED) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == ["python__add", "python__slow", "node__slow"], names
            result = await client.call_tool("python__add", {"a": 1, "b": 1})
            assert result.content[0].text == "2", result
            for name in ["python__secret", "node__add", "node__secret"]:
                error = await refused_async(MCPError, client.call_tool(name, {"text": "x"}), "Unknown tool")
                assert error.code == -32602, error.code


run(
    [
        one_server_is_seen,
        tools_are_those_of_each_server_with_its_name,
        calls_go_to_their_server,
        progress_comes_over_the_stream,
        prompts_have_the_name_of_their_server,
        other_things_are_errors_and_the_session_goes_on,
        a_key_sees_and_calls_only_its_tools,
    ]
)
