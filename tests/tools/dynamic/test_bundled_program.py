"""The program that runs in the sandbox: what it is made of, and what it says of functions.

Examines the internals of tools.dynamic.skill_programs on purpose.
"""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pydantic
import pytest

from flink_skills import FunctionTool
from flink_skills.tools import ToolContext, parse_docstring
from flink_skills.tools.dynamic import checked_parameters
from flink_skills.tools.dynamic.skill_programs import _MODULES, UNUSABLE_PYTHON, program_argv

_AVAILABLE = {*sys.stdlib_module_names, "pydantic", "pydantic_core", "typing_extensions"}

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


def ship(orders: list["Order"], at: datetime.time, since: "Optional[datetime.datetime]" = None) -> List[str]:
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


def _ask(folder: Path, *requests: dict[str, Any]) -> list[dict[str, Any]]:
    numbered = [{"id": number, "limit": 1 << 20, **request} for number, request in enumerate(requests)]
    done = subprocess.run(
        [sys.executable, *program_argv()[1:]],
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


def test_it_imports_what_a_sandbox_has() -> None:
    *modules, _ = _MODULES
    allowed = {f"flink_skills.{name}" for name in modules}
    for name in _MODULES:
        text = files("flink_skills").joinpath(f"{name.replace('.', '/')}.py").read_text()
        for node in ast.walk(ast.parse(text)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for module in names:
                root = module.split(".")[0]
                assert module in allowed or root in {
                    *sys.stdlib_module_names,
                    "pydantic",
                    "pydantic_core",
                    "typing_extensions",
                }, name


def test_it_fits_into_an_argument() -> None:
    assert len(program_argv()[-1].encode()) < _MAX_ARGUMENT // 2


def test_without_pydantic_the_error_names_the_fix() -> None:
    text = program_argv()[-1].replace(str(Path(pydantic.__file__).parent.parent), "/none")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", text], input=b"", capture_output=True, timeout=60, check=False
    )
    assert done.returncode == UNUSABLE_PYTHON
    reason, fix = done.stderr.decode().split(": ")
    assert reason.startswith("the tools of a skill need the package pydantic 2, and ")
    assert fix.startswith("install pydantic for the python3 of commands")


def test_tools_import_what_is_installed(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        "import sys\n\ndef ours(): return [n for n in sys.modules if 'flink_skills' in n]\n"
    )
    [called] = _ask(tmp_path, _call("ours"))
    assert called["value"] == []


@pytest.mark.each_python
def test_quoted_classes_and_times_mean_the_same_on_each_python(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(QUOTED)
    orders = [{"day": "2026-01-05", "lines": []}]
    described, called = _ask(
        tmp_path,
        {"op": "describe"},
        _call("ship", orders=orders, at="10:20:30.5", since="2026-01-05 10:20:30.123456789Z"),
    )
    [tool] = described["value"]["tools"]
    assert tool["parameters"]["$defs"]["Order"]["properties"].keys() == {"day", "lines"}
    assert called["value"] == ["Order", "10:20:30.500000", "2026-01-05 10:20:30.123456+00:00"]


UNCLEAR = '''
from __future__ import annotations
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from elsewhere import Thing


class Client:
    pass


def search(text: str, thing: Thing, client: Client = None, number: int = None, away: Client = Client()):
    """Search."""
    return [text, thing, client, number, type(away).__name__]
'''


def test_annotations_without_a_schema_allow_any_value(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(UNCLEAR)
    described, called = _ask(tmp_path, {"op": "describe"}, _call("search", text="t", thing={"a": 1}, number=None))
    [tool] = described["value"]["tools"]
    assert described["value"]["problems"] == []
    assert tool["parameters"]["properties"]["thing"] == {}
    assert tool["parameters"]["properties"]["number"] == {"type": "integer"}
    assert called["value"] == ["t", {"a": 1}, None, None, "Client"]


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({"a": {}, "bb": {}}, "the tool 'add' declares the parameter 'bb', which its function does not accept"),
        ({}, "the tool 'add' does not declare the parameter 'a' of its function"),
        ({"a": {}}, None),
    ],
)
def test_declared_parameters_that_differ_from_the_function_are_a_problem(
    tmp_path: Path, properties: dict[str, Any], says: str | None
) -> None:
    (tmp_path / "tools.py").write_text("def add(a: int, b: int = 1): return a + b\n")
    declared = [{"name": "add", "description": "", "parameters": {"properties": properties}}]
    [described] = _ask(tmp_path, {"op": "describe", "declared": declared})
    assert described["value"]["problems"] == ([says] if says else [])
    assert [tool["name"] for tool in described["value"]["tools"]] == ["add"]


@pytest.mark.row("J1")
@pytest.mark.each_python
def test_annotations_become_a_schema_and_values(shapes: Path) -> None:
    described, called, wrong, plain, few = _ask(
        shapes,
        {"op": "describe"},
        _call(
            "everything",
            text="t",
            number="7",
            items=[1],
            level=1,
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
    )
    parameters = checked_parameters(described["value"]["tools"][0]["parameters"])
    properties, shared = parameters["properties"], parameters["$defs"]
    assert described["value"]["problems"] == []
    assert properties["number"] == {"type": "integer", "default": 3}
    assert properties["choice"] == {"type": "string", "enum": ["a", "b"], "default": "a"}
    assert properties["level"] == {"$ref": "#/$defs/Level", "default": 2}
    assert shared["Level"] == {"type": "integer", "enum": [1, 2]}
    assert shared["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert shared["Options"]["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}
    assert properties["table"] == {"type": "object", "additionalProperties": {"type": "number"}}
    assert properties["pair"]["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert properties["day"] == {"type": "string", "format": "date"}
    assert properties["path"]["default"] == "."
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
        "- text: Field required",
        "- number: Input should be a valid integer, got a number with a fractional part (given: 1.5)",
        "- on: Input should be a valid boolean, unable to interpret input (given: 'maybe')",
        "- choice: Input should be 'a' or 'b' (given: 'c')",
        "- pair.1: Field required",
        "- names: Input should be a valid set (given: 'a')",
        "- node.name: Field required",
        "- node.nam: Unexpected keyword argument (given: 1)",
    ):
        assert expected in lines, lines
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
