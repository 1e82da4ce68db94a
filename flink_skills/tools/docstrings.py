"""What a docstring says of a function and of its arguments: Google, numpy and reST style."""

from __future__ import annotations

import inspect
import re

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
