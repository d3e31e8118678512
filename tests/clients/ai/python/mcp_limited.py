"""The official SDK of MCP with a key that may call only `add` and `slow`: `mcp_limited.py DIRECT THROUGH KEY`. It sees and calls these
as directly, and no others.
"""

import sys
from contextlib import asynccontextmanager

from checks import refused_async, run
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

DIRECT, THROUGH, KEY = sys.argv[1:4]
ALLOWED = ["add", "slow"]


@asynccontextmanager
async def connected(url, mode):
    async with create_mcp_http_client({"authorization": f"Bearer {KEY}"}) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode, cache=None) as client:
            yield client


async def only_its_tools_are_listed_and_they_are_the_same():
    for mode in ["legacy", "auto"]:
        async with connected(DIRECT, mode) as client:
            direct = {tool.name: tool for tool in (await client.list_tools()).tools}
        async with connected(THROUGH, mode) as client:
            through = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(through) == ALLOWED, list(through)
        assert through == {name: direct[name] for name in ALLOWED}, through


async def only_its_tools_are_called():
    for mode in ["legacy", "auto"]:
        async with connected(THROUGH, mode) as client:
            result = await client.call_tool("add", {"a": 1, "b": 1})
            assert result.content[0].text == "2", result
            seen = []

            async def report(progress, total, message):
                seen.append(progress)

            await client.call_tool("slow", {"steps": 3}, progress_callback=report)
            assert seen == [1, 2, 3], seen
            for name in ["secret", "nothing"]:
                error = await refused_async(MCPError, client.call_tool(name, {"text": "x"}), "Unknown tool")
                assert error.code == -32602, error.code
            # The session goes on.
            await client.list_tools()


run([only_its_tools_are_listed_and_they_are_the_same, only_its_tools_are_called])
