"""The backends of this machine keep to the contract of all backends, whoever the worker is."""

from __future__ import annotations

import os

import pytest

from flink_skills.execution import BackendSettings, CommandUser, ExecutionBackend, create_backend
from flink_skills.testing.execution import ExecutionBackendContract
from tests.execution.escape.conftest import start_or_skip
from tests.execution.escape.machine import COMMAND_USER

USER = CommandUser(COMMAND_USER, COMMAND_USER) if os.geteuid() == 0 else None


class _Local(ExecutionBackendContract):
    name: str
    user = USER

    @pytest.fixture
    def backend(self) -> ExecutionBackend:
        start_or_skip(self.name, USER)
        return create_backend(self.name, BackendSettings(user=USER))


class TestHygiene(_Local):
    name = "hygiene"


class TestLandlock(_Local):
    name = "landlock"


class TestBwrap(_Local):
    name = "bwrap"
