"""The ``flink-skills`` command."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line and return the exit code."""
    try:
        from flink_skills.cli.app import run_app
    except ImportError as error:
        sys.stderr.write(
            f"flink-skills: {error.name} is not installed. Install it with: pip install 'flink-skills[cli]'\n"
        )
        return 2
    return run_app()
