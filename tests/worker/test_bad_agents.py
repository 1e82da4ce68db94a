"""Faults of agents in their worker process are named, end within limits and corrupt no frame.

Examines the internals of worker.frames on purpose.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from flink_skills.manager import SkillScope
from flink_skills.testing import Call, Reply, Rule, ScriptedModelServer
from flink_skills.worker import frames
from tests.flink.agents import Scripted
from tests.kit.skills import write_skill
from tests.kit.waiting import wait_until
from tests.worker.bad_agents import Unruly
from tests.worker.bridge import DEADLINE, Bridge
from tests.worker.test_worker import bridge

__all__ = ["bridge"]


def answers(bridge: Bridge, turn: int = 99) -> bool:
    bridge.turn(turn, "well", key='"other"')
    ended = bridge.end()
    return ended["turn"] == turn and ended["outputs"] == [("", "well")]


def test_a_blocked_event_loop_is_named_with_its_stack_and_ended(bridge: Bridge) -> None:
    bridge.open(Unruly, **{"skills.worker.block-warning": "1 s", "skills.worker.max-block": "3 s"})
    bridge.turn(1, "wait", key='"patient"')
    bridge.turn(2, "sleep", key='"order-7"', number=4)
    assert bridge.process.wait(DEADLINE) == 81
    log = bridge.stderr()
    assert 'agent unruly, key "order-7", turn 4 has blocked the worker\'s event loop for 1 s' in log
    assert "while this worker has 2 turns" in log
    assert "bad_agents.py" in log and "time.sleep(3600)" in log
    assert "blocked for 3 s (skills.worker.max-block" in log


def test_a_loop_that_is_blocked_with_pythons_lock_held_is_ended_with_its_stack(bridge: Bridge) -> None:
    bridge.open(Unruly, **{"skills.worker.max-block": "1 s"})
    bridge.turn(1, "regular_expression")
    assert bridge.process.wait(DEADLINE) == 1
    log = bridge.stderr()
    assert "Timeout" in log and "in do_regular_expression" in log


def test_a_ping_is_answered_while_a_turn_waits(bridge: Bridge) -> None:
    bridge.open(Unruly)
    bridge.turn(1, "wait")
    for _ in range(2):
        bridge.send(frames.PING)
        assert bridge.receive() == (frames.PONG, b"")


def test_lone_surrogates_of_a_key_arrive_as_the_jvm_has_them(bridge: Bridge) -> None:
    bridge.open(Unruly)
    for turn, key in enumerate(('"a\ud800"', '"a\udc00"', '"a?"')):
        bridge.turn(turn, "key", key=key)
        assert bridge.end()["outputs"] == [("", ascii(key[1:-1]))]


def test_the_time_of_a_turn_bounds_how_long_it_may_block(bridge: Bridge) -> None:
    bridge.open(Unruly, **{"skills.turn.timeout": "2 s"})
    bridge.turn(1, "sleep")
    assert bridge.process.wait(DEADLINE) == 81


def test_a_worker_that_was_stopped_for_a_while_is_not_blocked(bridge: Bridge, tmp_path: Path) -> None:
    limits = {"skills.worker.block-warning": "1 s", "skills.worker.max-block": "2 s"}
    bridge.open(Unruly, **limits)
    bridge.turn(1, "wait")
    assert answers(bridge)
    (tmp_path / "other").mkdir()
    other = Bridge(tmp_path / "other")
    try:
        other.open(Unruly, **limits)
        bridge.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(bridge.process.pid).status() == psutil.STATUS_STOPPED, bridge.stderr)
        # The pause is as long as another worker with these limits may block.
        other.turn(1, "sleep")
        assert other.process.wait(DEADLINE) == 81
    finally:
        other.stop()
    bridge.process.send_signal(signal.SIGCONT)
    assert answers(bridge, 100)
    assert "blocked" not in bridge.stderr()


def test_a_worker_over_its_memory_is_ended(bridge: Bridge) -> None:
    bridge.open(Unruly, **{"skills.worker.max-memory": "400 mb"})
    assert answers(bridge)
    bridge.turn(1, "leak")
    assert bridge.process.wait(DEADLINE) == 82
    assert "more than skills.worker.max-memory = 400 MiB; its 1 turn will run in" in bridge.stderr()


def test_a_worker_has_the_memory_that_the_task_manager_says(bridge: Bridge) -> None:
    bridge.open(Unruly, memory=400 << 20)
    assert answers(bridge)
    bridge.turn(1, "leak")
    assert bridge.process.wait(DEADLINE) == 82
    assert "more than skills.worker.max-memory = 400 MiB" in bridge.stderr()


def test_a_forked_process_that_comes_back_is_ended_and_breaks_nothing(bridge: Bridge) -> None:
    bridge.open(Unruly)
    bridge.turn(1, "fork")
    assert bridge.end()["outputs"] == [("", "parent")]
    wait_until(lambda: "os.fork()" in bridge.stderr(), bridge.stderr)
    # Threads of the worker still wake its loop.
    for turn in range(2, 12):
        assert answers(bridge, turn)
    bridge.process.kill()
    with pytest.raises(EOFError):
        bridge.receive()


@pytest.mark.skipif(sys.platform != "linux", reason="the process tree of another system is not read")
def test_processes_that_user_code_detached_end_with_the_worker(bridge: Bridge) -> None:
    bridge.open(Unruly)
    bridge.turn(1, "leave_daemons")
    ((_, pids),) = bridge.end()["outputs"]
    daemons = [psutil.Process(pid) for pid in pids]
    assert len(daemons) == 2
    bridge.send(frames.CLOSE)
    assert bridge.process.wait(DEADLINE) == 0
    # An ended orphan is a zombie until the init process reaps it.
    wait_until(lambda: not any(_runs(daemon) for daemon in daemons), bridge.stderr)
    assert "user code left processes running" in bridge.stderr()


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_what_is_rude_breaks_no_frame_and_what_cannot_work_is_an_error_record(bridge: Bridge) -> None:
    bridge.open(Unruly)
    for number, what in enumerate(("print", "thread", "large")):
        bridge.turn(number, what, key=f'"{what}"')
        assert bridge.end()["status"] == 0
    for what, said in {"sys_exit": "raise an exception instead", "unpicklable": "emit plain data"}.items():
        bridge.turn(10, what, key=f'"{what}"')
        ((tag, record),) = bridge.end()["outputs"]
        assert (tag, record["event"]) == ("errors", what)
        assert said in record["error"]
        assert answers(bridge)
    bridge.send(frames.CLOSE)
    # Also with a thread that never ends.
    assert bridge.process.wait(DEADLINE) == 0


def test_an_agent_that_closes_the_pipes_ends_its_worker_at_once(bridge: Bridge) -> None:
    bridge.open(Unruly)
    bridge.turn(1, "close_descriptors")
    bridge.process.wait(DEADLINE)


@contextmanager
def no_new_descriptors(pid: int) -> Iterator[None]:
    """A process keeps the descriptors that it has and gets no more meanwhile."""
    process = psutil.Process(pid)
    soft, hard = process.rlimit(psutil.RLIMIT_NOFILE)
    process.rlimit(psutil.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        process.rlimit(psutil.RLIMIT_NOFILE, (soft, hard))


def failure(bridge: Bridge, turn: int, event: str) -> str:
    """What a turn of a key of its own says, which must fail."""
    bridge.turn(turn, event, key=f'"{event} {turn}"')
    ended = bridge.end()
    ((tag, record),) = ended["outputs"]
    assert (ended["turn"], tag, record["event"]) == (turn, "errors", event)
    return str(record["error"])


def success(bridge: Bridge, turn: int, event: str) -> str:
    bridge.turn(turn, event, key=f'"{event} {turn}"')
    ended = bridge.end()
    ((tag, output),) = ended["outputs"]
    assert (ended["turn"], tag) == (turn, "")
    return str(output["answer"])


COMMAND = [
    Rule(
        Reply(tool_calls=(Call("execute_shell_command", {"command": "echo from a command"}),)),
        last_user="command",
        tool_results=0,
    ),
    Rule(Reply("{last_tool}"), last_user="command"),
]
# Longer than it takes to begin another one.
SLOW_COMMAND = [
    Rule(
        Reply(tool_calls=(Call("execute_shell_command", {"command": "sleep 2; echo from a command"}),)),
        last_user="slow",
        tool_results=0,
    ),
    Rule(Reply("{last_tool}"), last_user="slow"),
]


def open_commands(bridge: Bridge, server: ScriptedModelServer, folder: Path) -> None:
    """Open an agent whose model runs commands."""
    write_skill(folder / "skills" / "greet")
    options = {
        "skills.shell.backend": "hygiene",
        "skills.shell.min-isolation": "HYGIENE",
        "skills.store.dir": str(folder / "store"),
        "skills.model.max-retries": "1",
        "skills.model.retry-backoff": "50 ms",
    }
    scope = SkillScope(level="job", paths=(str(folder / "skills"),))
    assert bridge.open(Scripted(server.url), scopes=[scope], **options)[0] == frames.OPENED


def test_turns_that_need_a_descriptor_say_so_when_there_is_none_and_all_others_go_on(
    bridge: Bridge, tmp_path: Path
) -> None:
    with ScriptedModelServer([*COMMAND, Rule(Reply(hang=True), last_user="hangs"), Rule(Reply("fine"))]) as server:
        open_commands(bridge, server, tmp_path)
        bridge.open(Unruly, plan=2)
        # From now on the model has a connection that is kept.
        assert "from a command" in success(bridge, 1, "command")
        with no_new_descriptors(bridge.process.pid):
            said = failure(bridge, 2, "command")
            assert "Too many open files" in said and "raise the limit on open files (ulimit -n)" in said
            bridge.turn(3, "hangs", key='"hangs"')
            wait_until(lambda: server.stats()["in_flight"] == 1, bridge.stderr)
            said = failure(bridge, 4, "another connection")
            assert "the worker has no file descriptors left" in said
            assert "raise the limit on open files (ulimit -n)" in said
            assert "given up after 2 attempts" in said
            bridge.turn(5, "well", plan=2, key='"other"')
            assert bridge.end()["outputs"] == [("", "well")]
        assert success(bridge, 6, "another connection") == "fine"
        assert "from a command" in success(bridge, 7, "command")
    assert "defect in the worker" not in bridge.stderr()


def test_commands_go_on_when_their_launcher_had_no_descriptors(bridge: Bridge, tmp_path: Path) -> None:
    with ScriptedModelServer([*COMMAND, *SLOW_COMMAND]) as server:
        open_commands(bridge, server, tmp_path)
        assert "from a command" in success(bridge, 1, "command")
        children = psutil.Process(bridge.process.pid).children()
        (launcher,) = (child for child in children if "zygote" in " ".join(child.cmdline()))
        with no_new_descriptors(launcher.pid):
            # The process of the first command runs one of them. The other one needs a new process.
            for turn in (2, 3):
                bridge.turn(turn, "slow", key=f'"slow {turn}"')
            ends = [str(output["answer"]) for _ in range(2) for _, output in bridge.end()["outputs"]]
            assert sorted("from a command" in said for said in ends) == [False, True]
            assert any("ulimit -n" in said for said in ends)
        assert "from a command" in success(bridge, 4, "command")
