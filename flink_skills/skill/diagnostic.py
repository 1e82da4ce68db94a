"""What loading has to say about a skill: stable codes, a severity, a place and a mend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Literal

__all__ = ["CODES", "Code", "Diagnostic", "Report", "Severity"]

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Diagnostic:
    """One remark about a skill or a source.

    ``skill`` is the name of the skill where it is known, ``path`` the file or folder, ``line`` counts from 1
    (0: the whole file), ``mend`` says what to do.

    >>> str(Diagnostic("F07", "warning", "the name is not the folder's", "a", "/s/b/SKILL.md", 2, "rename"))
    "/s/b/SKILL.md:2: warning F07: the name is not the folder's (rename)"
    """

    code: str
    severity: Severity
    message: str
    skill: str = ""
    path: str = ""
    line: int = 0
    mend: str = ""

    def __str__(self) -> str:
        place = self.path + (f":{self.line}" if self.line else "")
        mend = f" ({self.mend})" if self.mend else ""
        return f"{place or self.skill}: {self.severity} {self.code}: {self.message}{mend}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Code:
    """Meaning of a diagnostic code, and how grave it is in lenient and in strict loading."""

    meaning: str
    lenient: Severity
    strict: Severity


CODES: Mapping[str, Code] = MappingProxyType(
    {
        "F01": Code("the file is not named exactly SKILL.md", "warning", "warning"),
        "F02": Code("no front matter between two '---' lines at the very start", "error", "error"),
        "F03": Code("no name", "warning", "error"),
        "F04": Code("the name is longer than 64 characters", "warning", "error"),
        "F05": Code("the name has characters other than lowercase letters, digits, hyphens", "warning", "error"),
        "F06": Code("the name begins or ends with a hyphen or has two in a row", "warning", "error"),
        "F07": Code("the name is not the folder's name", "warning", "error"),
        "F08": Code("no description that can be used", "error", "error"),
        "F09": Code("the description is no string or longer than 1024 characters", "warning", "error"),
        "F10": Code("license is no string", "warning", "error"),
        "F11": Code("compatibility is no string of 1 to 500 characters", "warning", "error"),
        "F12": Code("metadata is no map of strings to strings", "warning", "error"),
        "F13": Code("allowed-tools is no string of names separated by spaces", "warning", "error"),
        "F14": Code("a field that the format does not know", "info", "warning"),
        "F17": Code("the body has more than 500 lines", "info", "info"),
        "F18": Code("the body has more than about 5,000 tokens", "info", "info"),
        "F19": Code("the body refers to a file that is not there", "info", "info"),
        "L01": Code("the file begins with a byte order mark", "info", "warning"),
        "L02": Code("lines end with carriage returns", "info", "info"),
        "L03": Code("bytes that are not UTF-8 were replaced", "warning", "error"),
        "L04": Code("an unquoted value with ': ' in it was read as text", "warning", "error"),
        "L05": Code("text on the line of a block mark ('|', '>') was read as part of the block", "warning", "error"),
        "L06": Code("a value that YAML cannot read was taken as text", "warning", "error"),
        "L07": Code("a field is there twice; the last one counts", "warning", "error"),
        "L08": Code("a YAML tag was ignored", "warning", "error"),
        "L09": Code("blank lines before the front matter", "warning", "error"),
        "L10": Code("the front matter is no YAML mapping and cannot be repaired", "error", "error"),
        "L11": Code("control characters in the front matter were removed", "warning", "error"),
        "D01": Code("a limit of the search for skills was reached", "warning", "warning"),
        "D02": Code("a skill of that name was declared before", "warning", "warning"),
        "D03": Code("the same skill, byte for byte, was declared before", "info", "info"),
        "D04": Code("a source without any skill", "warning", "error"),
        "D05": Code("a file or folder that cannot be read", "error", "error"),
        "D06": Code("a source that cannot be read", "error", "error"),
        "P01": Code("the menu was shortened to its budget", "warning", "warning"),
        "S04": Code("a link that leaves its source", "warning", "error"),
        "S05": Code("larger than the limit", "error", "error"),
        "S06": Code("hidden or control characters, or an HTML comment", "warning", "warning"),
    }
)


class Report:
    """Collects the diagnostics of one skill or source.

    The severity comes from :data:`CODES` and the mode; :attr:`strict_valid` says whether strict loading
    would have accepted it, whatever the mode.
    """

    def __init__(self, path: str = "", *, strict: bool = False) -> None:
        self.path = path
        self.strict = strict
        self.skill = ""
        self.strict_valid = True
        self._found: list[tuple[str, Severity, str, str, int, str]] = []

    def add(
        self,
        code: str,
        message: str,
        *,
        mend: str = "",
        line: int = 0,
        path: str | None = None,
        severity: Severity | None = None,
    ) -> None:
        meaning = CODES[code]
        if severity is None:
            severity = meaning.strict if self.strict else meaning.lenient
            if meaning.strict == "error":
                self.strict_valid = False
        elif severity == "error":
            self.strict_valid = False
        self._found.append((code, severity, message, self.path if path is None else path, line, mend))

    @property
    def has_errors(self) -> bool:
        return any(severity == "error" for _, severity, *_ in self._found)

    @property
    def diagnostics(self) -> list[Diagnostic]:
        return [
            Diagnostic(code, severity, message, self.skill, path, line, mend)
            for code, severity, message, path, line, mend in self._found
        ]
