from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.passable import passable_folder

_ENVIRONMENT = dict(os.environ)
_FOLDER = Path.cwd()

if os.geteuid() == 0:
    # Root runs commands as another user, who could not pass the folders that pytest makes for root alone.
    @pytest.fixture
    def tmp_path() -> Iterator[Path]:
        with passable_folder() as folder:
            yield folder


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if not any(item.iter_markers("flink")) and not any(item.iter_markers("cluster")):
        return
    # A mini cluster runs Python functions in the process of the test, and gives it the environment and the folder of a
    # worker: no further JVM can be started from there.
    for name in os.environ.keys() - _ENVIRONMENT.keys():
        if not name.startswith("PYTEST_"):
            del os.environ[name]
    os.environ.update(_ENVIRONMENT)
    os.chdir(_FOLDER)
    # The JVM of a process lives on after the test that needed it first, and must not live in that test's folder.
    if any(item.iter_markers("flink")):
        from pyflink.java_gateway import get_gateway

        get_gateway()
