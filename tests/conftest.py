from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.passable import passable_folder

if os.geteuid() == 0:
    # Root runs commands as another user, who could not pass the folders that pytest makes for root alone.
    @pytest.fixture
    def tmp_path() -> Iterator[Path]:
        with passable_folder() as folder:
            yield folder


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # The JVM of a process lives on after the test that needed it first, and must not live in that test's folder.
    if item.get_closest_marker("flink") is not None:
        from pyflink.java_gateway import get_gateway

        get_gateway()


@pytest.fixture(autouse=True)
def _environment_of_its_own() -> Iterator[None]:
    # A mini cluster runs Python functions in the process of the test, and gives it the environment of a worker:
    # JAVA_HOME is empty then, and no further JVM can be started from there.
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)
