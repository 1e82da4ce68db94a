"""What the overlays render to, once for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import kubernetes_validate.utils
import pytest

from deploy.check.checking import renderings
from deploy.check.finding import Manifests

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"


@pytest.fixture(scope="session")
def rendered() -> dict[str, Manifests]:
    """Overlays, and components that no overlay has, by name."""
    return {manifests.name: manifests for manifests in renderings(DEPLOY)}


@pytest.fixture(scope="session", autouse=True)
def schemas_read_once() -> Iterator[None]:
    """Keep what the library reads: it reads two files of schemas again for each object."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kubernetes_validate.utils, "schema_contents", cache(kubernetes_validate.utils.schema_contents))
        yield
