"""A plugin of pytest for PyMongo's own tests in front of FerretDB, which has no parameter `enableTestCommands`: they read it before the
first test."""

import functools

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.synchronous.database import Database


def with_parameter(command, reply):
    if command == "getParameter" and isinstance(reply, dict):
        reply.setdefault("enableTestCommands", False)
    return reply


def patched(original):
    @functools.wraps(original)
    def command(self, command, *words, **options):
        return with_parameter(command, original(self, command, *words, **options))

    return command


def patched_async(original):
    @functools.wraps(original)
    async def command(self, command, *words, **options):
        return with_parameter(command, await original(self, command, *words, **options))

    return command


Database.command = patched(Database.command)
AsyncDatabase.command = patched_async(AsyncDatabase.command)
