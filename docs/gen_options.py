"""Write ``docs/reference/options.md`` from :class:`flink_skills.SkillOptions`.

python -m docs.gen_options           write the page
python -m docs.gen_options --check   exit with 1 when the page is not what the options say
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from docs.generated import write_or_check
from flink_skills import SkillOptions
from flink_skills.options import Option, OptionFamily
from flink_skills.options import option as parsers

PAGE = Path(__file__).resolve().parent / "reference" / "options.md"

_HEAD = """\
# Options

<!-- Written by docs/gen_options.py from flink_skills.options. Change it there, then run the script. -->

Look up an option: its key, its default and its effect. Every option can be set in Flink's `config.yaml`, with
`-D KEY=VALUE` on Flink's command line, with `agents_env.get_config().set(...)` in code and with `--set KEY=VALUE` of
`flink-skills`. Code wins over Flink's configuration. The constant of `skills.turn.max-steps` is
`flink_skills.SkillOptions.TURN_MAX_STEPS`; another one is in parentheses. An unknown key or a value that cannot be used
is an error in the client, before anything is submitted.

How values are written:

| kind | example |
|---|---|
| duration | `30 s`, `500 ms`, `5 min`, `2 h`, `1 d`; a plain number is seconds |
| size | `64 kb`, `1 gb` (powers of 1024); a plain number is bytes |
| list | `a;b`, or `[a, b]`; a list in code |
| boolean | `true`, `false` |
| reference | `${env:NAME}`, `${file:/path}`: read where it is needed, so that the secret itself is in no plan |
"""

_KINDS: dict[Callable[[Any], Any], str] = {
    parsers.parse_duration: "duration",
    parsers.parse_size: "size",
    parsers.parse_bool: "boolean",
    parsers.parse_count: "number, 0 or more",
    parsers.parse_positive: "number, 1 or more",
    parsers.parse_text: "text",
    parsers.parse_endpoint: "address",
    parsers.parse_folder: "absolute path",
    parsers.parse_folders: "list of absolute paths",
    parsers.parse_list: "list",
    parsers.parse_labels: "list",
    parsers.parse_user: "`uid:gid`",
    parsers.parse_user_value: "text",
    parsers.parse_reference: "reference",
    parsers.parse_optional_reference: "reference",
}

_GROUPS = {
    "from": "Skill sources",
    "source": "Reading sources",
    "limits": "Limits of sources and skills",
    "store": "Store",
    "refresh": "Refresh and lock",
    "lock": "Refresh and lock",
    "strict": "Checks",
    "strict-fields": "Checks",
    "validate-on-submit": "Checks",
    "tools": "Tools for skills",
    "bundled-tools": "Tools for skills",
    "load": "Tools for skills",
    "max-loaded": "Tools for skills",
    "run": "Tools for skills",
    "exec": "Tools for skills",
    "artifacts": "Tools for skills",
    "prompt": "Prompt",
    "model": "Models",
    "turn": "Turns",
    "session": "Sessions",
    "worker": "Workers",
    "metrics": "Metrics, events, spans",
    "events": "Metrics, events, spans",
    "trace": "Metrics, events, spans",
    "shell": "Commands",
    "env": "Commands",
    "workspace": "Workspaces",
    "shell.remote": "Commands in a Kubernetes cluster",
    "user": "Custom keys",
}
#: Effects of reaching limits.
_EFFECTS = {
    "skills.turn.max-steps": "error record",
    "skills.turn.timeout": "error record; counts again from zero after a restart",
    "skills.turn.max-tokens": "error record",
    "skills.turn.max-size": "error record",
    "skills.turn.max-repeats": "error record that names the call",
    "skills.turn.max-output-retries": "error record",
    "skills.worker.max-in-flight": "backpressure",
    "skills.worker.max-pending": "backpressure: events of other keys wait as well",
    "skills.session.max-tokens": "older turns are omitted or summarized (`skills.session.strategy`)",
    "skills.session.max-conversations": "the least recently used conversations are removed",
    "skills.session.ttl": "the key's state and conversations are removed, and its turns are numbered from 1 again",
    "skills.max-loaded": "the least recently used skills are unloaded",
    "skills.model.max-concurrent": "requests wait (`limitWaitTime`)",
    "skills.model.max-requests-per-minute": "requests wait",
    "skills.model.max-tokens-per-minute": "requests wait",
    "skills.worker.max-memory": "the worker is terminated; its turns resume",
    "skills.worker.max-block": "the worker is terminated; its turns resume",
    "skills.worker.max-silence": "the worker is killed; its turns resume",
    "skills.worker.max-crashes": "error record",
    "skills.shell.max-timeout": "the command ends, and its result names the limit",
    "skills.exec.max-sessions-per-key": "a start is rejected and lists running processes",
    "skills.exec.ttl": "the process is terminated, and its next call reports it",
    "skills.workspace.ttl": "the key's files on that host are removed",
    "skills.workspace.max-size": "commands end with `workspace_bytes`",
    "skills.workspace.max-files": "commands end with `workspace_files`",
    "skills.artifacts.max-size": "the artifact is not saved, and the result reports it",
    "skills.store.max-size": "unused archives are evicted",
}
_LIMITS = """
## Limits

To derive values from a load, see [Size a job](../sizing.md). The metric `inFlight` at `skills.worker.max-in-flight`
needs more turns in flight or subtasks, `pending` at `skills.worker.max-pending` a finer key. If `limitWaitTime` grows,
raise the limits of models, and if `workerRestarts` grows, those of workers.

| option | default | effect |
|---|---|---|
"""
_WITHOUT_OPTION = """
Limits without an option: a worker caches 10,000 sessions, in 1/16 of its memory (at least 16 MiB, or 128 MiB without a
memory limit), and another session is sent again with the key's next turn. Answers that wait because outputs are blocked
use 1/16 of the TaskManager's heap per job, and then a file below `io.tmp.dirs`.
"""
#: Of options that nobody has put into a group yet.
_OTHER = "Others"
_ORDER = [*dict.fromkeys(_GROUPS.values()), _OTHER]
_DECLARED = (Option, OptionFamily)
_Declared: TypeAlias = "Option[Any] | OptionFamily[Any]"


def render() -> str:
    """The page as text."""
    constants = {id(getattr(SkillOptions, name)): name for name in dir(SkillOptions) if name.isupper()}
    options = sorted(
        [*SkillOptions.families(), *SkillOptions.all()], key=lambda one: (_ORDER.index(_group(one)), _key(one))
    )
    limits = {_key(option): option for option in options}
    rows = [f"| `{key}` | {_default(limits[key])} | {effect} |\n" for key, effect in _EFFECTS.items()]
    parts = [_HEAD, _LIMITS, *rows, _WITHOUT_OPTION]
    for group, members in groupby(options, key=_group):
        parts.append(f"\n## {group}\n\n| key | kind | default | meaning |\n|---|---|---|---|\n")
        parts += [_row(option, constants[id(option)]) for option in members]
    return "".join(parts)


def _key(option: _Declared) -> str:
    return option.key if isinstance(option, Option) else option.prefix + option.names


def _group(option: _Declared) -> str:
    words = _key(option).split(".")[1:]
    return _GROUPS.get(".".join(words[:2])) or _GROUPS.get(words[0]) or _OTHER


def _row(option: _Declared, constant: str) -> str:
    key = _key(option)
    named = "" if constant == _constant(key) else f" (`{constant}`)"
    cells = (f"`{key}`{named}", _kind(option), _default(option), option.doc)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _constant(key: str) -> str:
    return re.sub(r"[.-]", "_", key.removeprefix("skills.")).upper()


def _kind(option: _Declared) -> str:
    known = _KINDS.get(option.parse)
    if known is not None:
        return known
    try:
        option.parse("\0")
    except ValueError as error:
        # A choice says its words when it is given another.
        return str(error).removeprefix("write ")
    raise TypeError(f"option {_key(option)}: {option.parse!r} has no name in docs/gen_options.py")


def _default(option: _Declared) -> str:
    value = option.default
    if value is None:
        return "unset"
    if option.parse is parsers.parse_duration:
        return f"`{value:g} s`"
    if option.parse is parsers.parse_size:
        return f"`{_size(value)}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        value = ";".join(value)
    return f"`{value}`" if value != "" else "empty"


def _size(value: int) -> str:
    for unit, factor in (("gb", 2**30), ("mb", 2**20), ("kb", 2**10)):
        if value and value % factor == 0:
            return f"{value // factor} {unit}"
    return f"{value} b"


def main(arguments: list[str]) -> int:
    """Write or check the page; returns the exit code."""
    return write_or_check(PAGE, lambda _: render(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
