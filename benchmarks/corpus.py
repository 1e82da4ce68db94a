"""Typical skills, made by a seed: the same on every machine."""

from __future__ import annotations

import os
import random
import zipfile
from pathlib import Path

_WORDS = (  # noqa: SIM905 - readable as a text
    "checkpoint state backend window watermark operator job task restart savepoint memory heap network buffer "
    "backpressure source sink partition offset topic consumer timeout latency throughput metric report table "
    "schema column query plan join aggregate filter report summary review draft invoice customer order payment "
    "document page image chart script test build deploy release container image cluster node volume secret"
).split()
_VERBS = "diagnose explain review convert summarise compare extract validate plan monitor migrate repair".split()  # noqa: SIM905
_LICENSES = ("Apache-2.0", "MIT", "Proprietary. See LICENSE.txt")


def write_skills(folder: Path, count: int) -> None:
    """``count`` skills below ``folder``: a ``SKILL.md`` of about 4 KB, a reference and a script each."""
    for number in range(count):
        name, text = skill(number)
        home = folder / name
        (home / "references").mkdir(parents=True)
        (home / "scripts").mkdir()
        (home / "SKILL.md").write_text(text)
        words = random.Random(f"reference {number}")
        (home / "references" / "details.md").write_text(_paragraphs(words, 6))
        (home / "scripts" / "run.py").write_text(f"import json, sys\n\nprint({number}, len(json.load(sys.stdin)))\n")


def skill(number: int) -> tuple[str, str]:
    """Name and ``SKILL.md`` of one skill. All of them are valid YAML and strictly valid skills."""
    words = random.Random(number)
    name = f"{words.choice(_VERBS)}-{words.choice(_WORDS)}-{number:05d}"
    return name, f"---\n{_front_matter(words, name)}---\n\n# {name}\n\n{_paragraphs(words, 8)}"


def _front_matter(words: random.Random, name: str) -> str:
    description = f"{words.choice(_VERBS).capitalize()} {_sentence(words, 14)} Use when {_sentence(words, 12)}"
    lines = [f"name: {name}"]
    style = words.random()
    if style < 0.15:
        first, second = description[:110].rsplit(" ", 1)
        lines += ["description: >", f"  {first}", f"  {second}{description[110:]}"]
    elif style < 0.3:
        lines.append(f'description: "{description}"')
    else:
        lines.append(f"description: {description}")
    if words.random() < 0.5:
        lines.append(f"license: {words.choice(_LICENSES)}")
    if words.random() < 0.3:
        lines.append("allowed-tools: Bash Read Write")
    if words.random() < 0.4:
        lines += ["metadata:", f'  version: "1.{words.randrange(20)}"', f"  author: {words.choice(_WORDS)} team"]
    return "\n".join(lines) + "\n"


def _sentence(words: random.Random, count: int) -> str:
    return " ".join(words.choice(_WORDS) for _ in range(count)) + "."


def _paragraphs(words: random.Random, count: int) -> str:
    return "\n\n".join(" ".join(_sentence(words, 10).capitalize() for _ in range(6)) for _ in range(count)) + "\n"


def pack(folder: Path, archive: Path) -> None:
    """All files below ``folder`` as a zip."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                target.write(path, path.relative_to(folder))


def write_large_skill(folder: Path, files: int = 400, size: int = 100_000) -> None:
    """One skill of ``files`` incompressible assets of ``size`` bytes."""
    home = folder / "large"
    (home / "assets").mkdir(parents=True)
    (home / "SKILL.md").write_text("---\nname: large\ndescription: Has much beside.\n---\n\n# Large\n")
    data = random.Random("large")
    for number in range(files):
        (home / "assets" / f"{number:03d}.bin").write_bytes(data.randbytes(size))
    home = folder / "small"
    home.mkdir()
    (home / "SKILL.md").write_text("---\nname: small\ndescription: Has nothing beside.\n---\n\n# Small\n")


def make_writable(folder: Path) -> None:
    """The store's folders are read-only: allow removing them."""
    for path, _, _ in os.walk(folder):
        Path(path).chmod(0o700)
