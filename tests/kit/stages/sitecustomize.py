"""Let the Python processes of Flink jobs start quickly: this folder is in the ``PYTHONPATH`` of tests with Flink.

Apache Beam imports the clients of all object stores that are installed. They take half of its import, 1.7 s of CPU time
in each process, and PyFlink does not use them. In a local job, a process that PyFlink starts for a stage only asks the
process of the client to run the stage, and needs nothing of Beam but messages.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types

_CLIENTS = ("aws", "azure", "gcp", "hadoopfilesystem")
# Packages whose own code is for the process that runs the stage.
_OF_STAGES = ("apache_beam", "pyflink.fn_execution", "pyflink.fn_execution.beam")


def _without_contents(name: str) -> None:
    """Put a package in place whose modules can be imported and whose own code has not run."""
    spec = importlib.util.find_spec(name)
    if spec is not None:
        package = types.ModuleType(name)
        package.__path__ = list(spec.submodule_search_locations or ())
        sys.modules[name] = package


for _client in _CLIENTS:
    # An import of it raises ImportError, as where the client is not installed.
    sys.modules.setdefault(f"apache_beam.io.{_client}", None)  # type: ignore[arg-type]
if "pyflink.fn_execution.beam.beam_boot" in sys.orig_argv and "PYTHON_LOOPBACK_SERVER_ADDRESS" in os.environ:
    for _package in _OF_STAGES:
        _without_contents(_package)
