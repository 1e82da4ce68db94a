"""Write ``docs/reference/tools.md``: the tools for skills as a model is told of them.

python -m docs.gen_tools           write the page
python -m docs.gen_tools --check   exit with 1 when the page is not what the tools say
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs.generated import write_or_check
from flink_skills import AgentSkillManager, SkillConfig
from flink_skills.cli.look.prompt_request import first_request
from flink_skills.tools.profiles import FACES, PROFILES

PAGE = Path(__file__).resolve().parent / "reference" / "tools.md"

_SKILL = "a-skill"
_HEAD = """\
# Schemas of tools for skills

<!-- Written by docs/gen_tools.py from the tools. Change them there, then run the script. -->

Look up the description and the schema of a tool that a model gets, at default options. [Tools for
skills](../skill-tools.md) helps to choose between them. If the schema names the skills of the model, this page says *a
skill*.

"""


def render() -> str:
    """The page as text."""
    names = list(FACES)
    parts = [_HEAD, f"| tool | {' | '.join(f'`{profile}`' for profile in PROFILES)} |\n"]
    parts.append("|---" * (1 + len(PROFILES)) + "|\n")
    for name in names:
        marks = ("yes" if name in tools else "" for tools in PROFILES.values())
        parts.append(f"| [`{name}`](#{name}) | {' | '.join(marks)} |\n")
    specs = {spec["name"]: spec for spec in _specs(names)}
    for name in names:
        parts.append(f"\n## {name}\n\n{_text(specs[name]['description'])}\n\n")
        parts.append("| argument | type | default | meaning |\n|---|---|---|---|\n")
        parts += _rows(specs[name]["parameters"])
    return "".join(parts)


def _specs(names: list[str]) -> list[dict[str, Any]]:
    """Return tools as they travel to a model that has one skill, in a job that saves artifacts."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / _SKILL
        home.mkdir()
        (home / "SKILL.md").write_text(f"---\nname: {_SKILL}\ndescription: Any.\n---\nTools:\n- any\n\nDo it.\n")
        manager = AgentSkillManager(paths=[folder])
        manager.load_skills()
        config = SkillConfig()
        config.set("skills.tools", names)
        config.set("skills.artifacts.dir", f"file://{folder}/artifacts")
        return [json.loads(tool) for tool in first_request(manager.view(), config).tools]


def _rows(schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    required = schema.get("required", [])
    for name, value in schema.get("properties", {}).items():
        default = f"`{json.dumps(value['default'])}`" if "default" in value else ""
        said = "required" if name in required else default
        yield f"| `{prefix}{name}` | {_type(value)} | {said} | {_text(value.get('description', ''))} |\n"
        items = value.get("items", {})
        if "properties" in items:
            yield from _rows(items, f"{prefix}{name}[].")


def _type(value: Mapping[str, Any]) -> str:
    words = value.get("enum")
    if words == [_SKILL]:
        return "a skill"
    if words:
        return ", ".join(f"`{word}`" for word in words)
    kind = str(value.get("type", "any"))
    if kind == "array":
        return f"list of {_type(value.get('items', {}))}s"
    return kind


def _text(text: str) -> str:
    for mark in ("|", "*", "_", "<"):
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def main(arguments: list[str]) -> int:
    """Write or check the page; returns the exit code."""
    return write_or_check(PAGE, lambda _: render(), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
