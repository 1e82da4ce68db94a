"""The program that runs in the sandbox: what it is made of, and what it says of functions.

Examines the internals of tools.dynamic.runner_program on purpose.
"""

from __future__ import annotations

import ast
import inspect
import json
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from flink_skills import FunctionTool
from flink_skills.tools import ToolContext
from flink_skills.tools.dynamic import checked_parameters, parse_docstring
from flink_skills.tools.dynamic import parse_docstring as trusted_docstring
from flink_skills.tools.dynamic.runner_program import OLDEST_PYTHON, program_argv

_PROGRAM = files("flink_skills.tools.dynamic.program")

# What the kernel takes as one argument.
_MAX_ARGUMENT = 131_072

QUOTED = '''
import datetime
from dataclasses import dataclass
from typing import List, Optional


@dataclass
class Order:
    day: datetime.date
    lines: "List[Order]"


def ship(orders: LIST["Order"], at: datetime.time, since: "Optional[datetime.datetime]" = None) -> List[str]:
    """Ship orders."""
    return [type(each).__name__ for each in orders] + [at.isoformat(), str(since)]
'''

SHAPES = '''
"""All that annotations say."""
import datetime
import decimal
import enum
import pathlib
import uuid
from dataclasses import dataclass, field
from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Set, Tuple, Union

try:
    from typing import TypedDict
except ImportError:
    TypedDict = dict


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


class Color(str, enum.Enum):
    RED = "red"


@dataclass
class Node:
    name: str
    children: List["Node"] = field(default_factory=list)
    level: Level = Level.LOW


class Options(TypedDict, total=False):
    deep: bool
    tags: List[str]


def everything(
    text: str,
    number: int = 3,
    share: float = 0.5,
    on: bool = False,
    items: List[int] = None,
    table: Optional[Dict[str, float]] = None,
    choice: Literal["a", "b"] = "a",
    level: Level = Level.HIGH,
    color: Color = Color.RED,
    node: Optional[Node] = None,
    options: Optional[Options] = None,
    mixed: Union[int, str, None] = None,
    pair: Tuple[int, str] = (1, "x"),
    names: Set[str] = frozenset(),
    day: Optional[datetime.date] = None,
    amount: decimal.Decimal = decimal.Decimal("1.50"),
    path: pathlib.Path = pathlib.Path("."),
    anything: Any = None,
):
    """Everything."""
    return {
        "types": {name: type(value).__name__ for name, value in locals().items()},
        "level": level, "node": node, "mixed": mixed, "amount": amount, "day": day, "path": path, "options": options,
    }


def positional(a: int, b: int = 2, /, *, c: int = 3, **more: int):
    """Positional."""
    return [a, b, c, more]
'''


PYTHONS = ["python3.8", "python3.9", "python3.10", "python3.11", "python3.12", "python3.13", sys.executable]


def _found(python: str) -> str:
    found = shutil.which(python)
    if found is None or subprocess.run([found, "-c", ""], check=False).returncode:
        pytest.skip(f"there is no {python} here")
    return found


def _ask(folder: Path, *requests: dict[str, Any], python: str = sys.executable) -> list[dict[str, Any]]:
    numbered = [{"id": number, "room": 1 << 20, **request} for number, request in enumerate(requests)]
    done = subprocess.run(
        [python, *program_argv()[1:]],
        cwd=folder,
        input="".join(json.dumps(request) + "\n" for request in numbered).encode(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def _call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"op": "call", "tool": tool, "arguments": arguments}


@pytest.fixture
def shapes(tmp_path: Path) -> Path:
    (tmp_path / "tools.py").write_text(SHAPES)
    return tmp_path


@pytest.mark.parametrize("name", sorted(path.name for path in _PROGRAM.iterdir() if path.name.endswith(".py")))
def test_it_is_python_of_the_oldest_version_with_nothing_but_the_standard_library(name: str) -> None:
    tree = ast.parse(_PROGRAM.joinpath(name).read_text(), feature_version=OLDEST_PYTHON)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert all(alias.name.split(".")[0] in sys.stdlib_module_names for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1 or (node.module or "").split(".")[0] in sys.stdlib_module_names


def test_it_fits_into_an_argument() -> None:
    assert len(program_argv()[-1].encode()) < _MAX_ARGUMENT // 2


@pytest.mark.parametrize("python", PYTHONS)
def test_quoted_classes_and_times_mean_the_same_on_each_python(tmp_path: Path, python: str) -> None:
    found = _found(python)
    of_lists = "List" if python == "python3.8" else "list"
    (tmp_path / "tools.py").write_text(QUOTED.replace("LIST", of_lists))
    orders = [{"day": "20260105", "lines": []}]
    described, called = _ask(
        tmp_path,
        {"op": "describe"},
        _call("ship", orders=orders, at="10:20:30.5", since="2026-01-05 10:20:30.123456789Z"),
        python=found,
    )
    [tool] = described["value"]["tools"]
    assert tool["parameters"]["properties"]["orders"]["items"]["properties"].keys() == {"day", "lines"}
    assert called["value"] == ["Order", "10:20:30.500000", "2026-01-05 10:20:30.123456+00:00"]


@pytest.mark.row("J1")
@pytest.mark.parametrize("python", PYTHONS)
def test_annotations_become_a_schema_and_values(shapes: Path, python: str) -> None:
    found = _found(python)
    described, called, wrong, plain, few = _ask(
        shapes,
        {"op": "describe"},
        _call(
            "everything",
            text="t",
            number="7",
            items=[1],
            level="LOW",
            node={"name": "n", "children": [{"name": "c"}]},
            options={"deep": True},
            mixed="4",
            pair=[1, "y"],
            names=["a", "a"],
            day="2024-02-29",
            amount=2.5,
        ),
        _call("everything", number=1.5, on="maybe", choice="c", node={"nam": 1}, pair=[1], day="soon", names="a"),
        _call("positional", a=1, b=5, c=6, d=7),
        _call("positional", a=1),
        python=found,
    )
    properties = described["value"]["tools"][0]["parameters"]["properties"]
    assert described["value"]["problems"] == []
    assert properties["number"] == {"type": "integer", "default": 3}
    assert properties["choice"] == {"type": "string", "enum": ["a", "b"], "default": "a"}
    assert properties["level"] == {"type": "integer", "enum": [1, 2], "default": 2}
    assert properties["node"]["properties"]["children"]["items"] == {"type": "object"}, "it ends where it began"
    assert properties["options"]["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}
    assert properties["table"] == {"type": "object", "additionalProperties": {"type": "number"}}
    assert properties["pair"]["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert properties["day"] == {"type": "string", "format": "date"}
    assert "default" not in properties["path"]
    value = called["value"]
    assert value["types"]["number"] == "int"
    assert value["types"]["names"] == "set"
    assert value["types"]["pair"] == "tuple"
    assert value["types"]["node"] == "Node"
    assert value["types"]["day"] == "date"
    assert value["mixed"] == "4", "as it is, where that fits"
    assert value["node"]["children"] == [{"name": "c", "children": [], "level": 1}]
    assert value["amount"] == "2.5"
    lines = wrong["error"].splitlines()
    for expected in (
        "- text is missing",
        "- number must be an integer (given: 1.5)",
        '- on must be true or false (given: "maybe")',
        '- choice must be one of "a", "b" (given: "c")',
        "- pair must be an array of 2 elements (given: [1])",
        '- names must be an array (given: "a")',
    ):
        assert expected in lines, lines
    assert any(line.startswith("- node must be Node or NoneType") for line in lines)
    assert plain["value"] == [1, 5, 6, {"d": 7}]
    assert few["value"] == [1, 2, 3, {}]


def add(a: int, b: float = 0.5, name: str = "x", on: bool = True, items: list[str] | None = None) -> str:
    """Add two numbers
    and more.

    Args:
        a: One
            number.
        items (list): Some.

    Returns:
        A text.
    """
    return f"{a} {b} {name} {on} {items}"


@pytest.mark.row("J1")
async def test_a_function_is_described_and_called_as_one_of_the_jobs_own(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(f"from __future__ import annotations\n\n{inspect.getsource(add)}\n")
    own = FunctionTool(add)
    asked = (
        {"a": 1},
        {"a": "2", "items": ["i"]},
        {"a": 1, "items": None},
        {"a": 3.0, "on": "false"},
        {"b": 1},
        {"a": "x"},
    )
    described, *answers = _ask(tmp_path, {"op": "describe"}, *(_call("add", **arguments) for arguments in asked))
    (spec,) = described["value"]["tools"]
    assert spec["description"] == own.spec.description
    assert checked_parameters(spec["parameters"]) == own.spec.parameters
    for arguments, answer in zip(asked, answers, strict=True):
        result = await own.call(arguments, ToolContext())
        assert result.is_error == ("error" in answer), arguments
        assert answer.get("value") == result.value
        if result.is_error:
            assert answer["error"].splitlines()[0] == result.content.splitlines()[0] == "add: the arguments do not fit:"


GOOGLE = """Do it.

More text.

Args:
    a: One
        number.
    *b (int): Another.

Returns:
    Nothing.
"""
NUMPY = """Do it.

Parameters
----------
a : int
    One
    number.
b, c : str, optional
    Others.

Returns
-------
d : int
    Not an argument.
"""
REST = """Do it.

:param a: One
    number.
:param int b: Another.
:type b: int
:returns: Nothing.
"""


@pytest.mark.parametrize(
    ("text", "described"),
    [
        (GOOGLE, {"a": "One number.", "b": "Another."}),
        (NUMPY, {"a": "One number.", "b": "Others.", "c": "Others."}),
        (REST, {"a": "One number.", "b": "Another."}),
        ("Do it.", {}),
        ("Do it.\n:param a: One number.", {"a": "One number."}),
    ],
)
def test_docstrings_of_all_styles(text: str, described: dict[str, str]) -> None:
    assert parse_docstring(text) == ("Do it.", described)


@pytest.mark.parametrize(
    "text", [GOOGLE, "", None, "Two\nlines.\n\nText.", "Args:\n    a: b\n", "x: y\n\nArgs:\n  a (b): c\nd"]
)
def test_docstrings_are_read_as_those_of_the_jobs_own_functions(text: str | None) -> None:
    assert parse_docstring(text) == trusted_docstring(text)
