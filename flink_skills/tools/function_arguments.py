"""Arguments and docstrings of Python functions that are tools, in a worker and in a sandbox.

The program that runs the tools of skills contains this module and those that it imports, see
:mod:`flink_skills.tools.dynamic.skill_programs`.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, Optional

import pydantic
from pydantic.fields import FieldInfo

from flink_skills.hints import type_hints
from flink_skills.tools.arguments import Arguments

_SECTION = re.compile(r"(Args|Arguments|(?:Other )?Parameters|Returns?|Raises|Yields?|Examples?|Notes?|Warnings?):\s*")
# A program of a skill may write what it likes: no part of these patterns can match what the next one matches as well.
_ARGUMENT = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\)\s*)?:\s*(.*)")
# Sections that are not part of the description: arguments have their own, and the result its own form.
_SEPARATE = frozenset(
    {"Args", "Arguments", "Parameters", "Other Parameters", "Raises", "Return", "Returns", "Yield", "Yields"}
)
_UNDERLINE = re.compile(r"-{3,}\s*")
_NUMPY_NAMES = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_NUMPY_ARGUMENTS = ("Parameters", "Other Parameters", "Args", "Arguments")
_FIELD = re.compile(r":(\w+)(?:\s([^:]*))?:\s*(.*)")
_PARAM_FIELDS = ("param", "parameter", "arg", "argument", "key", "keyword")


def parse_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """The first paragraph on one line, and the description of each argument.

    >>> parse_docstring('Add.\\n\\nArgs:\\n    a: One\\n        number.\\n    b (int): Another.')
    ('Add.', {'a': 'One number.', 'b': 'Another.'})
    >>> parse_docstring('Add.\\n\\nParameters\\n----------\\na : int\\n    One number.')
    ('Add.', {'a': 'One number.'})
    >>> parse_docstring('Add.\\n\\n:param int a: One number.')
    ('Add.', {'a': 'One number.'})
    """
    if not text:
        return "", {}
    lines = _lines(text)
    described = _fields(lines)
    described.update(_numpy_arguments(lines))
    described.update(_google_arguments(lines))
    return _summary(lines), described


def parse_returns(text: str | None) -> str:
    """What a docstring says of the result, on one line; empty where it says nothing.

    >>> parse_returns('Add.\\n\\nReturns:\\n    int: The\\n        sum.')
    'int: The sum.'
    >>> parse_returns('Add.\\n\\n:returns: The sum.')
    'The sum.'
    """
    lines = _lines(text or "")
    found: list[str] = []
    inside = False
    for number, line in enumerate(lines):
        if _is_heading(lines, number):
            inside = line.strip() == "Returns"
        elif section := _SECTION.fullmatch(line):
            inside = section.group(1).startswith("Return")
        elif (field := _FIELD.fullmatch(line)) and _is_field(line):
            inside = field.group(1) in ("return", "returns")
            found += [field.group(3)] if inside else []
        elif inside and line.strip() and not _UNDERLINE.fullmatch(line):
            # After a heading of numpy the type stands at the margin; elsewhere the section ends there.
            if not line[0].isspace() and found:
                break
            found.append(line.strip())
    return " ".join(part for part in found if part).strip()


def docstring_of(inner: object, owner: object) -> str | None:
    """The docstring of the function ``inner``; where that is the ``__call__`` of ``owner``, else that of its class.

    >>> class Adds:
    ...     "Adds numbers."
    ...     def __call__(self, a: int, b: int) -> int: ...
    >>> docstring_of(Adds.__call__, Adds())
    'Adds numbers.'
    """
    # inspect.getdoc would find the one of every class's __call__, which says nothing.
    return inspect.getdoc(inner) if inner is not type(owner).__call__ else inner.__doc__ or type(owner).__doc__


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Return the description of a function for models, and that of each argument.

    The description is the whole docstring, without its sections of arguments and errors.

    >>> read_docstring('Add.\\n\\nArgs:\\n    a: One number.\\n\\nReturns:\\n    The sum.')
    ('Add. Returns: The sum.', {'a': 'One number.'})
    >>> read_docstring('Add.\\n\\nRounds to cents.\\n\\nExample:\\n    add(1, 2) returns 3')
    ('Add.\\n\\nRounds to cents.\\n\\nExample:\\n    add(1, 2) returns 3', {})
    """
    summary, arguments = parse_docstring(text)
    if not summary:
        return "", arguments
    before, after = _paragraphs(_lines(text or ""))
    if returns := parse_returns(text):
        if before == [summary] and not after:
            return f"{summary} Returns: {returns}", arguments
        before.append(f"Returns: {returns}")
    return "\n\n".join(before + after), arguments


def _lines(text: str) -> list[str]:
    # cleandoc takes the blank lines at the beginning out one by one.
    body = text.lstrip()
    _, line_end, indent = text[: len(text) - len(body)].rpartition("\n")
    return inspect.cleandoc(line_end + indent + body).splitlines()


def _paragraphs(lines: list[str]) -> tuple[list[str], list[str]]:
    """Return the paragraphs before the first section and those after it, without those in ``_SEPARATE``."""
    found: tuple[list[str], list[str]] = ([], [])
    blocks: list[list[str]] = [[]]
    ends = -1
    skips = in_numpy = False
    for number, line in enumerate(lines):
        is_heading = _is_heading(lines, number)
        section = _SECTION.fullmatch(line)
        if _UNDERLINE.fullmatch(line) and number and _is_heading(lines, number - 1):
            continue
        if is_heading or section or _is_field(line):
            name = line.strip().rstrip(":") if is_heading or section else ""
            skips, in_numpy = name in _SEPARATE or not name, is_heading
            ends = len(blocks) if ends < 0 else ends
            blocks.append([] if skips else [f"{name}:"])
        elif line.strip() and not line[0].isspace() and not in_numpy and skips:
            skips = False
            blocks.append([line])
        elif not skips:
            blocks[-1].append(line) if line.strip() or _is_code(blocks[-1]) else blocks.append([])
    for at, block in enumerate(blocks):
        if any(map(str.strip, block)):
            found[0 <= ends <= at].append(_joined(block))
    return found


def _is_code(block: list[str]) -> bool:
    """Return True for an example that blank lines do not end."""
    return bool(block) and len(block[0]) < 40 and block[0].endswith(":") and len(block[0].split()) < 3


def _joined(block: list[str]) -> str:
    while block and not block[-1].strip():
        block.pop()
    # A list or an example keeps its lines.
    is_prose = not any(line[:1].isspace() or line[:2] in ("- ", "* ") or line.startswith(">>>") for line in block)
    return (" " if is_prose else "\n").join(line.strip() if is_prose else line.rstrip() for line in block)


def _summary(lines: list[str]) -> str:
    found: list[str] = []
    for number, line in enumerate(lines):
        if not line.strip() or _SECTION.fullmatch(line) or _is_heading(lines, number) or _is_field(line):
            break
        found.append(line.strip())
    return " ".join(found)


def _is_heading(lines: list[str], number: int) -> bool:
    return number + 1 < len(lines) and bool(lines[number].strip()) and bool(_UNDERLINE.fullmatch(lines[number + 1]))


def _is_field(line: str) -> bool:
    field = _FIELD.fullmatch(line)
    return field is not None and field.group(1) in (*_PARAM_FIELDS, "type", "return", "returns", "rtype", "raises")


def _google_arguments(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    inside, indent, current = False, None, ""
    for line in lines:
        section = _SECTION.fullmatch(line)
        if section:
            inside, indent, current = section.group(1) in ("Args", "Arguments", "Parameters"), None, ""
            continue
        if not inside or not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            break  # text after the section
        indent = depth if indent is None else indent
        entry = _ARGUMENT.fullmatch(line.strip()) if depth == indent else None
        if entry:
            current = entry.group(1)
            found[current] = [entry.group(2)]
        elif current:
            found[current].append(line.strip())
    return {name: " ".join(parts).strip() for name, parts in found.items()}


def _numpy_arguments(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    inside = False
    current: list[str] = []
    for number, line in enumerate(lines):
        if _is_heading(lines, number):
            inside, current = line.strip() in _NUMPY_ARGUMENTS, []
            continue
        if not inside or not line.strip() or _UNDERLINE.fullmatch(line):
            continue
        if line[0].isspace():
            current.append(line.strip())
            continue
        # One text for all the names of a line.
        names = _NUMPY_NAMES.fullmatch(line)
        current = []
        for name in names.group(1).split(",") if names else ():
            found[name.strip().lstrip("*")] = current
    different = {id(parts): parts for parts in found.values()}
    texts = {key: " ".join(parts) for key, parts in different.items()}
    return {name: texts[id(parts)] for name, parts in found.items() if parts}


def _fields(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    current = ""
    for line in lines:
        field = _FIELD.fullmatch(line.strip())
        if field:
            # The name comes last: ":param int count:" has the type before it.
            words = (field.group(2) or "").split() if field.group(1) in _PARAM_FIELDS else []
            current = words[-1].lstrip("*") if words else ""
            if current:
                found[current] = [field.group(3)]
        elif current and line[:1].isspace() and line.strip():
            found[current].append(line.strip())
        else:
            current = ""
    texts = {name: " ".join(parts).strip() for name, parts in found.items()}
    return {name: text for name, text in texts.items() if text}


class SignatureError(ValueError):
    """Models cannot call a function."""


class FunctionArguments(Arguments[pydantic.BaseModel]):
    """The arguments of a function, method or callable object, by its signature, annotations and docstring.

    Attributes:
        description: The docstring without the sections of arguments and errors.
        described: The arguments in the docstring, with their descriptions.
        untyped: The arguments without an annotation.
        accepts_any: True if the function has ``**kwargs``.

    Args:
        name: The name of the tool.
        func: The function.
        is_hidden: Return True for a parameter that models do not provide. It receives the parameter and its annotation.
        names: Names that annotations can contain in addition to those of the function's module.
        is_lenient: True: an annotation that cannot be resolved or described allows any value instead of an error, and
            a default of None allows null.

    Raises:
        SignatureError: Models cannot call the function. The message starts with the name.

    >>> def add(a: int, b: int = 1) -> int: ...
    >>> arguments = FunctionArguments("add", add)
    >>> arguments.bind(arguments.read({"a": "2"}))
    ([], {'a': 2, 'b': 1})
    """

    def __init__(
        self,
        name: str,
        func: Callable[..., Any],
        *,
        is_hidden: Callable[[inspect.Parameter, Any], bool] = lambda parameter, hint: False,
        names: Mapping[str, Any] = MappingProxyType({}),
        is_lenient: bool = False,
    ) -> None:
        called = called_function(func)
        is_object = not (inspect.isroutine(called) or inspect.isclass(called))
        # This has the docstring and the annotations.
        inner = type(called).__call__ if is_object else called
        self.description, self.described = read_docstring(docstring_of(inner, called))
        self.untyped: list[str] = []
        self.accepts_any = False
        # In the order of the signature. The field of the model, or None for a hidden parameter.
        self._parameters: list[tuple[inspect.Parameter, str | None]] = []
        hints = _lenient_hints(inner) if is_lenient else _hints(name, inner, names)
        fields: dict[str, Any] = {}
        for parameter in _parameters_of(name, func):
            hint = hints.get(parameter.name, Any)
            if is_lenient and parameter.default is None:
                hint = Optional[hint]  # noqa: UP045 - it can be a string; models write null for what they can omit
            if parameter.kind is parameter.VAR_KEYWORD:
                self.accepts_any = True
            elif is_hidden(parameter, hints.get(parameter.name, parameter.empty)):
                self._parameters.append((parameter, None))
            else:
                # Any name is allowed for an argument, and not for a field of a pydantic model: hence aliases.
                field = f"argument_{len(fields)}"
                fields[field] = _field(parameter, hint, self.described.get(parameter.name))
                self._parameters.append((parameter, field))
                if parameter.annotation is parameter.empty:
                    self.untyped.append(parameter.name)
        super().__init__(name, _model(name, fields, "allow" if self.accepts_any else "forbid"))

    def bind(self, checked: pydantic.BaseModel, hidden: Any = None) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the named arguments of the call. ``hidden`` is the value of hidden parameters."""
        positional: list[Any] = []
        named: dict[str, Any] = dict(checked.model_extra or {})
        for parameter, field in self._parameters:
            value = hidden if field is None else getattr(checked, field)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                named[parameter.name] = value
        return positional, named


def called_function(func: Any) -> Any:
    """Return the function or object in partials."""
    while hasattr(func, "func"):
        func = func.func
    return func


def _parameters_of(name: str, func: Any) -> list[inspect.Parameter]:
    try:
        parameters = [*inspect.signature(func).parameters.values()]
    except (TypeError, ValueError) as error:
        raise SignatureError(f"{name!r} has no signature to read ({error}): wrap it in a function") from error
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise SignatureError(f"{name!r}: models cannot give *{parameter.name}: name the arguments")
    return parameters


def _model(name: str, fields: Mapping[str, Any], extra: Literal["allow", "forbid"]) -> type[pydantic.BaseModel]:
    try:
        model: type[pydantic.BaseModel] = pydantic.create_model(
            name, __config__=pydantic.ConfigDict(extra=extra), **fields
        )
        model.model_json_schema()
    except (pydantic.errors.PydanticUserError, TypeError, NameError) as error:
        raise SignatureError(
            f"{name!r}: its arguments cannot be described to a model ({str(error).splitlines()[0]}): annotate them "
            "with JSON-like types or pydantic models"
        ) from error
    return model


def _hints(name: str, inner: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return type_hints(_annotated(inner), localns=names, include_extras=True)
    except NameError as error:
        raise SignatureError(
            f"{name!r}: the annotation {error.name!r} cannot be found when the job runs: "
            "import it at the top of the module, outside TYPE_CHECKING"
        ) from error
    except TypeError:
        return {}  # a builtin without annotations


def _lenient_hints(inner: Any) -> dict[str, Any]:
    """Return the annotations. ``Any`` replaces those that cannot be resolved or described."""
    function = _annotated(inner)
    found: dict[str, Any] = {}
    for name, annotation in getattr(function, "__annotations__", {}).items():
        one = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            hint = type_hints(one, inspect.unwrap(function).__globals__, include_extras=True)[name]
            pydantic.TypeAdapter(hint).json_schema()
        except Exception:  # annotations are expressions, and raise anything
            hint = Any
        found[name] = hint
    return found


def _annotated(inner: Any) -> Any:
    """Return the function that has the annotations."""
    if inspect.isclass(inner):
        return inner.__init__
    return inner if inspect.isroutine(inner) else getattr(inner, "__call__", inner)  # noqa: B004


def _field(parameter: inspect.Parameter, hint: Any, described: str | None) -> tuple[Any, Any]:
    default = ... if parameter.default is parameter.empty else parameter.default
    extras = getattr(hint, "__metadata__", ())
    described = described or next((extra for extra in extras if isinstance(extra, str)), None)
    if not described or any(isinstance(extra, FieldInfo) and extra.description for extra in (*extras, default)):
        return Annotated[hint, pydantic.Field(alias=parameter.name)], default
    return Annotated[hint, pydantic.Field(alias=parameter.name, description=described)], default
