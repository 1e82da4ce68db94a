from __future__ import annotations

import atexit
import functools
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills.execution.isolation import backend_choice
from flink_skills.execution.isolation.canaries import Findings, prove
from tests.kit.class_archives import client_options
from tests.kit.passable import passable_folder

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # the short sets of other Pythons run without it
    pass
else:
    # Property tests search for a moment, or for hours with HYPOTHESIS_PROFILE=nightly. The speed of generation depends
    # on the load of the machine, and is not checked.
    settings.register_profile("quick", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile(
        "nightly",
        max_examples=20_000,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    settings.load_profile("nightly" if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else "quick")

_FOLDER = Path.cwd()
# What PyFlink gives to a process of Python functions, and so also to that of a test with a mini cluster.
_OF_FUNCTIONS = {
    name: os.environ.get(name)
    for name in (
        "BOOT_LOG_DIR",
        "PYFLINK_GATEWAY_DISABLED",
        "PYTHONPATH",
        "PYTHON_LOOPBACK_SERVER_ADDRESS",
        "SEMI_PERSISTENT_DIRECTORY",
        "TABLE_LOCAL_TIME_ZONE",
        "_PYFLINK_CONN_INFO_PATH",
        "_PYTHON_WORKER_MEMORY_LIMIT",
        "_PYTHON_WORKING_DIR",
    )
}
# Every Python process of a job starts with ``sitecustomize`` of this folder.
_STAGES = Path(__file__).parent / "kit" / "stages"
_OF_FUNCTIONS["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_STAGES), _OF_FUNCTIONS["PYTHONPATH"])))

# A shell starts its background jobs with the first two ignored, and nohup a program with the third.
_MAY_BE_IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)

os.environ.setdefault("JVM_ARGS", client_options())

if os.geteuid() == 0:
    # Root runs commands as another user, who could not pass the folders that pytest makes for root alone.
    @pytest.fixture
    def tmp_path() -> Iterator[Path]:
        with passable_folder() as folder:
            yield folder


_PROVED: dict[str, Findings] = {}


@pytest.fixture
def proved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempt to break out of each backend once per process, for tests that open many workers.

    A worker makes these attempts whenever it opens, for half a second. The tests of isolation make them each time.
    """

    async def remember(backend: Any, workspaces: Any, settings: Any) -> Findings:
        known = f"{backend.name} {settings}"
        if known not in _PROVED:
            _PROVED[known] = await prove(backend, workspaces, settings)
        return _PROVED[known]

    monkeypatch.setattr(backend_choice, "prove", remember)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # A program inherits ignored signals but no handlers. With a handler that does nothing, this process still ignores
    # the signal, and the programs that tests start do not.
    for number in _MAY_BE_IGNORED:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _MAY_BE_IGNORED)
    if not any(item.iter_markers("flink")) and not any(item.iter_markers("cluster")):
        return
    # A mini cluster starts Python functions in the process of the test, maybe after the test: it leaves their variables
    # and folder behind, and no further JVM can be started with those. What fixtures have set stays.
    for name, value in _OF_FUNCTIONS.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    os.chdir(_FOLDER)
    # The JVM of a process lives on after the test that needed it first, and must not live in that test's folder.
    if any(item.iter_markers("flink")):
        from pyflink.java_gateway import get_gateway

        # A JVM that starts rolls the log file in its folder, also while another JVM writes to it.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FLINK_LOG_DIR", _java_logs())
            get_gateway()


@functools.cache
def _java_logs() -> str:
    """The folder of the logs of this process's own JVM, until this process ends."""
    folder = tempfile.mkdtemp(prefix="flink-logs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
