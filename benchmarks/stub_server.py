"""A model server that costs next to nothing: ``python -m benchmarks.stub_server --latency 0.5`` prints its base URL.

It answers each chat completion with the same bytes. A request with tools, and without a result of one, is answered with
a call of the first tool.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

ANSWER = "This is the answer of a model of no particular wisdom, about as long as a short answer is."


def _response(message: dict[str, object], finish: str) -> bytes:
    body = json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "stub",
            "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
        }
    ).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


_TEXT = _response({"content": ANSWER}, "stop")


def _call(body: bytes) -> bytes:
    tool = json.loads(body)["tools"][0]["function"]["name"]
    function = {"name": tool, "arguments": '{"article": "screw"}'}
    return _response(
        {"content": None, "tool_calls": [{"id": "call-1", "type": "function", "function": function}]}, "tool_calls"
    )


class _Connection(asyncio.Protocol):
    def __init__(self, latency: float) -> None:
        self._latency = latency
        self._received = b""
        self._call: bytes | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head = self._received.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self._received.lower().find(b"content-length:", 0, head)
        end = head + 4 + int(self._received[at + 15 : self._received.find(b"\r\n", at)])
        if len(self._received) < end:
            return
        body, self._received = self._received[head + 4 : end], self._received[end:]
        answer = _TEXT
        if b'"tools":' in body and b'"role":"tool"' not in body[body.rfind(b'"role":"user"') :]:
            answer = self._call = self._call or _call(body)
        if self._latency:
            asyncio.get_running_loop().call_later(self._latency, self._transport.write, answer)
        else:
            self._transport.write(answer)


@contextlib.contextmanager
def stub_server(latency: float) -> Iterator[str]:
    """Run the server in another process. Yield its base URL."""
    command = [sys.executable, "-m", "benchmarks.stub_server", "--latency", str(latency)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


async def _serve(latency: float) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Connection(latency), "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(parser.parse_args().latency))
