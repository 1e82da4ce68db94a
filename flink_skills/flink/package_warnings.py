"""Warnings of packages that PyFlink loads, and that its users cannot act on."""

from __future__ import annotations

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
