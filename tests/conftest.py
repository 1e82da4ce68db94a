from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.passable import passable_folder

if os.geteuid() == 0:
    # Root runs commands as another user, who could not pass the folders that pytest makes for root alone.
    @pytest.fixture
    def tmp_path() -> Iterator[Path]:
        with passable_folder() as folder:
            yield folder
