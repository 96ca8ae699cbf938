"""A server on a real socket, in a thread, and clients of its websocket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn
from websockets.sync.client import ClientConnection, connect

from kvviz.sessions.registry import LIVE_ID, Sessions
from kvviz.sources.loader import Load
from kvviz.web.app import ServerConfig, bind, create_app, uvicorn_config


@dataclass
class Running:
    """Where a server listens, and its application."""

    port: int
    app: Any

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def sessions(self) -> Sessions:
        registry: Sessions = self.app.state.sessions
        return registry

    @property
    def source(self) -> Any:
        """What feeds the live session."""
        return self.sessions.by_id[LIVE_ID].source

    def on_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What a coroutine gives in the server's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.sessions.loop).result(30)

    def connect(self, query: str = "", path: str = "/ws", **options: Any) -> Socket:
        address = f"ws://127.0.0.1:{self.port}{path}{query}"
        return Socket(
            connect(address, max_size=None, compression=None, proxy=None, close_timeout=0.5, **options).__enter__()
        )


class Socket:
    """A page: what has come so far, by type."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.records: list[Any] = []
        self.packs: list[dict[str, Any]] = []
        self.hellos: list[dict[str, Any]] = []
        self.status: dict[str, Any] = {}
        self.last_id = 0

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def receive(self, timeout_s: float = 30.0) -> dict[str, Any]:
        data = self.connection.recv(timeout_s)
        if isinstance(data, bytes):
            head: dict[str, Any] = json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
            self.packs.append(head)
            return {"type": "pack", **head}
        message: dict[str, Any] = json.loads(data)
        if message["type"] == "hello":
            self.hellos.append(message)
        elif message["type"] == "records":
            self.records += message["records"]
        elif message["type"] == "status":
            self.status = message
        return message

    def until(self, condition: Callable[[dict[str, Any]], bool], timeout_s: float = 30.0) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while True:
            message = self.receive(max(0.01, deadline - time.monotonic()))
            if condition(message):
                return message

    def until_type(self, name: str) -> dict[str, Any]:
        return self.until(lambda message: message["type"] == name)

    def until_status(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        if not self.status or not condition(self.status):
            self.until(lambda message: message["type"] == "status" and condition(message))

    def until_seq(self, seq: int) -> None:
        if not self.records or self.records[-1][0] < seq:
            self.until(lambda message: message["type"] == "records" and message["records"][-1][0] >= seq)

    def until_pack(self, **wanted: Any) -> dict[str, Any]:
        """The first pack with these fields since `packs` was last cleared: it may come before the reply or after it."""
        while True:
            for pack in self.packs:
                if wanted.items() <= pack.items():
                    return pack
            self.until_type("pack")

    def send(self, command: str, **fields: Any) -> int:
        self.last_id += 1
        self.connection.send(json.dumps({"id": self.last_id, "command": command, **fields}))
        return self.last_id

    def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        message_id = self.send(command, **fields)
        return self.until(lambda message: message["type"] in ("ack", "error") and message["id"] == message_id)

    def do(self, command: str, **fields: Any) -> Any:
        reply = self.ask(command, **fields)
        assert reply["type"] == "ack", reply
        return reply["result"]

    def play(self) -> None:
        """Step as fast as the engine can until it has nothing to do."""
        self.do("set_rate", steps_per_second=None)
        self.do("play")
        self.until_status(lambda status: status["play"]["idle"])


class ProxyPath:
    """A proxy in front of the application that shows it under a prefix, and strips that or not."""

    def __init__(self, app: Any, prefix: str, *, strips: bool) -> None:
        self.app, self.prefix, self.strips = app, prefix, strips

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] in ("http", "websocket"):
            if not scope["path"].startswith(self.prefix):
                scope = {**scope, "path": "/not/behind/the/proxy"}
            elif self.strips:
                path = scope["path"][len(self.prefix) :] or "/"
                scope = {**scope, "path": path, "raw_path": path.encode()}
        await self.app(scope, receive, send)


@contextlib.contextmanager
def running(
    config: ServerConfig | None = None,
    load: Load | None = None,
    wrap: Callable[[Any], Any] = lambda app: app,
    *,
    waits: bool = True,
    port: int = 0,
) -> Iterator[Running]:
    """A server until the block ends, with its `load` awaited if it `waits`. `wrap` puts an application around it.

    `port`: that of a server that has ended, to take its place.
    """
    config = config or ServerConfig()
    app = create_app(config, load)
    with bind(config.host, port) as listener:
        server = uvicorn.Server(uvicorn_config(wrap(app), config))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            sessions = app.state.sessions
            wait_for(lambda: server.started)
            if load is not None and waits:
                wait_for(lambda: sessions.model_status.state in ("ready", "failed"))
            yield Running(listener.getsockname()[1], app)
        finally:
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive()


def wait_for(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
