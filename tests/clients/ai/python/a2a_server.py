"""An agent of A2A, by the official SDK: `a2a_server.py PORT URL`. It speaks JSON-RPC at `/agent`, and its card names URL, with the
versions 1.0 and 0.3.
"""

import asyncio
import sys

import uvicorn
from a2a.helpers import (
    new_task_from_user_message,
    new_text_artifact_update_event,
    new_text_message,
    new_text_status_update_event,
)
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, TaskState
from starlette.applications import Starlette

PORT, URL = int(sys.argv[1]), sys.argv[2]

card = AgentCard(
    name="weir-test",
    description="For tests.",
    version="1",
    supported_interfaces=[
        AgentInterface(url=URL, protocol_binding="JSONRPC", protocol_version="1.0"),
        AgentInterface(url=URL, protocol_binding="JSONRPC", protocol_version="0.3"),
    ],
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="echo", name="Echo", description="Repeats a text.", tags=["test"])],
)


class Echo(AgentExecutor):
    """Repeats a text at once; with `in steps` as a task."""

    async def execute(self, context, event_queue):
        text = context.get_user_input()
        if not text.endswith("in steps"):
            await event_queue.enqueue_event(new_text_message(f"echo {text}"))
            return
        task = new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        for step in range(3):
            await event_queue.enqueue_event(
                new_text_artifact_update_event(
                    task.id, task.context_id, "echo", f"{step} ", append=step > 0, last_chunk=step == 2, artifact_id="a"
                )
            )
            await asyncio.sleep(0.01)
        state = TaskState.TASK_STATE_COMPLETED
        await event_queue.enqueue_event(new_text_status_update_event(task.id, task.context_id, state, "done"))

    async def cancel(self, context, event_queue):
        raise NotImplementedError("it is over at once")


handler = DefaultRequestHandler(agent_executor=Echo(), task_store=InMemoryTaskStore(), agent_card=card)
routes = create_agent_card_routes(card, card_url="/agent/.well-known/agent-card.json")
routes += create_jsonrpc_routes(handler, "/agent", enable_v0_3_compat=True)

if __name__ == "__main__":
    uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=PORT, log_level="error")
