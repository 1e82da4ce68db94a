"""Pack folders of skills into one archive: the same bytes for the same files, and nothing that would be refused.

The archive has the files of the skills alone, sorted by name, all dated 1980 and without an owner, executable or
not. Before it appears under its name it is unpacked as a job would do it, and every digest compared.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import secrets
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, NamedTuple

from flink_skills.errors import ConfigError, ResourceError
from flink_skills.skill import CODES, AgentSkill, Diagnostic, Found, Limits, LoadResult, Report, find_skills, load_found
from flink_skills.skill.credentials import credential_message, find_credentials
from flink_skills.skill.diagnostic import Severity
from flink_skills.skill.file_rules import inside, is_foreign, is_generated, link_problem, skill_file_in, walk_files
from flink_skills.skill.plugins import MANIFESTS
from flink_skills.skill.server_files import SERVER_FILES
from flink_skills.skill.skill_inspection import excluded_messages
from flink_skills.sources.archive import ArchiveKind, archive_kind, file_sha256, unpack
from flink_skills.sources.entries import ArchiveRefusedError, Extraction
from flink_skills.sources.skill_source import SourceSpec
from flink_skills.sources.tar_archive import Member, content_of, mode_of, write_tar

_KINDS = ("zip", "tar", "tar.gz")
_DATE = (1980, 1, 1, 0, 0, 0)  # the first one that a zip archive can tell
_LEVEL = 9
_CHECKED_FOR_RATIO = 16 << 10  # with its headers, no smaller file has a ratio over the limit


@dataclass(frozen=True)
class PackedSkill:
    """A skill in the archive: ``folder`` is where it was, ``path`` where it is in the archive."""

    name: str
    folder: str
    path: str
    digest: str
    files: int
    bytes: int


@dataclass(frozen=True)
class Packing:
    """What packing gave. With an error among the diagnostics nothing was written, and ``sha256`` is ""."""

    skills: tuple[PackedSkill, ...]
    diagnostics: tuple[Diagnostic, ...]
    sha256: str = ""
    bytes: int = 0


def pack_skills(
    folders: Sequence[str | SourceSpec],
    target: str,
    *,
    limits: Limits | None = None,
    strict: bool = False,
    allow_secrets: bool = False,
) -> Packing:
    """Pack the skills at and below ``folders`` (absolute paths) into ``target``: a zip, tar or tar.gz by its name.

    A skill's own folder keeps its name; skills below a folder keep their paths below it. What a loader would refuse
    or leave out is an error, and all of them are found before anything is written: links out of the folder, files
    that are too large or no files, names that collide, skills that do not load (with ``strict``: that are not valid
    to the letter), and files that look like secrets (with ``allow_secrets``: a warning). Generated files are omitted,
    with a diagnostic. Raises :class:`ConfigError` for a ``target`` that cannot be written.

        packing = pack_skills(["/home/me/skills"], "/home/me/skills.zip")
    """
    limits = limits or Limits()
    kind = archive_kind(target, b"")
    if kind not in _KINDS:
        raise ConfigError(f"{target}: name it .zip, .tar, .tar.gz or .tgz; the name says what kind of archive it is")
    target = os.path.abspath(target)
    if os.path.isdir(target) or not os.path.isdir(os.path.dirname(target)):
        problem = (
            "the target is a directory; name a file"
            if os.path.isdir(target)
            else "the directory of the target does not exist; create it"
        )
        raise ConfigError(f"{target}: {problem}")
    contents = _Contents(limits, strict, allow_secrets)
    for folder in dict.fromkeys(folders):
        contents.add_folder(folder)
    for found in contents.found:
        if inside(os.path.realpath(target), os.path.realpath(found.folder)):
            raise ConfigError(f"{target}: the target is inside the skill {found.folder}; choose a path outside it")
    members = contents.members()
    if contents.has_errors:
        return Packing((), tuple(contents.diagnostics))
    try:
        with _part_of(target) as part:
            with open(part, "xb") as file:
                _write(file, kind, members, limits)
            packed = contents.verified(part, kind)
            if contents.has_errors:
                return Packing((), tuple(contents.diagnostics))
            sha256, _, size = file_sha256(part)
            os.replace(part, target)
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written: {error.strerror or error}") from None
    return Packing(tuple(packed), tuple(contents.diagnostics), sha256, size)


class _Found(NamedTuple):
    """A skill, its real root, the format and the folder of its source, and its path in the archive."""

    folder: str
    root: str
    format: str
    path: str
    skill: AgentSkill
    source: str


class _Contents:
    """What goes into the archive, and everything that speaks against it."""

    def __init__(self, limits: Limits, strict: bool, allow_secrets: bool) -> None:
        self._limits = limits
        self._strict = strict
        self._allow_secrets = allow_secrets
        self.found: list[_Found] = []
        self.diagnostics: list[Diagnostic] = []

    @property
    def has_errors(self) -> bool:
        return any(one.severity == "error" for one in self.diagnostics)

    def _error(self, code: str, message: str, path: str, fix: str, skill: str = "") -> None:
        self.diagnostics.append(Diagnostic(code, "error", message, skill, path, fix=fix))

    def add_folder(self, source: str | SourceSpec) -> None:
        spec = SourceSpec.parse("path", source)
        folder = spec.location
        if spec.sha256:
            raise ConfigError(f"{folder}: a folder cannot be pinned with sha256; its skills can, with a lock file")
        if not os.path.isdir(folder):
            problem = "the path is not a directory" if os.path.exists(folder) else "the path does not exist"
            self._error("D06", problem, folder, "give a folder of skills or of one skill")
            return
        root = os.path.realpath(folder)
        report = Report(folder, strict=self._strict)
        wrapping = os.path.basename(root) if skill_file_in(os.listdir(folder)) else ""
        empty = True
        for found in find_skills(folder, report, self._limits):
            empty = False
            place = found.folder
            result = self._load(found, root, spec.format)
            self.diagnostics.extend(result.diagnostics)
            if result.skill is not None:
                below = os.path.relpath(place, folder)
                path = "/".join(part for part in (wrapping, below) if part not in ("", "."))
                self._add(_Found(place, found.root(root), spec.format, path, result.skill, folder))
        # What loading passes over with a word would be missing in the archive without one.
        for one in report.diagnostics:
            is_kept = one.code in ("G02", "G03") or os.path.basename(one.path) in SERVER_FILES
            self.diagnostics.append(one if is_kept else replace(one, severity="error"))
        if empty:
            self._error("D04", "there is no skill in the folder", folder, "a skill is a folder with a SKILL.md")

    def _load(self, found: Found, root: str, form: str) -> LoadResult:
        return load_found(found, root=root, strict=self._strict, limits=self._limits, format=form)

    def _add(self, found: _Found) -> None:
        for other in self.found:
            if other.path == found.path:
                message = f"{other.folder} would be at {found.path!r} in the archive too"
                self._error("D02", message, found.folder, "rename one of the folders", found.skill.name)
                return
            if other.skill.full_name == found.skill.full_name or (
                other.skill.name == found.skill.name and "" in (other.skill.plugin, found.skill.plugin)
            ):
                self._judge_namesakes(other, found)
        self.found.append(found)

    def _judge_namesakes(self, other: _Found, found: _Found) -> None:
        name, fix = found.skill.name, "rename one of them or leave it out"
        with contextlib.suppress(ResourceError):  # which members() reports
            if other.skill.digest == found.skill.digest:
                message = f"the skill is identical to {other.folder}"
                self.diagnostics.append(Diagnostic("D03", "info", message, name, found.folder, fix=fix))
                return
        self._error("D02", f"{other.folder} is a skill {name!r} too, and would hide this one", found.folder, fix, name)

    def members(self) -> list[Member]:
        """The files, sorted by their names in the archive."""
        limits = self._limits
        # Only its names are used: whether they may stand in one archive.
        names = Extraction("", limits.total, limits)
        members: list[Member] = []
        total = 0
        for found in self.found:
            for member, size in self._members_of(found):
                total += size
                members.append(member)
                if "\\" in member.name:
                    problem = f"{member.name!r}: an archive takes a backslash for the end of a folder's name"
                    self._error("D06", problem, member.real, "rename it")
                    continue
                try:
                    names.entry(member.name, is_folder=False, size=0)
                except ArchiveRefusedError as refused:
                    if len(members) <= limits.entries:
                        self._error("D06", f"the archive would be refused: {refused}", member.real, "rename it")
        packed = {member.name for member in members}
        manifests = {member.name: member for found in self.found for member in _manifests(found)}
        members += [member for name, member in manifests.items() if name not in packed]
        if len(members) > limits.entries:
            message = f"{len(members)} files are more than an archive may have, {limits.entries}"
            self._error("S05", message, self.found[0].root, "pack them into several archives")
        if total > limits.total:
            message = f"{total} bytes are more than an archive may unpack to, {limits.total}"
            self._error("S05", message, self.found[0].root, "pack them into several archives")
        return sorted(members)

    def _members_of(self, found: _Found) -> Iterator[tuple[Member, int]]:
        limits, skill = self._limits, found.skill.name
        out: list[str] = []
        excluded: list[str] = []
        files = list(walk_files(found.folder, found.root, limits.skill_files + 1, out, excluded))
        for code, message in excluded_messages(excluded):
            self.diagnostics.append(Diagnostic(code, "info", message, skill, found.folder, fix=CODES[code].fix))
        for path, credential in find_credentials(found.skill.files):
            severity: Severity = "warning" if self._allow_secrets else "error"
            message, place = credential_message(path, credential), os.path.join(found.folder, path)
            fix = f"{CODES['S13'].fix}, or use --allow-secrets"
            self.diagnostics.append(Diagnostic("S13", severity, message, skill, place, credential.line, fix))
        known = {one.path for one in self.diagnostics if one.code == "S04"}
        for path in sorted({os.path.join(found.folder, link) for link in out} - known):
            if os.path.exists(path) or not inside(os.path.realpath(path), found.root):  # others are reported below
                message, fix = link_problem(path)
                self._error("S04", message, path, fix, skill)
        for path, problem in _no_files(found.folder, found.root):
            self._error("D05", problem, path, "remove or fix it", skill)
        if len(files) > limits.skill_files:
            message = f"the skill has more than {limits.skill_files} files"
            self._error("S05", message, found.folder, "leave some out, or raise skills.limits.skill-files", skill)
            return
        for relative, real, status in files:
            if status.st_size > limits.file:
                message = f"the file has {status.st_size} bytes; the limit for a file is {limits.file}"
                self._error("S05", message, real, "leave it out, or raise skills.limits.file", skill)
            elif not os.access(real, os.R_OK):
                self._error("D05", "the file cannot be read: permission denied", real, "allow reading it", skill)
            else:
                executable = bool(status.st_mode & 0o111)
                yield Member(f"{found.path}/{relative}", real, executable), status.st_size

    def verified(self, archive: str, kind: ArchiveKind) -> list[PackedSkill]:
        """Unpack the archive as a job would; the skills with their digests, each the same as in its folder."""
        size = os.path.getsize(archive)
        if size > self._limits.download:
            message = f"the archive would have {size} bytes; the limit is {self._limits.download}"
            self._error("S05", message, self.found[0].root, "pack several archives, or raise skills.limits.download")
            return []
        with tempfile.TemporaryDirectory(prefix="flink-skills-pack-") as scratch:
            try:
                unpack(archive, kind, scratch, self._limits)
            except ArchiveRefusedError as refused:
                self._error("D06", f"the archive would be refused: {refused}", self.found[0].root, "see the limits")
                return []
            root, report = os.path.realpath(scratch), Report(strict=self._strict)
            formats = {found.path: found.format for found in self.found}
            loaded: dict[str, AgentSkill | None] = {}
            for place in find_skills(scratch, report, self._limits):
                path = os.path.relpath(place.folder, scratch)
                loaded[path] = self._load(place, root, formats.get(path, "skill")).skill
            return [packed for found in self.found if (packed := self._compared(found, loaded.get(found.path)))]

    def _compared(self, found: _Found, again: AgentSkill | None) -> PackedSkill | None:
        name = found.skill.name
        if again is None:
            fix = "pack the folder above it"
            self._error(
                "D01",
                f"the path {found.path!r} is too deep in the archive for the skill to be found",
                found.folder,
                fix,
                name,
            )
            return None
        try:
            digest = found.skill.digest
        except ResourceError as error:
            self._error("D05", str(error), found.folder, "check its files", name)
            return None
        if again.digest != digest:
            self._error("D05", "the skill changed while it was packed", found.folder, "pack again", name)
            return None
        if again.plugin != found.skill.plugin:
            fix = "write its name into its manifest"
            self._error("G02", "the plugin would have another name in the archive", found.folder, fix, name)
            return None
        if sum(other.skill.name == name for other in self.found) > 1:
            name = found.skill.full_name
        sizes = [size for size, _ in found.skill.files.manifest().values()]
        return PackedSkill(name, found.folder, found.path, digest, len(sizes), sum(sizes))


def _manifests(found: _Found) -> Iterator[Member]:
    """Yield the manifests of a skill's plugin, and the lists that contain the plugin."""
    place, path = os.path.normpath(found.folder), found.path
    while found.skill.plugin and place != os.path.dirname(place):
        for name in MANIFESTS:
            real = os.path.join(place, name)
            if os.path.isfile(real) and inside(os.path.realpath(real), os.path.realpath(place)):
                yield Member(f"{path}/{name}".lstrip("/"), real, False)
        if place == os.path.normpath(found.source):
            return
        place, path = os.path.dirname(place), os.path.dirname(path)


def _no_files(folder: str, root: str) -> Iterator[tuple[str, str]]:
    """What is in a skill's folder and cannot be in an archive: its path and what is wrong with it."""
    problems: list[OSError] = []
    for current, folders, names in os.walk(folder, onerror=problems.append):
        if current != folder and is_foreign(names):
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not is_generated(name))
        for name in sorted(name for name in names if not is_generated(name)):
            path = os.path.join(current, name)
            if os.path.islink(path):
                if not os.path.exists(path) and inside(os.path.realpath(path), root):
                    yield path, "the link has no target"
                continue
            try:
                is_file = stat.S_ISREG(os.lstat(path).st_mode)
            except OSError as error:  # in a folder that may only be listed
                problems.append(error)
                continue
            if not is_file:
                yield path, "the entry is not a regular file"
    for problem in problems:
        yield str(problem.filename), f"the directory cannot be read: {problem.strerror}"


def _write(file: BinaryIO, kind: ArchiveKind, members: Sequence[Member], limits: Limits) -> None:
    if kind == "zip":
        _write_zip(file, members, limits)
    elif kind == "tar":
        write_tar(file, members)
    else:
        size = _write_tar_gz(file, members, _LEVEL)
        if size > file.tell() * limits.ratio // 2:  # it would be taken for a bomb
            file.seek(0)
            file.truncate()
            _write_tar_gz(file, members, 0)


def _write_tar_gz(file: BinaryIO, members: Sequence[Member], level: int) -> int:
    """Write a compressed tar; its size before compression. Name and time are no part of the content."""
    with gzip.GzipFile("", "wb", level, file, mtime=0) as packed:
        write_tar(packed, members)
        return packed.tell()


def _write_zip(file: BinaryIO, members: Sequence[Member], limits: Limits) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for member in members:
            data = content_of(member)
            entry = zipfile.ZipInfo(member.name, _DATE)
            entry.create_system = 3  # Unix, whose permissions follow
            entry.external_attr = (stat.S_IFREG | mode_of(member)) << 16
            stored = len(data) >= _CHECKED_FOR_RATIO and _looks_like_a_bomb(data, limits)
            method = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
            archive.writestr(entry, data, method, None if stored else _LEVEL)


def _looks_like_a_bomb(data: bytes, limits: Limits) -> bool:
    """Whether it would shrink so much that an archive of it could be refused."""
    return len(zlib.compress(data, 1)) * limits.ratio < len(data) * 5


@contextlib.contextmanager
def _part_of(target: str) -> Iterator[str]:
    """A new name beside ``target`` for what is being written; removed at the end if it is still there."""
    part = os.path.join(os.path.dirname(target), f".{os.path.basename(target)[:100]}.{secrets.token_hex(6)}")
    try:
        yield part
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
