"""Requests made with httpx, over HTTP/1.1 and HTTP/2 with TLS: `http_client.py URL AUTHORITY`. Prints `ok`, or fails loudly."""

import asyncio
import ssl
import sys

import httpx

LARGE = bytes(at * 7919 >> 8 & 255 for at in range(1_000_000))


async def pieces():
    for at in range(0, len(LARGE), 50_000):
        yield LARGE[at : at + 50_000]
        await asyncio.sleep(0)


async def main(url, authority):
    trust = ssl.create_default_context(cafile=authority)
    for http2, version in [(False, "HTTP/1.1"), (True, "HTTP/2")]:
        async with httpx.AsyncClient(http2=http2, verify=trust, trust_env=False, timeout=20) as client:
            responses = await asyncio.gather(*(client.post(url, content=str(number).encode()) for number in range(50)))
            assert [response.content for response in responses] == [str(number).encode() for number in range(50)]
            assert {response.http_version for response in responses} == {version}
            assert (await client.post(url, content=LARGE)).content == LARGE
            assert (await client.post(url, content=pieces())).content == LARGE, "in chunks"
            async with client.stream("POST", url, content=LARGE) as response:
                assert b"".join([piece async for piece in response.aiter_bytes()]) == LARGE
            assert (await client.head(url)).status_code == 200
            assert (await client.get(url + "%00")).status_code == 400
    print("ok")


asyncio.run(main(*sys.argv[1:]))
