"""Import cycles, and imports of private modules."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from checks.imports import cycles, faces, folder_cycles, private_imports, read_graph
from tests.checks.conftest import WriteTree

FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import sample.b\n"
INSIDE = "def load():\n    import sample.b\n"


@pytest.mark.parametrize("other", ["import sample.b\n", FOR_TYPES, INSIDE], ids=["module", "types", "function"])
def test_every_kind_of_import_closes_a_cycle(
    write_tree: WriteTree, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    root = write_tree({"sample/__init__.py": "", "sample/a.py": other, "sample/b.py": "import sample.a\n"})
    monkeypatch.syspath_prepend(root)

    found = cycles(read_graph("sample"), "sample")

    assert [finding.key for finding in found] == ["sample.a sample.b"]
    assert "sample.a -> sample.b, sample.b -> sample.a" in found[0].message


@pytest.mark.parametrize(
    ("files", "by_file", "by_folder"),
    [
        ({"sample/__init__.py": "import sample.a\n", "sample/a.py": "import sample\n"}, [], []),
        ({"sample/p/__init__.py": "import sample.p.a\n", "sample/p/a.py": "import sample.p\n"}, ["p p.a"], []),
        ({"sample/p/__init__.py": "import sample.p.q.a\n", "sample/p/q/a.py": "import sample.p.b\n"}, [], []),
        ({"sample/p/b.py": "import sample.p.q.a\n", "sample/p/q/a.py": "import sample.p.c\n"}, [], ["p p.q"]),
        (
            {"sample/p/a.py": "import sample.q.a\n", "sample/q/b.py": "import sample.r.a\n"}
            | {"sample/r/a.py": "import sample.p.c\n"},
            [],
            ["p q r"],
        ),
    ],
    ids=["root", "face by file", "face by folder", "own folder", "siblings"],
)
def test_cycles_by_file_and_by_folder(
    write_tree: WriteTree,
    monkeypatch: pytest.MonkeyPatch,
    files: Mapping[str, str],
    by_file: list[str],
    by_folder: list[str],
) -> None:
    names = ("sample/", "sample/p/", "sample/p/q/", "sample/q/", "sample/r/")
    empty = {f"{name}{module}.py": "" for name in names for module in ("__init__", "a", "b", "c")}
    monkeypatch.syspath_prepend(write_tree(empty | dict(files)))

    graph = read_graph("sample")

    assert [finding.key.replace("sample.", "") for finding in cycles(graph, "sample")] == by_file
    assert [finding.key.replace("sample.", "") for finding in folder_cycles(graph, "sample")] == by_folder


def test_private_imports_of_tests_are_counted(write_tree: WriteTree, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_tree(
        {
            "sample/__init__.py": "",
            "sample/errors.py": "",
            "sample/testing/__init__.py": "",
            "sample/testing/server.py": "",
            "sample/open/__init__.py": "__all__ = []\n",
            "sample/open/inside.py": "",
            "sample/closed/__init__.py": "",
            "of_sample/__init__.py": "",
            "of_sample/test_it.py": (
                "import sample, sample.errors, sample.open, sample.testing.server\n"
                "from sample.open import inside\n"
                "def test():\n    import sample.closed\n    import sample.open.inside\n"
            ),
        }
    )
    monkeypatch.syspath_prepend(root)

    found = private_imports(read_graph("sample", "of_sample"), "sample", "of_sample", faces(root, "sample"))

    assert [finding.size for finding in found] == [3]
    assert "3 imports of 2 private modules" in found[0].message
