"""The size of the package, which may only fall."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grimp
import pytest
import yaml

from checks import mass
from tests.checks.conftest import WriteTree

FILES = {
    "weighed/__init__.py": "",
    "weighed/root.py": "import weighed.p.user\n",
    "weighed/p/__init__.py": "from weighed.p.one import a\n",
    "weighed/p/user.py": "import weighed.p.one\nimport weighed.q.both\n",
    "weighed/p/one.py": '"""Text."""\na = 1  # one\n\n# Comment.\nb = (\n)\n',
    "weighed/q/__init__.py": "",
    "weighed/q/both.py": "",
    "weighed/q/one.py": "import weighed.q.both\n",
}


@pytest.fixture
def found(write_tree: WriteTree, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    root = write_tree(FILES)
    monkeypatch.syspath_prepend(root)
    return mass.measure(root, grimp.build_graph("weighed", cache_dir=None), "weighed")


def test_counts_by_package(found: dict[str, Any]) -> None:
    assert found == {
        "logic": {"p": 1 + 2 + 3, "q": 1, "weighed": 1},
        "files": {"p": 3, "q": 3, "weighed": 2},
        # weighed.p.one: its face does not count as a user. weighed.q.both has a user in each folder.
        "small-files-with-one-user": 1,
        "names": {"one.py": 2},
    }


@pytest.mark.parametrize("rule", ["logic", "files", "names", "small-files-with-one-user"])
def test_a_larger_number_fails(found: dict[str, Any], rule: str) -> None:
    known = {of: number - 1 if of == rule else number for of, number in found.items() if isinstance(number, int)}
    known |= {
        of: {key: number - (of == rule) for key, number in numbers.items()}
        for of, numbers in found.items()
        if isinstance(numbers, dict)
    }
    messages = mass.grown(found, known)
    assert messages
    assert all(mass.LIST in message for message in messages)
    assert mass.grown(found, found) == []


def test_the_list_is_lowered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: dict[str, Any]) -> None:
    path = tmp_path / mass.LIST
    path.parent.mkdir()
    larger = {**found, "logic": {**found["logic"], "p": 100}, "names": {"one.py": 2, "two.py": 3}}
    path.write_text("# Why.\n" + yaml.safe_dump(larger))
    monkeypatch.setattr(mass, "ROOT", tmp_path)
    monkeypatch.setattr(mass, "measure", lambda *_: found)
    assert mass.main() == 0
    assert path.read_text().startswith("# Why.\n")
    assert yaml.safe_load(path.read_text()) == found
    monkeypatch.setattr(mass, "measure", lambda *_: larger)
    assert mass.main() == 1
    assert yaml.safe_load(path.read_text()) == found
