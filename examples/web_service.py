"""A runtime beside a web service, in one Trio program.

    python examples/web_service.py
    curl -d Ada http://127.0.0.1:8080/

Each POST becomes a job, and the answer is the job's result. The same jobs can be watched over ARCP
at ws://127.0.0.1:7777/arcp. In a real service a Trio web framework, such as Quart-Trio under
Hypercorn, takes the place of `answer`.
"""

from __future__ import annotations

import signal
import sys
from functools import partial

import h11
import trio

import arcp_trio

runtime = arcp_trio.Runtime(auth=arcp_trio.StaticTokens({"s3cret": "web"}))


@runtime.agent("greeter")
async def greeter(job: arcp_trio.JobContext) -> arcp_trio.Json:
    """Greet the job's input."""
    return f"hello {job.input}"


async def answer(client: arcp_trio.Client, stream: trio.SocketStream) -> None:
    """Answer one HTTP request."""
    http = h11.Connection(h11.SERVER)
    body = b""
    while not isinstance(event := http.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            http.receive_data(await stream.receive_some())
        elif isinstance(event, h11.Data):
            body += event.data
    job = await client.submit("greeter", body.decode())
    text = f"{await job.result()}\n".encode()
    headers = [("content-length", str(len(text))), ("connection", "close")]
    for part in (
        h11.Response(status_code=200, headers=headers),
        h11.Data(text),
        h11.EndOfMessage(),
    ):
        await stream.send_all(http.send(part) or b"")


async def main(web_port: int = 8080, arcp_port: int = 7777) -> None:
    """Run both servers until Ctrl-C or SIGTERM."""
    async with runtime, trio.open_nursery() as nursery:
        await nursery.start(arcp_trio.serve, runtime, "127.0.0.1", arcp_port)
        url = f"ws://127.0.0.1:{arcp_port}/arcp"
        async with arcp_trio.connect(url, token="s3cret") as client:
            web = partial(answer, client)
            await nursery.start(partial(trio.serve_tcp, web, web_port, host="127.0.0.1"))
            print(f"http://127.0.0.1:{web_port}/")
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                await anext(signals)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(partial(main, *map(int, sys.argv[1:])))
