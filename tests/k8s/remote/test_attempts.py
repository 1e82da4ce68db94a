"""The attempts of the escape suite from inside a sandbox, with the worker and the attacked objects outside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.execution.escape.machine import Identity
from tests.execution.escape.probes import files, kernel, network, processes
from tests.execution.escape.probes.kit import ATTEMPTS
from tests.execution.escape.worker import WorkerProcess
from tests.execution.escape.world import World
from tests.k8s.remote.sandboxes import ENFORCED, Sandboxes

pytestmark = [
    pytest.mark.k8s,
    pytest.mark.skipif(not ENFORCED, reason="NETWORK_POLICY=none: commands have the network"),
]

MODULES = (files, kernel, network, processes)  # imported for their attempts
ROWS = sorted({one.row for one in ATTEMPTS.values()})
_IMAGE = ("read_an_entry_of_etc_that_is_not_granted", "read_below_var", "open_a_terminal_device")
# The supervisor and the runtime in the sandbox belong to the key, as its commands do.
_PROCESSES = ("open_the_memory_of_another_process", "trace_the_launcher", "see_whether_the_launcher_lives")
# A datagram leaves the process, and the network policy drops it: test_commands_cannot_connect.
_SENT = ("udp", "ask_a_name_server")
_OWN_NETWORK = ("bind_a_path", "bind_an_abstract_name", "bind_and_listen", "bind_udp", "listen_without_bind", "netlink")
# The kernel of the runtime class answers these, and the limits of the pod apply.
_KERNEL = (
    "vsock",
    "spare_itself_from_the_memory_killer",
    "a_larger_pipe",
    "a_table_of_futexes",
    "a_thread_with_descriptors_of_its_own",
    "an_instance_of_inotify",
    "asynchronous_input",
    "descriptors_of_one_thread",
    "file_without_a_name",
    "io_uring",
    "out_of_sight_by_a_larger_number",
    "pages_in_a_pipe",
    "rules_of_a_sandbox",
    "io_uring_by_another_architecture",
    "signal_by_another_architecture",
    "socket_of_another_architecture",
    "trace_by_another_architecture",
)
OF_THE_POD = frozenset((*_IMAGE, *_PROCESSES, *_SENT, *_OWN_NETWORK, *_KERNEL))
"""Attempts that reach only the sandbox itself, where the runtime class and the template decide."""


@pytest.fixture(scope="module")
def worker(sandboxes: Sandboxes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """A worker process whose commands run in sandboxes."""
    base = tmp_path_factory.mktemp("escape")
    outside = base / "outside"
    outside.mkdir(mode=0o700)
    canary = outside / "canary"
    canary.write_text(f"canary-{os.urandom(8).hex()}")
    me = os.geteuid()
    found = WorkerProcess("remote", Identity("same", me, me), Path(base), canary, sandboxes.options())
    found.python = "python3"  # that of the image
    yield found
    found.close()


def test_the_exceptions_name_attempts() -> None:
    assert set(ATTEMPTS) >= OF_THE_POD


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row{row:02d}")
def test_row(row: int, worker: WorkerProcess) -> None:
    attempts = [one for one in ATTEMPTS.values() if one.row == row]
    world = World(worker, attempts)
    try:
        outcome = world.attack()
        escaped = {name: evidence for name, evidence in outcome.items() if evidence and name not in OF_THE_POD}
        assert not escaped
        assert world.traces() == []
    finally:
        world.leave()
