"""Targets of the suite, each tested with RESP2 and RESP3. See tests/src/bin/stage.rs."""

import itertools
import os
import socket
import threading
from dataclasses import dataclass

import pytest
import redis


@dataclass(frozen=True)
class Target:
    """One address to test: a real server, or Weir in front of one."""

    name: str
    server: str
    via: str
    host: str
    port: int
    auth_port: int
    password: str


def targets() -> list[Target]:
    """Reads WEIR_TARGETS; without it the suite cannot say anything, so it fails."""
    text = os.environ.get("WEIR_TARGETS", "")
    if not text:
        raise RuntimeError("WEIR_TARGETS is not set: run `cargo xtask test clients:python`")
    found = []
    for part in text.split(";"):
        name, server, via, host, port, auth_port, password = part.split(" ")
        found.append(Target(name, server, via, host, int(port), int(auth_port), password))
    return found


@pytest.fixture(params=targets(), ids=lambda target: target.name)
def target(request) -> Target:
    return request.param


@pytest.fixture(params=[2, 3], ids=lambda protocol: f"resp{protocol}")
def protocol(request) -> int:
    return request.param


@pytest.fixture
def client(target, protocol):
    """A plain client; its pool is closed at the end."""
    with redis.Redis(
        host=target.host,
        port=target.port,
        protocol=protocol,
        decode_responses=True,
        socket_timeout=20,
    ) as connected:
        yield connected


_numbers = itertools.count()


@pytest.fixture
def key(request) -> str:
    """A key prefix that no other test uses, so that nothing has to be flushed."""
    return f"py:{os.getpid()}:{next(_numbers)}:{request.node.originalname}"


class Forwarder:
    """A byte forwarder whose connections a test can cut, to see a client come back."""

    def __init__(self, host: str, port: int):
        self._upstream = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self.accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            upstream = socket.create_connection(self._upstream)
            with self._lock:
                self._open += [client, upstream]
                self.accepted += 1
            for source, sink in ((client, upstream), (upstream, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket):
        try:
            while chunk := source.recv(65536):
                sink.sendall(chunk)
        except OSError:
            pass
        for side in (source, sink):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        """Ends every connection that is open now."""
        with self._lock:
            for side in self._open:
                try:
                    side.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                side.close()
            self._open.clear()

    def close(self):
        self._listener.close()
        self.cut()


@pytest.fixture
def forwarder(target):
    forwarder = Forwarder(target.host, target.port)
    yield forwarder
    forwarder.close()
