"""A server of MCP, by the official SDK: `mcp_server.py PORT`. It speaks streamable HTTP at `/mcp`, with sessions and resumption for
clients of the handshake, and without for those of 2026-07-28.
"""

import asyncio
import os
import sys

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventMessage, EventStore
from mcp_types import SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("weir-test", instructions="For tests.")


class Events(EventStore):
    """Keeps every event of every stream."""

    def __init__(self):
        self.events = []

    async def store_event(self, stream_id, message):
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id, send_callback):
        position = int(last_event_id)
        if not 0 < position <= len(self.events):
            return None
        stream_id = self.events[position - 1][0]
        for number, (stream, message) in enumerate(self.events[position:], position + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


class Choice(BaseModel):
    city: str


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def place() -> int:
    """The process of the server."""
    return os.getpid()


@server.tool()
def secret(text: str) -> str:
    """Not for every key."""
    return f"secret {text}"


@server.tool(name="odd.name/with-\u00fcmlaut")
def odd() -> str:
    """Has a name that no field of a head can have."""
    return "odd"


@server.tool()
def fails() -> str:
    """Always fails."""
    raise ValueError("it always fails")


@server.tool()
async def slow(steps: int, context: Context) -> str:
    """Reports its progress."""
    for step in range(steps):
        await context.report_progress(step + 1, steps, f"step {step + 1}")
        await asyncio.sleep(0.01)
    return f"{steps} steps"


@server.tool()
async def cut(context: Context) -> str:
    """Closes its stream, and goes on when the client has come back."""
    await context.report_progress(1, 2, "before")
    await context.close_sse_stream()
    await asyncio.sleep(0.2)
    await context.report_progress(2, 2, "behind")
    return "resumed"


@server.tool()
async def asks(context: Context) -> str:
    """Asks the user."""
    response = await context.elicit("Which city?", Choice)
    return f"{response.action} {response.data.city}"


@server.tool()
async def samples(context: Context) -> str:
    """Wants a text of the client's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text="say it"))
    reply = await context.session.create_message([message], max_tokens=10, related_request_id=context.request_id)
    return f"{reply.model}: {reply.content.text}"


@server.resource("weir://notes/one", mime_type="text/plain")
def note() -> str:
    """A note."""
    return "the first note"


@server.resource("weir://notes/{name}")
def any_note(name: str) -> str:
    """Any note."""
    return f"the note {name}"


@server.prompt()
def greet(name: str) -> str:
    """A greeting."""
    return f"Greet {name}."


if __name__ == "__main__":
    app = server.streamable_http_app(event_store=Events(), retry_interval=50)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
