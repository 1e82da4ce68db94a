"""Measures for how long a hostile model server stops the other turns of a worker.

Each case is one request to a server in another process. During this time a task records the gaps of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from benchmarks import report
from flink_skills import ToolSpec
from flink_skills.errors import ModelError
from flink_skills.models import ModelRequest, ModelSetup, UserMessage, create_model

_STEP = 0.001


def _call(arguments: str, number: int = 0) -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": "weather", "arguments": arguments}}


def _body(message: dict[str, Any], **more: Any) -> bytes:
    return json.dumps(
        {"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], **more}
    ).encode()


def _events(*deltas: dict[str, Any]) -> bytes:
    choices = [*({"index": 0, "delta": delta} for delta in deltas), {"index": 0, "delta": {}, "finish_reason": "stop"}]
    return b"".join(b"data: %b\n\n" % json.dumps({"id": "c", "choices": [of]}).encode() for of in choices)


#: Responses of the server by name, as functions of the share of their size.
CASES: dict[str, Callable[[float], bytes]] = {
    "an answer": lambda share: _body({"content": "hi"}),
    "60 MB of []": lambda share: b"[" + b"[]," * int(20_000_000 * share) + b"[]]",
    "16 MB of text": lambda share: _body({"content": "\n" * int(8_000_000 * share)}),
    "16 MB of quotes": lambda share: _body({"content": '",' * int(5_000_000 * share)}),
    "16 MB of integers": lambda share: b"[%b9]" % (b"9" * 4_300 + b",") * int(3_700 * share),
    "240,000 names": lambda share: _body({"content": "x"}, more={str(n): n for n in range(int(240_000 * share))}),
    "100,000 levels": lambda share: b"[" * int(100_000 * share),
    "100,000 calls": lambda share: _body({"tool_calls": [_call("{}", n) for n in range(int(100_000 * share))]}),
    "arguments with 330,000 lists": lambda share: _body(
        {"tool_calls": [_call('{"city": [' + "[]," * int(330_000 * share) + "[]]}")]}
    ),
    "a text with 300,000 lists": lambda share: _body({"content": "[" + "[]," * int(300_000 * share) + "[]]"}),
    "40,000 pieces of calls in an event": lambda share: _events(
        {"tool_calls": [{"index": n, **_call("{}", n)} for n in range(int(40_000 * share))]}
    ),
    "40,000 events": lambda share: _events(*[{"content": "x"}] * int(40_000 * share)),
    "100 MB of data:": lambda share: b"data:\n" * int(17_000_000 * share),
    "100 MB of comments": lambda share: b": x\n" * int(25_000_000 * share),
    "100 MB of events": lambda share: b"data:x\n\n" * int(12_500_000 * share),
    "90,000 details of reasoning": lambda share: _events(
        *[{"reasoning_details": [{"index": n, "text": "x"} for n in range(1_000)]}] * int(90 * share)
    ),
}


def measure(repeat: int, only: str, *, quick: bool = False) -> None:
    """Measure ``repeat`` times, and write and print the medians."""
    machine = report.machine()
    names = [f"{name}, {way}" for name in CASES for way in ("whole", "streamed") if only in name]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(repeat):
        for name in names:
            print(f"round {number + 1}: {name}", file=sys.stderr)
            runs[name].append(report.run_job("benchmarks.hostile_models", name, {"share": 0.01 if quick else 1.0}))
    results = {name: report.medians(of, 3) for name, of in runs.items()}
    print(table(results))
    if not only and not quick:
        content = {"machine": machine, "setting": {"repeat": repeat}, "medians": results, "runs": runs}
        report.write("hostile_models", content, table(results))


def table(results: dict[str, dict[str, Any]]) -> str:
    """The medians as a Markdown table."""
    lines = ["| a server sends | worst gap, ms | seconds | resident, MB |", "|---|---|---|---|"]
    for name, of in results.items():
        lines.append(f"| {name} | {of['gap_ms']:.1f} | {of['seconds']:.2f} | {of['resident_mb']:.0f} |")
    return "\n".join(lines)


async def _measure(url: str, *, stream: bool) -> dict[str, Any]:
    gap, last = 0.0, time.perf_counter()

    async def watch() -> None:
        nonlocal gap, last
        while True:
            await asyncio.sleep(_STEP)
            now = time.perf_counter()
            gap, last = max(gap, now - last - _STEP), now

    model = create_model(ModelSetup("openai-compatible", "stub", base_url=url))
    tools = [ToolSpec("weather", "Weather of a city.", {"type": "object"})]
    request = ModelRequest("", [UserMessage("q")], tools, timeout=60)

    async def ask() -> None:
        try:
            await (model.stream(request, lambda delta: None) if stream else model.request(request))
        except ModelError as error:
            print(error, file=sys.stderr)

    # The first request imports modules.
    await ask()
    task = asyncio.create_task(watch())
    await asyncio.sleep(0.05)
    gap, began = 0.0, time.perf_counter()
    await ask()
    seconds = time.perf_counter() - began
    await asyncio.sleep(2 * _STEP)
    task.cancel()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"gap_ms": gap * 1000, "seconds": seconds, "resident_mb": resident}


@contextlib.contextmanager
def _server(case: str, share: float) -> Iterator[str]:
    """Serve a case in another process. Yield the base URL."""
    command = [sys.executable, "-m", "benchmarks.hostile_models", "--serve", case, str(share)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def _serve(case: str, share: float) -> None:
    data = CASES[case](share)
    kind = "text/event-stream" if data.startswith((b"data:", b":")) else "application/json"

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            # The client closes the connection at its bound.
            with contextlib.suppress(ConnectionError):
                self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()


def main(name: str, request: dict[str, Any]) -> dict[str, Any]:
    """Measure one case against a server in another process."""
    case, _, way = name.rpartition(", ")
    with _server(case, request["share"]) as url:
        return asyncio.run(_measure(url, stream=way == "streamed"))


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        _serve(sys.argv[2], float(sys.argv[3]))
    else:
        print("RESULT " + json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))), flush=True)
