"""Output files of a run: the requested patterns, and their content in the result."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from flink_skills.execution.workspace import WRITABLE, CollectedFile, WorkspacePathError
from flink_skills.execution.workspace.globs import Globs
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.tools.arguments import ArgumentError
from flink_skills.tools.commands.hidden import HiddenValues
from flink_skills.tools.runs.run_arguments import RunArguments, RunOutputs
from flink_skills.tools.runs.run_paths import Places

# Occurs in no text, because it is not valid UTF-8.
_CUT = b"\xff\xff\xff"
_MAX_PRIMARY = 32 << 10
_MAX_EXPORTED = 20
_MAX_PATTERNS = 64
# The directory also has files of earlier runs, and the age of a file is unknown before it is read.
_MAX_SCANNED = 200


@dataclass(frozen=True)
class OutputRequest:
    """Patterns relative to the workspace, the use of the matching files, and limits (counts and bytes).

    ``exported`` is the maximum number of files that are read without a request, if only the command can have written
    them.
    """

    patterns: tuple[str, ...]
    inline: bool
    save: bool
    prefix: str
    max_files: int
    max_file_bytes: int
    max_total_bytes: int
    exported: int = 0


def requests_of(
    asked: RunArguments, places: Places, config: SkillConfig
) -> tuple[tuple[OutputRequest, ...], list[str]]:
    """Return the requested output files, and warnings about patterns that cannot match.

    The job's options can add to the request. Raises :class:`~flink_skills.tools.arguments.ArgumentError`.
    """
    save: bool = config.get(SkillOptions.RUN_SAVE_ARTIFACTS)
    omit: bool = config.get(SkillOptions.RUN_OMIT_INLINE) or asked.omit_inline_content
    named = RunOutputs(
        globs=asked.output_files, inline=True, save=asked.save_as_artifacts, name_template=asked.artifact_prefix
    )
    requests: list[OutputRequest] = []
    warnings: list[str] = []
    for argument, wanted in (("output_files", named), ("outputs", asked.outputs or RunOutputs())):
        patterns = _patterns(argument, wanted.globs, places, warnings)
        if patterns:
            requests.append(
                OutputRequest(
                    patterns,
                    wanted.inline and not omit,
                    wanted.save or save,
                    wanted.name_template,
                    wanted.max_files,
                    wanted.max_file_bytes,
                    wanted.max_total_bytes,
                )
            )
    if asked.outputs is not None and asked.outputs.model_fields_set and not requests and not warnings:
        warnings.append("outputs has no globs, so no file was looked for: name some, like out/*.txt")
    return tuple(requests), warnings


def export_request(places: Places) -> OutputRequest:
    """Return the request for the files in the output directory, for a run that names none."""
    folder = places.output_dir.relative_to(places.workspace.root).as_posix()
    most = _MAX_PRIMARY + 1
    return OutputRequest((f"{folder}/**",), False, False, "", _MAX_SCANNED, most, _MAX_SCANNED * most, _MAX_EXPORTED)


def unmatched(patterns: Sequence[str], files: Sequence[CollectedFile]) -> list[str]:
    """Return the patterns without a matching file."""
    globs = {pattern: Globs([pattern], WRITABLE) for pattern in patterns}
    return [pattern for pattern in patterns if not any(_matches(globs[pattern], file.name) for file in files)]


def _matches(globs: Globs, name: str) -> bool:
    *folders, base = name.split("/")
    position = globs.start
    for folder in folders:
        position = globs.enter(folder, position)
    return globs.is_match(base, position)


def _patterns(argument: str, globs: Iterable[str], places: Places, warnings: list[str]) -> tuple[str, ...]:
    found: list[str] = []
    for text in filter(str.strip, globs):
        path = places.relative(argument, text)
        # A directory means the files in it.
        pattern = f"{path}/**" if path in WRITABLE or text.rstrip().endswith("/") else path
        try:
            if pattern is None:
                raise WorkspacePathError(f"{text!r} leads out of it", "invalid")
            Globs([pattern], WRITABLE)
        except WorkspacePathError as error:
            warnings.append(f"{argument} are workspace-relative, like out/*.txt or $OUTPUT_DIR/*.txt: {error}")
        else:
            found.append(pattern)
    if len(found) > _MAX_PATTERNS:
        raise ArgumentError(f"{argument}: {len(found)} patterns are too many: give at most {_MAX_PATTERNS}.")
    return tuple(dict.fromkeys(found))


def text_of(data: bytes, truncated: bool, hidden: HiddenValues) -> str | None:
    """Return ``data`` as text without hidden values and without an incomplete last character. None for binary data.

    >>> text_of("grün".encode()[:3], True, HiddenValues()), text_of(bytes(4), False, HiddenValues())
    ('gr', None)
    """
    if b"\0" in data:
        return None
    if truncated:
        # A value that the limit truncated is hidden as well.
        data = hidden.in_bytes(data + _CUT, _CUT).partition(_CUT)[0]
    try:
        return hidden.in_text(codecs.getincrementaldecoder("utf-8")().decode(data, not truncated))
    except UnicodeDecodeError:
        return None


def entry_of(file: CollectedFile, content: str | None) -> dict[str, Any]:
    """Return the description of a file in the result, without ``content`` if it is empty."""
    entry: dict[str, Any] = {"name": file.name, "ref": f"workspace://{file.name}"}
    if content:
        entry["content"] = content
    entry["mime_type"] = file.mime_type
    entry["size_bytes"] = file.size
    if file.truncated:
        entry["truncated"] = True
    return entry


def primary_of(files: Sequence[CollectedFile], omit: bool, hidden: HiddenValues) -> dict[str, Any] | None:
    """Return the first small text file by name. Return None if there are only other files."""
    for file in sorted(files, key=lambda file: file.name):
        if 0 < file.size <= _MAX_PRIMARY and not file.truncated:
            content = text_of(file.data, False, hidden)
            if content:
                return entry_of(file, None if omit else content)
    return None


NO_ARTIFACTS = f"this job saves no artifacts: {SkillOptions.ARTIFACTS_DIR.key} is not set"
