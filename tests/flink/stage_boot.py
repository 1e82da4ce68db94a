"""PyFlink's own boot of a Python stage in a local job, without Apache Beam, whose import takes 4 s.

In a local job that process only asks the client's process to run the stage.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
import types

# Packages whose own code is for the process that runs the stage.
PACKAGES = ("apache_beam", "pyflink.fn_execution", "pyflink.fn_execution.beam")


def without_contents(name: str) -> None:
    """Put a package in place whose modules can be imported and whose own code has not run."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    package = types.ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations or ())
    sys.modules[name] = package


if __name__ == "__main__":
    # The folder of this script, whose modules are none of PyFlink's.
    del sys.path[0]
    for package in PACKAGES:
        without_contents(package)
    _, _, boot, *sys.argv[1:] = sys.argv
    runpy.run_module(boot, run_name="__main__", alter_sys=True)
