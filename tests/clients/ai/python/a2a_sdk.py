"""The official SDK of A2A: `a2a_sdk.py DIRECT THROUGH KEY LIMITED`. Each check runs with the agent's own URL, and with that of a
gateway in front of it, and both give the same objects. KEY may use the agent, and LIMITED may not.
"""

import sys
from contextlib import asynccontextmanager

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.helpers import get_stream_response_text, new_text_message
from a2a.types.a2a_pb2 import AgentCard, GetTaskRequest, Role, SendMessageRequest
from checks import refused_async, run
from google.protobuf.json_format import MessageToDict

DIRECT, THROUGH, KEY, LIMITED = sys.argv[1:5]

# Fresh for each message.
OWN = {"id", "taskId", "contextId", "messageId", "timestamp"}


async def card_of(http, url):
    return await A2ACardResolver(http, url).get_agent_card()


@asynccontextmanager
async def connected(url, version, streaming=True, key=KEY):
    """A client of one version, whatever URL the card names."""
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=20) as http:
        card = await card_of(http, DIRECT)
        interface = next(one for one in card.supported_interfaces if one.protocol_version == version)
        own = AgentCard()
        own.CopyFrom(card)
        del own.supported_interfaces[:]
        own.supported_interfaces.add().CopyFrom(interface)
        own.supported_interfaces[0].url = url
        yield ClientFactory(ClientConfig(httpx_client=http, streaming=streaming)).create(own)


def plain(message):
    def bare(value):
        if isinstance(value, dict):
            return {name: bare(one) for name, one in value.items() if name not in OWN}
        return [bare(one) for one in value] if isinstance(value, list) else value

    return bare(MessageToDict(message))


def request(text):
    return SendMessageRequest(message=new_text_message(text, role=Role.ROLE_USER))


async def same(action, streaming):
    result = None
    for version in ["1.0", "0.3"]:
        results = []
        for url in [DIRECT, THROUGH]:
            async with connected(url, version, streaming) as client:
                results.append(await action(client))
        assert results[0] == results[1], f"{version}: directly {results[0]!r}, through {results[1]!r}"
        result = results[0]
    return result


async def the_card_passes_as_it_is():
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {KEY}"}) as http:
        direct, through = await card_of(http, DIRECT), await card_of(http, THROUGH)
        assert direct == through
        assert through.supported_interfaces[0].url == THROUGH, through
        path = "/.well-known/agent-card.json"
        assert (await http.get(DIRECT + path)).content == (await http.get(THROUGH + path)).content


async def a_message_is_answered_at_once():
    async def action(client):
        return [plain(one) async for one in client.send_message(request("hello"))]

    found = await same(action, streaming=False)
    assert found[0]["message"]["parts"] == [{"text": "echo hello"}], found


async def a_task_comes_over_the_stream_and_is_kept():
    async def action(client):
        seen, task = [], None
        async for one in client.send_message(request("in steps")):
            seen.append((plain(one), get_stream_response_text(one)))
            task = one.task.id if one.HasField("task") else task
        return seen, plain(await client.get_task(GetTaskRequest(id=task)))

    seen, task = await same(action, streaming=True)
    assert len(seen) == 5 and task["status"]["state"] == "TASK_STATE_COMPLETED", (seen, task)


async def a_key_that_may_not_use_the_agent_is_refused():
    for streaming in [False, True]:
        async with connected(THROUGH, "1.0", streaming, LIMITED) as client:

            async def send():
                return [one async for one in client.send_message(request("hello"))]

            await refused_async(A2AClientError, send())


run(
    [
        the_card_passes_as_it_is,
        a_message_is_answered_at_once,
        a_task_comes_over_the_stream_and_is_kept,
        a_key_that_may_not_use_the_agent_is_refused,
    ]
)
