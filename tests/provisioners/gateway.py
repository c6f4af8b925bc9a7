"""A stand-in for a LiteLLM gateway, with real HTTP, which behaves as its documentation says."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from typing import Any, Final

import h11
import trio
from attrs import define, field, frozen

MASTER_KEY: Final = "sk-master-0123456789abcdef"

Answer = tuple[int, Any]


@frozen(kw_only=True)
class Fault:
    """A fault in the answer to one request."""

    hold: trio.Event | None = None
    """If set, the request is not handled before this event."""
    answer: Answer | None = None
    """An answer that is sent without doing anything; a string is a body that is not JSON."""
    cut: bool = False
    """Whether the connection closes before the answer is sent."""


@define(eq=False)
class Key:
    """A virtual key as the gateway has stored it."""

    value: str
    asked: dict[str, Any]
    spend: float = 0.0

    @property
    def hash(self) -> str:
        """The hash under which the gateway knows the key."""
        return sha256(self.value.encode()).hexdigest()


@define(eq=False)
class Gateway:
    """The gateway: its keys, the requests so far, and the faults of the next ones."""

    url: str
    keys: list[Key] = field(factory=list)
    requests: list[tuple[str, str, Any]] = field(factory=list)
    """The bearer token, path and body of each request."""
    faults: deque[Fault] = field(factory=deque)
    arrived: trio.Event = field(factory=trio.Event)
    minted: trio.Event = field(factory=trio.Event)
    made: int = 0

    def bodies(self, path: str) -> list[Any]:
        """Return the bodies that were posted to a path."""
        return [body for _, to, body in self.requests if to == path]

    def answer(self, bearer: str, path: str, body: Any) -> Answer:
        """Handle a request, and return the answer."""
        if path == "/v1/chat/completions":
            return self._complete(bearer, body)
        route, _, query = path.partition("?key=")
        if route not in {"/key/generate", "/key/delete", "/key/info"}:
            return 404, {"detail": "Not Found"}
        if bearer != MASTER_KEY:
            shown = f"sk-...{bearer[-4:]}, Key Hash (Token) ={sha256(bearer.encode()).hexdigest()}"
            text = f"Authentication Error, Invalid proxy server token passed. Received {shown}"
            return problem(401, "token_not_found_in_db", text, "key")
        if route == "/key/info":
            return self._info(query)
        return self._generate(body) if route == "/key/generate" else self._delete(body)

    def _generate(self, body: dict[str, Any]) -> Answer:
        alias = body.get("key_alias")
        if any(key.asked["key_alias"] == alias for key in self.keys):
            text = f"Key with alias '{alias}' already exists. Unique key aliases are required."
            return problem(400, "bad_request_error", text, "key_alias")
        self.made += 1
        key = Key(f"sk-minted-{self.made:020}", body)
        self.keys.append(key)
        self.minted.set()
        return 200, {**body, "key": key.value, "token": key.hash, "token_id": key.hash}

    def _info(self, key_hash: str) -> Answer:
        key = next((key for key in self.keys if key.hash == key_hash), None)
        if key is None:
            return problem(404, "not_found_error", "Key not found in database", "key")
        info = {"max_budget": key.asked.get("max_budget"), "spend": key.spend}
        return 200, {"key": key_hash, "info": info}

    def _delete(self, body: dict[str, Any]) -> Answer:
        keys, aliases = body.get("keys") or [], body.get("key_aliases") or []
        if not keys and not aliases:
            return 422, {"detail": [{"msg": "At least one of 'keys' or 'key_aliases'"}]}
        found = [
            key
            for key in self.keys
            if {key.value, key.hash} & set(keys) or (not keys and key.asked["key_alias"] in aliases)
        ]
        if not found:
            return problem(404, "not_found_error", "{'error': 'No keys found'}", "None")
        self.keys = [key for key in self.keys if key not in found]
        return 200, {"deleted_keys": keys or aliases}

    def _complete(self, bearer: str, body: dict[str, Any]) -> Answer:
        """Answer a call of a model: each costs a dollar, and a key without budget is refused."""
        key = next((key for key in self.keys if key.value == bearer), None)
        if key is None:
            return problem(401, "token_not_found_in_db", "Invalid proxy server token", "key")
        model, models = body["model"], key.asked["models"]
        if model not in models:
            text = f"key not allowed to access model. It can only access models={models}."
            return problem(403, "key_model_access_denied", text, "model")
        limit = key.asked.get("max_budget")
        if limit is not None and key.spend >= limit:
            text = f"Budget has been exceeded! Current cost: {key.spend}, Max budget: {limit}"
            return problem(429, "budget_exceeded", text, None)
        key.spend += 1
        return 200, {"model": model, "choices": []}

    async def attend(self, stream: trio.SocketStream) -> None:
        """Serve one request on a connection."""
        connection = h11.Connection(h11.SERVER)
        async with stream:
            bearer, path, body = await _receive(stream, connection)
            self.requests.append((bearer, path, body))
            fault = self.faults.popleft() if self.faults else Fault()
            self.arrived.set()
            if fault.hold is not None:
                await fault.hold.wait()
            status, answer = fault.answer or self.answer(bearer, path, body)
            if not fault.cut:
                await _send(stream, connection, status, answer)


def problem(status: int, kind: str, message: str, param: str | None) -> Answer:
    """Return an error in the gateway's form."""
    error = {"message": message, "type": kind, "param": param, "code": str(status)}
    return status, {"error": error}


@asynccontextmanager
async def open_gateway() -> AsyncGenerator[Gateway]:
    """Run a gateway on a free port."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    gateway = Gateway(f"http://127.0.0.1:{port}")
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, gateway.attend, [listener], name="gateway")
        yield gateway
        nursery.cancel_scope.cancel()


async def _receive(stream: trio.SocketStream, connection: h11.Connection) -> tuple[str, str, Any]:
    bearer = path = ""
    content = b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some())
        elif isinstance(event, h11.Request):
            path = event.target.decode()
            bearer = dict(event.headers).get(b"authorization", b"").decode().removeprefix("Bearer ")
        elif isinstance(event, h11.Data):
            content += event.data
        elif isinstance(event, h11.EndOfMessage):
            return bearer, path, json.loads(content or b"null")


async def _send(
    stream: trio.SocketStream, connection: h11.Connection, status: int, answer: Any
) -> None:
    content = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
    headers = [("Content-Length", str(len(content))), ("Connection", "close")]
    events = (
        h11.Response(status_code=status, headers=headers),
        h11.Data(data=content),
        h11.EndOfMessage(),
    )
    with suppress(trio.BrokenResourceError):  # a request is done even if its client has left
        await stream.send_all(b"".join(connection.send(event) or b"" for event in events))
