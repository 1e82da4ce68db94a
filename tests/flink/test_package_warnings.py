"""Warnings of packages that users cannot act on are not shown, and all others are."""

from __future__ import annotations

import subprocess
import sys

import pytest

SHOWN = """
import sys
import warnings

from flink_skills import AgentsExecutionEnvironment

text, category, name = sys.argv[1:]
if name.endswith(".py"):
    warnings.warn_explicit(text, getattr(__builtins__, category), name, 3)
else:
    warnings.warn_explicit(text, getattr(__builtins__, category), name + ".py", 3, module=name)
"""
GRPC = "grpcio < 1.83.0 does not support Post-Quantum Cryptography (PQC). Support is deprecated."
PYTHON = "You are using a Python version (3.11.7) which Google will stop supporting"
ESCAPE = "invalid escape sequence '\\S'"


def shown(*words: str, options: tuple[str, ...] = ()) -> bool:
    command = [sys.executable, *options, "-c", SHOWN, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return words[0] in done.stderr


@pytest.mark.parametrize(
    ("text", "category", "name", "other"),
    [
        (GRPC, "FutureWarning", "google.auth.transport.grpc", "google.auth.transport.requests"),
        (PYTHON, "FutureWarning", "google.api_core._python_version_support", "users_module"),
        (ESCAPE, "SyntaxWarning", "/venv/lib/docopt.py", "/job/my_docopt.py"),
    ],
)
def test_only_those_of_one_message_and_one_module_are_ignored(text: str, category: str, name: str, other: str) -> None:
    assert not shown(text, category, name)
    assert shown(text, category, other)
    assert shown("another message", category, name)
    # The filter of the user takes precedence.
    assert shown(text, category, name, options=("-W", "default"))
