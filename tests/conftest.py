from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

if os.geteuid() == 0:
    # Root runs commands as another user, who could not pass the folders that pytest makes for root alone.
    @pytest.fixture
    def tmp_path() -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(prefix="test-"))
        folder.chmod(0o711)
        yield Path(os.path.realpath(folder))
        shutil.rmtree(folder, ignore_errors=True)
