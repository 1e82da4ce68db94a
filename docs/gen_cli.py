"""Write the generated parts of ``docs/reference/cli.md`` from the commands of ``flink-skills``.

python -m docs.gen_cli           write them; a command without a section gets one at the end
python -m docs.gen_cli --check   exit with 1 if the page differs from the commands
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from docs.generated import fill, write_or_check
from flink_skills.cli.app import COMMANDS, LazyCommand

PAGE = Path(__file__).resolve().parent / "reference" / "cli.md"

_EXAMPLES = re.compile(r"\n*^Examples?:$", re.MULTILINE)
_HEAD = "# Command line\n\n<!-- generated: commands -->\n<!-- end -->\n"


def render(page: str) -> str:
    """Return ``page`` with its generated parts replaced.

    Raises:
        ValueError: A generated part does not belong to a command.
    """
    text = page or _HEAD
    parts = {"commands": _overview, **{name: _renderer(name) for name in COMMANDS}}
    for name in COMMANDS:
        if f"<!-- generated: {name} -->\n" not in text:
            text += f"\n## {name}\n\n<!-- generated: {name} -->\n<!-- end -->\n"
    return fill(text, parts)


def _overview() -> str:
    rows = "".join(f"| [`{name}`](#{name}) | {_cell(entry.summary)} |\n" for name, entry in COMMANDS.items())
    return f"| Command | Description |\n|---|---|\n{rows}".rstrip()


def _renderer(name: str) -> Callable[[], str]:
    return lambda: _command(name)


def _command(name: str) -> str:
    called = COMMANDS[name].load()
    command = LazyCommand(name, COMMANDS[name]).load()
    kinds = get_type_hints(called)
    doc = inspect.getdoc(called) or ""
    text, examples = (*_EXAMPLES.split(doc, maxsplit=1), "")[:2]
    parts = [f"    flink-skills {name} {' '.join(_usage(command.params, kinds))}".rstrip()]
    parts.append("\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n")))
    if rows := list(_rows(command.params, kinds)):
        parts.append("| Argument or option | Default | Description |\n|---|---|---|\n" + "\n".join(rows))
    codes = [f"| {code} | {_cell(meaning)} |" for code, meaning in COMMANDS[name].exit_codes.items()]
    parts.append("| Exit code | Meaning |\n|---|---|\n" + "\n".join(codes))
    if examples.strip():
        parts.append(
            "Examples:\n\n" + "\n".join(f"    {line.strip()}" for line in examples.split("\n") if line.strip())
        )
    return "\n\n".join(parts)


def _usage(params: list[Any], kinds: dict[str, Any]) -> Iterator[str]:
    ordered = sorted(params, key=lambda param: param.param_type_name == "argument")
    for param in ordered:
        if param.name == "help":
            continue
        word = _word(param, kinds)
        if param.param_type_name == "option":
            word = f"{_long(param)}{word and ' ' + word}"
        many = "…" if _is_many(kinds[param.name]) else ""
        yield f"{word}{many}" if param.required else f"[{word}{many}]"


def _rows(params: list[Any], kinds: dict[str, Any]) -> Iterator[str]:
    for param in params:
        if param.name == "help":
            continue
        word = _word(param, kinds)
        names = [f"{name} {word}".strip() for name in (*param.opts, *param.secondary_opts)]
        name = f"`{word}`" if param.param_type_name == "argument" else ", ".join(f"`{_cell(each)}`" for each in names)
        texts = [param.help or "", *(f"Environment variable: `{variable}`." for variable in _variables(param))]
        yield f"| {name} | {_default(param)} | {_cell(' '.join(filter(None, texts)))} |"


def _long(param: Any) -> str:
    return next((name for name in param.opts if name.startswith("--")), param.opts[0])


def _variables(param: Any) -> list[str]:
    found = getattr(param, "envvar", None) or []
    return [found] if isinstance(found, str) else list(found)


def _word(param: Any, kinds: dict[str, Any]) -> str:
    """Return the placeholder of the value, independent of the version of typer. Return an empty string for a flag."""
    kind = _inner(kinds[param.name])
    if kind is bool:
        return ""
    if param.metavar:
        return str(param.metavar)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(str(member.value) for member in kind)
    if param.param_type_name == "argument":
        return str(param.name).rstrip("_").upper()
    return {int: "N", float: "X", Path: "PATH"}.get(kind, "TEXT")


def _inner(kind: Any) -> Any:
    """Return the type of one value, without None and list."""
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    return get_args(kind)[0] if get_origin(kind) is list else kind


def _is_many(kind: Any) -> bool:
    return any(get_origin(each) is list for each in (kind, *get_args(kind)))


def _default(param: Any) -> str:
    if param.required:
        return "required"
    value = param.default
    if isinstance(value, Enum):
        value = value.value
    if value in (None, "", False, (), []) or callable(value):
        return "off" if value is False else ""
    return "on" if value is True else f"`{_cell(str(value))}`"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def main(arguments: list[str]) -> int:
    """Write or check the page, and return the exit code."""
    return write_or_check(PAGE, render, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
