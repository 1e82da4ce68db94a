"""The command: ``python -m deploy.check [FOLDER…]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deploy.check.checking import check, needs, renderings
from deploy.check.render import RenderError, render

DEPLOY = Path(__file__).resolve().parent.parent


def main(arguments: list[str] | None = None) -> int:
    """Check overlays, print what is wrong, and say by the exit code whether anything is."""
    parser = argparse.ArgumentParser(prog="python -m deploy.check", description="Check the manifests of overlays.")
    parser.add_argument(
        "overlays", nargs="*", type=Path, help="folders of overlays; all of the project if none is given"
    )
    given = parser.parse_args(arguments)
    wrong = 0
    try:
        for manifests in (render(folder) for folder in given.overlays) if given.overlays else renderings(DEPLOY):
            findings = check(manifests)
            wrong += len(findings)
            there = needs(manifests)
            words = f"{len(findings)} wrong" if findings else "good"
            sys.stdout.write(f"{manifests.name}: {len(manifests.objects)} objects, {words}\n")
            if there:
                sys.stdout.write(f"  expects in its namespace: {', '.join(there)}\n")
            for finding in findings:
                sys.stdout.write(f"  {finding}\n")
    except RenderError as error:
        sys.stderr.write(f"deploy-check: {error}\n")
        return 2
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
