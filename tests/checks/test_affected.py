"""The tests that an edit needs."""

from __future__ import annotations

import pytest

from checks.affected import affected
from tests.checks.conftest import WriteTree

FILES = {
    "package/__init__.py": "if TYPE_CHECKING:\n    from package.inner.one import One as One\n",
    "package/inner/__init__.py": "",
    "package/inner/one.py": "",
    "package/inner/two.py": "",
    "tests/test_face.py": "from package import One\n",
    "tests/test_module.py": "def test():\n    from package.inner.two import two\n",
    "tests/deep/test_name.py": "from package.inner import one, two\n",
    "tests/test_other.py": "import json\n",
}


@pytest.mark.parametrize(
    ("file", "tests"),
    [
        ("package/inner/one.py", ["tests/deep/test_name.py", "tests/test_face.py"]),
        ("package/inner/two.py", ["tests/deep/test_name.py", "tests/test_module.py"]),
        ("package/__init__.py", ["tests/test_face.py"]),
        ("tests/test_other.py", ["tests/test_other.py"]),
    ],
)
def test_tests_of_a_file(write_tree: WriteTree, file: str, tests: list[str]) -> None:
    root = write_tree(FILES)
    assert affected(root, [str(root / file)]) == tests
