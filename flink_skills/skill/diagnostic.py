"""Diagnostics of loading a skill: a stable code, a severity, a location and a fix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Literal, cast

from flink_skills.hints import none_is_default
from flink_skills.texts import table

Severity = Literal["error", "warning", "info"]


@none_is_default
@dataclass(frozen=True)
class Diagnostic:
    """One remark about a skill or a source.

    ``skill`` is the name of the skill where it is known, ``path`` the file or folder, ``line`` counts from 1
    (0: the whole file), ``fix`` says what to do. ``left_out`` is the number of skills that a limit left out.

    >>> str(Diagnostic("F07", "warning", "the name is not the folder's", "a", "/s/b/SKILL.md", 2, "rename"))
    "/s/b/SKILL.md:2: warning F07: the name is not the folder's (rename)"
    """

    code: str
    severity: Severity
    message: str
    skill: str = ""
    path: str = ""
    line: int = 0
    fix: str = ""
    left_out: int = 0

    def __str__(self) -> str:
        place = self.path + (f":{self.line}" if self.line else "")
        fix = f" ({self.fix})" if self.fix else ""
        return f"{place or self.skill}: {self.severity} {self.code}: {self.message}{fix}"

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        if not self.left_out:
            del data["left_out"]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Diagnostic:
        """The diagnostic that :meth:`to_json` wrote.

        >>> Diagnostic.from_json(Diagnostic("F03", "warning", "there is no name").to_json()).code
        'F03'
        """
        return cls(**data)


@dataclass(frozen=True)
class Code:
    """Meaning of a diagnostic code, how grave it is in lenient and in strict loading, and the usual fix.

    ``unsupported``: the skill needs what the job does not have, which the option ``skills.unsupported`` decides about.
    """

    meaning: str
    lenient: Severity
    strict: Severity
    fix: str
    unsupported: bool = False


def _read_codes() -> Iterator[tuple[str, Code]]:
    for code, lenient, strict, need, meaning, fix in table("diagnostics.txt", beside=__file__):
        yield code, Code(meaning, cast(Severity, lenient), cast(Severity, strict), fix, need == "unsupported")


CODES: Mapping[str, Code] = MappingProxyType(dict(_read_codes()))


class Report:
    """Collects the diagnostics of one skill or source.

    The severity comes from :data:`CODES` and the mode; :attr:`strict_valid` says whether strict loading
    would have accepted it, whatever the mode. With ``known_fields_only`` unknown fields are errors in strict
    loading, as the format's reference validator has it.
    """

    __slots__ = ("_found", "_known_fields_only", "path", "skill", "strict", "strict_valid")

    def __init__(
        self, path: str = "", *, skill: str = "", strict: bool = False, known_fields_only: bool = False
    ) -> None:
        self.path = path
        self.strict = strict
        self.skill = skill
        self.strict_valid = True
        self._known_fields_only = known_fields_only
        self._found: list[tuple[str, Severity, str, str, int, str, int]] = []

    def add(
        self,
        code: str,
        message: str,
        *,
        fix: str = "",
        line: int = 0,
        path: str | None = None,
        severity: Severity | None = None,
        left_out: int = 0,
    ) -> None:
        """Add a diagnostic. Severity and fix default to those of the code."""
        known = CODES[code]
        if severity is None:
            in_strict = "error" if code == "F14" and self._known_fields_only else known.strict
            severity = in_strict if self.strict else known.lenient
            if in_strict == "error":
                self.strict_valid = False
        if severity == "error":
            self.strict_valid = False
        path = self.path if path is None else path
        self._found.append((code, severity, message, path, line, fix or known.fix, left_out))

    @property
    def has_errors(self) -> bool:
        return any(severity == "error" for _, severity, *_ in self._found)

    @property
    def diagnostics(self) -> list[Diagnostic]:
        return [
            Diagnostic(code, severity, message, self.skill, path, line, fix, left_out)
            for code, severity, message, path, line, fix, left_out in self._found
        ]
