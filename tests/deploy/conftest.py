"""What the overlays render to, once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.check.checking import renderings
from deploy.check.finding import Manifests

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"


@pytest.fixture(scope="session")
def rendered() -> dict[str, Manifests]:
    """Overlays, and components that no overlay has, by name."""
    return {manifests.name: manifests for manifests in renderings(DEPLOY)}
