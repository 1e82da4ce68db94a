"""The tests of commands and files that need no look into the cluster, in sandboxes of a real one."""

from __future__ import annotations

import pytest

from tests.integrations.remote import test_commands, test_files

pytestmark = pytest.mark.k8s

# The path of the test's own machine is not that of the image.
_LOCAL = {"test_the_path_has_the_workspaces_programs_and_the_sandboxs_own"}

for module in (test_commands, test_files):
    for name, function in vars(module).items():
        if name.startswith("test_") and "shared_key" in getattr(function, "__annotations__", {}) and name not in _LOCAL:
            globals()[name] = function


def test_the_tests_of_the_emulated_cluster_are_here() -> None:
    assert len([name for name in globals() if name.startswith("test_")]) > 20
