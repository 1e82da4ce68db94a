"""Diagnostics of loading a skill: a stable code, a severity, a location and a fix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Literal

from flink_skills.hints import none_is_default

__all__ = ["CODES", "Code", "Diagnostic", "Report", "Severity"]

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


CODES: Mapping[str, Code] = MappingProxyType(
    {
        "F01": Code("the file is not named exactly SKILL.md", "warning", "warning", "name it SKILL.md"),
        "F02": Code(
            "the file does not start with front matter between two '---' lines",
            "error",
            "error",
            "begin the file with a line '---', 'name:' and 'description:' lines, and a line '---'",
        ),
        "F03": Code("no name", "warning", "error", "add a line 'name:' with the name of the folder"),
        "F04": Code("the name is longer than 64 characters", "warning", "error", "use at most 64 characters"),
        "F05": Code(
            "the name has characters other than lowercase letters, digits, hyphens",
            "warning",
            "error",
            "use lowercase letters, digits and hyphens",
        ),
        "F06": Code(
            "the name begins or ends with a hyphen or has two in a row",
            "warning",
            "error",
            "use single hyphens, between letters or digits",
        ),
        "F07": Code("the name is not the folder's name", "warning", "error", "rename one of them"),
        "F08": Code(
            "the description is missing or unusable",
            "error",
            "error",
            "describe what the skill does and when to use it",
        ),
        "F09": Code(
            "the description is not a string of at most 1024 characters",
            "warning",
            "error",
            "write it as text of at most 1024 characters; details belong to the body",
        ),
        "F10": Code("license is not a string", "warning", "error", "write it as a string, in quotes if needed"),
        "F11": Code(
            "compatibility is not a string of 1 to 500 characters",
            "warning",
            "error",
            "write it as text of at most 500 characters",
        ),
        "F12": Code(
            "metadata is not a map of strings to strings",
            "warning",
            "error",
            "write indented 'key: value' lines below 'metadata:'",
        ),
        "F13": Code(
            "allowed-tools is not a string of names separated by spaces",
            "warning",
            "error",
            "write one text with names separated by spaces",
        ),
        "F14": Code("a field that the format does not know", "info", "warning", "move it into metadata"),
        "F17": Code("the body has more than 500 lines", "info", "info", "move parts of it into references"),
        "F18": Code("the body has more than about 5,000 tokens", "info", "info", "move parts of it into references"),
        "F19": Code(
            "the body refers to a file that is missing, outside the skill, or more than one folder down",
            "info",
            "info",
            "write the path from the skill's folder, at most one folder down",
        ),
        "F20": Code(
            "the body refers to a generated file, which is not part of a skill",
            "warning",
            "error",
            "move it to a folder with another name",
        ),
        "L01": Code(
            "the file begins with a byte order mark", "info", "warning", "save it as UTF-8 without a byte order mark"
        ),
        "L02": Code("lines end with carriage returns", "info", "info", "use \\n line ends"),
        "L03": Code("bytes that are not UTF-8 were replaced", "warning", "error", "save the file as UTF-8"),
        "L04": Code(
            "an unquoted value with ': ' in it was read as text", "warning", "error", "put the value in quotes"
        ),
        "L05": Code(
            "text on the line of a block mark ('|', '>') was read as part of the block",
            "warning",
            "error",
            "begin the text on the next line, indented",
        ),
        "L06": Code("a value that YAML cannot read was taken as text", "warning", "error", "put the value in quotes"),
        "L07": Code("a field is duplicated; the last one applies", "warning", "error", "keep one of them"),
        "L08": Code("a YAML tag was ignored", "warning", "error", "remove the tag"),
        "L09": Code("blank lines before the front matter", "warning", "error", "remove them"),
        "L10": Code(
            "the front matter is not a YAML mapping and cannot be repaired",
            "error",
            "error",
            "put the values in quotes",
        ),
        "L11": Code("control characters in the front matter were removed", "warning", "error", "remove them"),
        "L12": Code(
            "an unquoted value ends at ' #', where YAML takes the rest for a comment",
            "warning",
            "warning",
            "put the value in quotes, or a space after the '#'",
        ),
        "L13": Code(
            "front matter is missing: the name is the folder's, the description the first '# ' heading",
            "info",
            "error",
            "begin the file with front matter",
        ),
        "L14": Code(
            "a line of the front matter without a field was read as text, or skipped if it is '...'",
            "warning",
            "error",
            "indent it, or remove it",
        ),
        "L15": Code("a field is written with capitals", "warning", "error", "write it in lower case"),
        "L16": Code("a file in UTF-16", "error", "error", "save it as UTF-8"),
        "L17": Code("two fields on one line", "warning", "error", "write each field on its own line"),
        "D01": Code(
            "a limit of the search for skills was reached",
            "warning",
            "warning",
            "raise skills.limits.tree-directories, or point the source at a smaller folder",
        ),
        "D02": Code("a skill of that name was declared before", "warning", "warning", "rename one of them"),
        "D03": Code("the same skill, byte for byte, was declared before", "info", "info", "remove one of them"),
        "D04": Code("a source without any skill", "warning", "error", "a skill is a folder with a SKILL.md"),
        "D05": Code("a file or folder that cannot be read", "error", "error", "check the file and its permissions"),
        "D06": Code("a source that cannot be read", "error", "error", "check the source"),
        "D07": Code(
            "generated files, such as caches and installed packages, which are not part of a skill",
            "info",
            "info",
            "remove them, or ignore this",
        ),
        "D08": Code(
            "tests or proofs next to the skill file, which are not part of a skill: models do not read them",
            "info",
            "info",
            "move what models need to another folder, or ignore this",
        ),
        "D09": Code(
            "a folder with tools.py and without SKILL.md, which is not a skill",
            "warning",
            "warning",
            "add a SKILL.md, or move the file",
        ),
        "P01": Code("the menu was shortened to its budget", "warning", "warning", "choose fewer skills"),
        "S04": Code(
            "a link that leaves its source, or points to nothing", "warning", "error", "copy what it points to"
        ),
        "S05": Code("larger than the limit", "error", "error", "make it smaller"),
        "S06": Code("hidden or control characters, or an HTML comment", "warning", "warning", "remove them"),
        "S13": Code(
            "a file that looks like a secret: by its name, or by a private key or token in it",
            "warning",
            "error",
            "remove it from the skill, and pass the value to its commands with skills.env",
        ),
        "T01": Code("schema.json cannot be used", "error", "error", "write a JSON list of tools"),
        "T02": Code("tools.py is not valid Python", "error", "error", "fix the syntax"),
        "T03": Code(
            "a tool that is left out: its name, its parameters or its command cannot be used",
            "error",
            "error",
            "use names of at most 64 letters, digits, '_' and '-', and parameters of type object",
        ),
        "T04": Code(
            "schema.json declares a tool that tools.py does not define",
            "error",
            "error",
            "define the function, give the entry a 'command', or remove the entry",
        ),
        "T05": Code(
            "a function of tools.py that schema.json does not declare, so it is not a tool",
            "warning",
            "warning",
            "add it to schema.json, or begin its name with '_'",
        ),
        "T07": Code(
            "the parameters of a tool are not a valid JSON schema",
            "warning",
            "error",
            "write a JSON schema of type object",
        ),
        "T08": Code("two tools of one name", "warning", "error", "rename one of them"),
        "T09": Code(
            "more than 8 tools, which all requests of a model have while the skill is loaded",
            "info",
            "info",
            "combine some, or split the skill",
        ),
        "T10": Code("more than 64 tools: the others are left out", "error", "error", "split the skill"),
        "T11": Code("a tool that is named like its skill", "warning", "warning", "rename the tool"),
        "T12": Code(
            "the 'Tools:' section names a tool that the skill does not bring",
            "info",
            "info",
            "correct the name, or add the tool to the pool of the agent",
        ),
        "T13": Code(
            "a list of tools that is not read",
            "info",
            "info",
            "write a line 'Tools:' and below it a line '- name' for each tool",
        ),
        "U01": Code(
            "allowed-tools names a tool that does not exist here",
            "warning",
            "warning",
            "do the same with a command",
            unsupported=True,
        ),
        "U02": Code(
            "allowed-tools names a tool that an agent here has only if it declares it",
            "info",
            "info",
            "declare the tool with @tool_set, set skills.tools, or tell the model to use a shell command",
        ),
        "U03": Code(
            "a script in a language that this machine cannot run",
            "warning",
            "warning",
            "install the interpreter where the job runs",
            unsupported=True,
        ),
        "U04": Code(
            "scripts, but models cannot run commands here",
            "warning",
            "warning",
            "allow shell commands",
            unsupported=True,
        ),
        "U05": Code(
            "hooks are never run", "warning", "warning", "say in the body what to run, and when", unsupported=True
        ),
        "U06": Code(
            "a skill runs in the agent that loads it: 'context', 'agent' and 'model' change nothing",
            "info",
            "info",
            "declare an agent or a model setup with this skill",
        ),
        "U07": Code(
            "a '!`command`' in the body is not run", "warning", "warning", "tell the model to run it", unsupported=True
        ),
        "U08": Code("an argument such as $ARGUMENTS is not filled in", "info", "info", "say in words what is meant"),
        "U09": Code(
            "a requirement of the skill is missing",
            "warning",
            "warning",
            "install or set it where the job runs",
            unsupported=True,
        ),
        "U10": Code(
            "a skill is hidden from models because a requirement is missing",
            "warning",
            "error",
            "install or set it where the job runs, or leave the skill out",
            unsupported=True,
        ),
        "U11": Code(
            "a skill that is hidden from models, because it needs what the job does not have",
            "warning",
            "warning",
            "add what the message names, remove the skill, or set skills.unsupported to report",
        ),
        "U12": Code(
            "a skill brings tools, and models are not offered them",
            "warning",
            "warning",
            "set skills.bundled-tools to true, and skills.shell.enabled to true",
            unsupported=True,
        ),
        "E01": Code(
            "evals/evals.json is not in the format of the Agent Skills site",
            "warning",
            "warning",
            "write skill_name, and evals with id, prompt, expected_output, files and assertions",
        ),
        "X01": Code(
            "a script that the instructions run directly, and that is not executable",
            "warning",
            "error",
            "set its execute bit (chmod +x), or run it with its interpreter",
        ),
        "X02": Code("a script with a syntax error", "warning", "error", "correct the script"),
        "X03": Code(
            "a script whose lines end with carriage returns, which its interpreter does not accept",
            "warning",
            "warning",
            "use \\n line ends",
        ),
    }
)


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
