"""A WebSocket peer made with `websockets`: `origin` echoes on a free port and prints it; `client URL` talks to an echo and
fails loudly; `client URL plain` does so to an echo that knows neither subprotocols nor compression."""

import asyncio
import contextlib
import sys

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed


async def origin():
    async def echo(socket):
        # Clients close with codes of their own.
        with contextlib.suppress(ConnectionClosed):
            async for message in socket:
                await socket.send(message)

    async with serve(echo, "127.0.0.1", 0, subprotocols=["echo.2"], max_size=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()


async def client(url, plain=None):
    offered = None if plain else ["echo.1", "echo.2"]
    async with connect(url, subprotocols=offered, max_size=None, proxy=None) as socket:
        assert socket.subprotocol == (None if plain else "echo.2"), socket.subprotocol
        extensions = socket.response.headers.get("Sec-WebSocket-Extensions", "")
        assert ("permessage-deflate" in extensions) != bool(plain), extensions
        messages = ["hello", "", "ä" * 5_000, bytes(at * 7919 >> 8 & 255 for at in range(3_000_000)), b"\5" * 70_000]
        for message in messages:
            await socket.send(message)
            assert await socket.recv() == message

        # Fragments, each a frame of its own.
        await socket.send(["first ", "second ", "third"])
        assert await socket.recv() == "first second third"
        await asyncio.wait_for(await socket.ping(b"life"), 10)
        await socket.close(4000, "enough")
        assert (socket.close_code, socket.close_reason) == (4000, "enough")
    print("ok")


role, *rest = sys.argv[1:]
asyncio.run(origin() if role == "origin" else client(*rest))
