"""Clients that write until the standard input ends: `load.py DRIVER URL CLIENTS`, DRIVER `psycopg` or `asyncpg`.

Each client inserts numbers of its own into the table `done`, every second one within a transaction block, and checks a setting of its
session. A client whose connection has ended connects again. At the end the numbers in the table are compared with the acknowledged
ones. The output is a JSON object: `acknowledged`, `lives` (connections), `failures` (phase, end of the connection, SQLSTATE, text), `problems`.
"""

import asyncio
import json
import random
import re
import sys
import threading

DRIVER, URL, CLIENTS = sys.argv[1], sys.argv[2], int(sys.argv[3])
# For one statement; longer is a failure without SQLSTATE.
PATIENCE = 30


class Psycopg:
    """psycopg 3; it prepares a statement at its fifth use."""

    async def connect(self):
        import psycopg

        self.connection = await psycopg.AsyncConnection.connect(URL, autocommit=True, connect_timeout=PATIENCE)

    async def run(self, text, *values):
        cursor = await self.connection.execute(re.sub(r"\$\d", "%s", text), values or None)
        return (await cursor.fetchall())[-1][0] if cursor.description else None

    def is_closed(self):
        return self.connection.closed or self.connection.broken

    async def close(self):
        await self.connection.close()


class Asyncpg:
    """asyncpg; it prepares each statement with values at its first use."""

    async def connect(self):
        import asyncpg

        self.connection = await asyncpg.connect(URL, timeout=PATIENCE)

    async def run(self, text, *values):
        return await (self.connection.fetchval(text, *values) if values else self.connection.execute(text))

    def is_closed(self):
        return self.connection.is_closed()

    async def close(self):
        await self.connection.close()


def described(error):
    """SQLSTATE and text. asyncpg has the error of a server that ends the session as the cause of its own, and none if the end comes
    while it begins to send; libpq forgets the words of an end between two statements. The code is `closed` then."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    state = getattr(error.__cause__, "sqlstate", None) or getattr(error, "sqlstate", None) or ""
    is_end = state == "08003" or type(error).__name__ == "InternalClientError" or "closed the connection" in text
    return {"state": "closed" if is_end else state, "text": text}


class Client:
    """One client, over all its connections."""

    def __init__(self, number):
        self.name = f"{DRIVER}-{number}"
        self.timeout = 60001 + number
        self.acknowledged, self.uncertain = set(), set()
        self.connection, self.phase, self.lives = None, "", 0

    async def connect(self):
        self.phase, self.connection = "connect", None
        connection = Psycopg() if DRIVER == "psycopg" else Asyncpg()
        await connection.connect()
        self.connection, self.lives = connection, self.lives + 1
        self.phase = "setting"
        await connection.run(f"set statement_timeout = {self.timeout}")

    async def transaction(self, number):
        insert = "insert into done (client, number) values ($1, $2) returning current_setting('statement_timeout')"
        run = self.connection.run
        if number % 2:
            self.phase = "begin"
            await run("begin")
            self.phase = "block"
            setting = await run(insert, self.name, number)
            self.phase = "commit"
            await run("commit")
        else:
            self.phase = "statement"
            setting = await run(insert, self.name, number)
        if setting != f"{self.timeout}ms":
            problems.append(f"{self.name}: statement_timeout is {setting}")

    async def live(self):
        number = 0
        while not over.is_set():
            number += 1
            try:
                if self.connection is None:
                    await asyncio.wait_for(self.connect(), PATIENCE)
                await asyncio.wait_for(self.transaction(number), PATIENCE)
                self.acknowledged.add(number)
            except Exception as error:
                self.uncertain.add(number)
                is_over = self.connection is None or self.connection.is_closed()
                failures.append({"client": self.name, "phase": self.phase, "is_over": is_over, **described(error)})
                if is_over:
                    self.connection = None
                await asyncio.sleep(0.1)
            await asyncio.sleep(random.random() / 50)
        if self.connection is not None:
            await self.connection.close()


over, failures, problems = asyncio.Event(), [], []


async def main():
    loop = asyncio.get_running_loop()
    threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(over.set)), daemon=True).start()
    clients = [Client(number) for number in range(CLIENTS)]
    await asyncio.gather(*(client.live() for client in clients))
    judge = Asyncpg()
    await judge.connect()
    rows = await judge.connection.fetch("select client, number from done")
    await judge.close()
    for client in clients:
        found = [row["number"] for row in rows if row["client"] == client.name]
        if len(found) != len(set(found)):
            problems.append(f"{client.name}: a number was written twice")
        if lost := client.acknowledged - set(found):
            problems.append(f"{client.name}: acknowledged and lost: {sorted(lost)}")
        if foreign := set(found) - client.acknowledged - client.uncertain:
            problems.append(f"{client.name}: written by another: {sorted(foreign)}")
    acknowledged, lives = sum(len(client.acknowledged) for client in clients), sum(client.lives for client in clients)
    print(json.dumps({"acknowledged": acknowledged, "lives": lives, "failures": failures, "problems": problems}))


asyncio.run(main())
