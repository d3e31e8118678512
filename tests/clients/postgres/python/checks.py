"""Runs a list of checks and prints a line for each: `ok NAME` or `failed NAME: REASON`. Every driver program does so."""

import inspect
import os
import sys
import traceback


def run(functions, *arguments):
    """Runs each function; its name is that of the check, with blanks. A coroutine runs in an event loop of its own."""
    failed = 0
    for function in functions:
        name = function.__name__.replace("_", " ")
        try:
            result = function(*arguments)
            if inspect.iscoroutine(result):
                import asyncio

                asyncio.run(asyncio.wait_for(result, 30))
        except BaseException as error:
            failed += 1
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"failed {name}: {reason}", flush=True)
            if os.environ.get("WEIR_DRIVER_TRACE"):
                traceback.print_exc()
        else:
            print(f"ok {name}", flush=True)
    print(f"end {len(functions)} checks", flush=True)
    # A thread or a connection that a failed check left behind must not keep the program.
    sys.stdout.flush()
    os._exit(1 if failed else 0)


def refused(kind, action, text=""):
    """Returns the error of that kind that `action` ends with."""
    try:
        action()
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error!s}"
        return error
    raise AssertionError(f"no {kind.__name__ if isinstance(kind, type) else kind}")


async def refused_async(kind, coroutine, text=""):
    """The same for a coroutine."""
    try:
        await coroutine
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error!s}"
        return error
    raise AssertionError(f"no {kind.__name__ if isinstance(kind, type) else kind}")
