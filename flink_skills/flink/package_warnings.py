"""Warnings of packages that PyFlink loads, and that its users cannot act on."""

from __future__ import annotations

import sys
import warnings

__all__ = ["ignore_package_warnings"]

# PyFlink imports all of Apache Beam, and Beam the clients of Google Cloud, whose versions Beam pins: the start of the
# message, and the module that issues it.
_IGNORED: tuple[tuple[str, type[Warning], str], ...] = (
    (r"grpcio < \S+ does not support Post-Quantum Cryptography", FutureWarning, r"google\.auth\.transport\.grpc$"),
    (
        r"You are using a (non-supported )?Python version",
        FutureWarning,
        r"google\.api_core\._python_version_support$",
    ),
    # While Python 3.12 compiles it; the compiler knows the file only.
    (r"invalid escape sequence", SyntaxWarning, r".*[/\\]docopt$"),
)


def ignore_package_warnings() -> None:
    """Ignore these warnings, unless the user has a filter for them, such as ``python -W default``."""
    for message, category, module in _IGNORED:
        # Last: any other filter takes precedence.
        warnings.filterwarnings("ignore", message, category, module, append=True)
    if sys.version_info >= (3, 12):
        _ignore_late_stop()


def _ignore_late_stop() -> None:
    """Ignore that PyFlink stops its loopback server when Python exits.

    The stop needs a thread, which Python does not start at that time. The process ends anyway.
    """
    show = sys.unraisablehook

    def show_others(error: sys.UnraisableHookArgs) -> None:
        stopped = getattr(error.object, "func", None)
        is_server = getattr(stopped, "__module__", "") == "grpc._server"
        if not (is_server and isinstance(error.exc_value, RuntimeError)):
            show(error)

    sys.unraisablehook = show_others
