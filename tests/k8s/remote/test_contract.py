"""The contract of all backends, in sandboxes of a real cluster."""

from __future__ import annotations

import pytest

from flink_skills.execution import ExecutionBackend
from flink_skills.integrations.remote import RemoteBackend
from flink_skills.testing import ExecutionBackendContract
from tests.k8s.remote.conftest import settings
from tests.k8s.remote.sandboxes import Sandboxes

pytestmark = pytest.mark.k8s


class TestRemote(ExecutionBackendContract):
    local = False

    @pytest.fixture
    def backend(self, sandboxes: Sandboxes) -> ExecutionBackend:
        return RemoteBackend(settings(sandboxes), environ={})
