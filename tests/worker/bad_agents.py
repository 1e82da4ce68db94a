"""Agents that do to their worker what no agent should. Each does it for events that ask for it, and answers others."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from flink_skills import Agent


class Unruly(Agent):
    """Does what the event says."""

    name = "unruly"

    async def on_event(self, event: Any, ctx: Any) -> Any:
        what = event if isinstance(event, str) else event[0]
        return await getattr(self, f"do_{what}")(ctx)

    async def do_well(self, ctx: Any) -> Any:
        return "well"

    async def do_key(self, ctx: Any) -> Any:
        return ascii(ctx.key)

    async def do_wait(self, ctx: Any) -> Any:
        await asyncio.sleep(3600)

    async def do_sleep(self, ctx: Any) -> Any:
        time.sleep(3600)  # noqa: ASYNC251 - that is the mistake

    async def do_hang(self, ctx: Any) -> Any:
        await asyncio.gather(*(ctx.step(f"hang{number}", threading.Event().wait) for number in range(70)))

    async def do_swallow(self, ctx: Any) -> Any:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    async def do_stop_iteration(self, ctx: Any) -> Any:
        return await ctx.step("next", next, iter(()))

    async def do_regular_expression(self, ctx: Any) -> Any:
        return re.match(r"(a+)+$", "a" * 60 + "!")

    async def do_leak(self, ctx: Any) -> Any:
        kept = []
        while True:
            kept.append(bytearray(8 << 20))
            await asyncio.sleep(0.01)

    async def do_fork(self, ctx: Any) -> Any:
        return "child" if os.fork() == 0 else "parent"

    async def do_leave_daemons(self, ctx: Any) -> Any:
        ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(3600)"
        started = [
            subprocess.Popen(  # noqa: ASYNC220
                [sys.executable, "-I", "-S", "-c", program],
                env={},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            for program in ("import time; time.sleep(3600)", ignore)
        ]
        return [process.pid for process in started]

    async def do_sys_exit(self, ctx: Any) -> Any:
        sys.exit(3)

    async def do_stop(self, ctx: Any) -> Any:
        os.kill(os.getpid(), signal.SIGSTOP)

    async def do_os_exit(self, ctx: Any) -> Any:
        os._exit(7)

    async def do_close_descriptors(self, ctx: Any) -> Any:
        os.closerange(3, 256)
        return "closed"

    async def do_print(self, ctx: Any) -> Any:
        print("p" * 100_000)
        os.write(1, b"\x00\x00\x00\x05 like a frame")
        sys.stdout.write("no line end")
        return "printed"

    async def do_thread(self, ctx: Any) -> Any:
        threading.Thread(target=threading.Event().wait).start()
        return "started"

    async def do_unpicklable(self, ctx: Any) -> Any:
        return threading.Lock()

    async def do_large(self, ctx: Any) -> Any:
        return "x" * (20 << 20)
