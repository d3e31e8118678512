"""Runs a list of checks and prints a line for each: `ok NAME` or `failed NAME: REASON`. Every driver program does so."""

import inspect
import os
import signal
import sys
import traceback

SECONDS_MAX = 30


def overdue(number, frame):
    raise TimeoutError(f"no end after {SECONDS_MAX} s")


def run(functions, *arguments):
    """Runs each function; its name is that of the check, with blanks. A coroutine runs in an event loop of its own."""
    failed = 0
    signal.signal(signal.SIGALRM, overdue)
    for function in functions:
        name = function.__name__.replace("_", " ")
        try:
            # A check that waits for ever would hide those behind it.
            signal.alarm(SECONDS_MAX)
            result = function(*arguments)
            if inspect.iscoroutine(result):
                import asyncio

                asyncio.run(result)
        except BaseException as error:
            failed += 1
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"failed {name}: {reason}", flush=True)
            if os.environ.get("WEIR_DRIVER_TRACE"):
                traceback.print_exc()
        else:
            print(f"ok {name}", flush=True)
        finally:
            signal.alarm(0)
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
