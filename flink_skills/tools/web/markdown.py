"""HTML to Markdown in a separate process, which the kernel ends at the time limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from typing import IO, cast

from flink_skills.tools.web import page_conversion
from flink_skills.tools.web.failures import WebError

__all__ = ["to_markdown"]

_SECONDS = 5.0
# Processes that wait for the next page. Others end after their page.
_KEPT = 1
# The process gets the import path of this one, and no environment: its libraries read hostile text.
_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; import runpy; runpy.run_path(sys.argv[1], run_name='__main__')"


def to_markdown(text: str, base_url: str, *, seconds: float = _SECONDS) -> str:
    """Return the page as Markdown, without what is not shown, and with absolute links.

    The libraries hold Python's lock, and a hostile page takes them minutes. So they run in another process, which the
    kernel ends after ``seconds`` of CPU time. The call blocks: call it in a thread.

    Raises :class:`WebError` for a page that takes longer, or that cannot be converted.

    >>> to_markdown("<h1>Hi</h1><script>x()</script><p>See <a href='b'>b</a>.", "https://example.org/a")
    '# Hi\\n\\nSee [b](https://example.org/b).'
    """
    answer = _processes.answer({"page": text, "base_url": base_url, "seconds": seconds})
    if answer is None:
        raise WebError(
            "DECODE_ERROR",
            f"the page takes more than {seconds:g} s of CPU time to convert to text, or ends it; use another page",
        )
    if "problem" in answer:
        raise WebError("DECODE_ERROR", f"{answer['problem']}; use another page")
    return answer["markdown"]


class _Processes:
    """Keeps a process between pages, because its start takes longer than most pages."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[subprocess.Popen[bytes]] = []
        os.register_at_fork(after_in_child=self._forget)

    def answer(self, request: dict[str, object]) -> dict[str, str] | None:
        """Return the answer of a process, or None if it ended before."""
        with self._lock:
            process = self._idle.pop() if self._idle else None
        process = process if process and process.poll() is None else _start()
        stdin, stdout = cast("tuple[IO[bytes], IO[bytes]]", (process.stdin, process.stdout))
        line = b""
        try:
            with suppress(BrokenPipeError):
                stdin.write(json.dumps(request).encode("ascii") + b"\n")
                stdin.flush()
            line = stdout.readline()
        finally:
            # An exception in this thread leaves an answer that belongs to no later request.
            self._give_back(process, keep=line.endswith(b"\n"))
        return json.loads(line) if line.endswith(b"\n") else None

    def _give_back(self, process: subprocess.Popen[bytes], *, keep: bool) -> None:
        with self._lock:
            if keep and len(self._idle) < _KEPT:
                self._idle.append(process)
                return
        process.kill()
        with process:  # closes the pipes and waits for the end
            pass

    def _forget(self) -> None:
        self._lock, self._idle = threading.Lock(), []


def _start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-c", _PROGRAM, page_conversion.__file__, *filter(None, sys.path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}, bufsize=-1)


_processes = _Processes()
