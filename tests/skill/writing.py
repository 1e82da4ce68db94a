"""Skills on disk, for the tests of this package."""

from pathlib import Path

from flink_skills.skill import LoadResult, load_folder


def write(folder: Path, text: str | bytes, file: str = "SKILL.md") -> Path:
    """``text``, to the byte, as the skill file of ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def load(folder: Path, **options: object) -> LoadResult:
    return load_folder(str(folder), **options)  # type: ignore[arg-type]


def codes(result: LoadResult, severity: str = "") -> list[str]:
    """The different codes of a result, sorted; those of one severity where it is given."""
    return sorted({each.code for each in result.diagnostics if severity in ("", each.severity)})
