"""What every skill source must keep to, as tests to inherit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from flink_skills.errors import ConfigError, SourceError
from flink_skills.options import SkillConfig
from flink_skills.skill import Report, find_skills
from flink_skills.sources import SkillSource, SourceContext, SourceTree, open_source
from flink_skills.sources.skill_source import FORMATS

_AT_ONCE = 4
_MAX_FILE = 1 << 20
_SKILL = "---\nname: {name}\ndescription: Says {name}.\n---\nSay it with scripts/{name}.sh.\n"


class SkillSourceContract:
    """Inherit from this in a test module and say how skills get to where the source looks; pytest finds the tests.

    ``kind`` is the kind that is opened. ``remote`` says whether the content comes over a network, ``formats`` which
    formats of skills it has. ``secret`` stands in the location that :meth:`with_secret` gives, if that gives one.

        class TestMountSource(SkillSourceContract):
            kind = "mount"

            def publish(self, skills: Path) -> str:
                shutil.copytree(skills, mount_point / "team", dirs_exist_ok=True)
                return "mount://team"
    """

    kind: str
    remote: bool = False
    formats: Sequence[str] = FORMATS
    secret: str = "s3cret-0123456789"  # noqa: S105 - not one of anything

    def publish(self, skills: Path) -> str | Mapping[str, Any]:
        """Put a folder with skills to where the source finds them, in place of what was there; how to declare it."""
        raise NotImplementedError("implement publish: make the skills available to the source")

    def missing(self) -> str:
        """A location that could be right, with nothing there."""
        raise NotImplementedError("implement missing: return a location that does not exist")

    def impossible(self) -> Sequence[str]:
        """Locations that can never work, whatever the machine."""
        return [""]

    def with_secret(self, location: str) -> str | None:
        """The location with :attr:`secret` in it where it would have a credential; None where it has no place."""
        return None

    def context(self, store: Path, *, refresh: bool = False) -> SourceContext:
        """A new context, as a job that opens has it."""
        return SourceContext(SkillConfig(), store_dir=str(store), refresh=refresh)

    def test_it_gives_the_skills_that_are_there(self, tmp_path: Path) -> None:
        trees = self._resolve(self._published(tmp_path, "alpha", "beta"), tmp_path)
        assert trees, "the source returned no directory"
        for tree in trees:
            assert Path(tree.path).is_absolute(), f"{tree.path} is not absolute"
            assert tree.results is not None or Path(tree.path).is_dir(), f"{tree.path} is not a directory"
            assert tree.remote == self.remote, (
                "set remote = True if the source is remote: remote skills never hide local ones"
            )
        assert _contents(trees) == _contents([SourceTree(str(tmp_path / "skills"), "")])

    def test_it_names_itself_the_same_everywhere(self, tmp_path: Path) -> None:
        source = self._open(self._published(tmp_path, "alpha"), tmp_path)
        assert source.origin
        assert {tree.origin for tree in source.resolve()} == {source.origin}

    def test_the_same_content_has_the_same_folders(self, tmp_path: Path) -> None:
        declared = self._published(tmp_path, "alpha")
        trees = self._resolve(declared, tmp_path)
        again = self._resolve(declared, tmp_path)
        assert again == trees
        assert [tree.version for tree in again] == [tree.version for tree in trees]

    def test_other_content_is_seen_by_the_next_opening_and_by_a_refresh(self, tmp_path: Path) -> None:
        declared = self._published(tmp_path, "alpha")
        before = self._resolve(declared, tmp_path)
        for refresh, name in ((False, "beta"), (True, "gamma")):
            self._published(tmp_path, name)
            after = self._resolve(declared, tmp_path, refresh=refresh)
            assert set(_contents(after)) == {f"{name}/SKILL.md", f"{name}/scripts/{name}.sh"}
            for tree in after:
                versions = {one.version for one in before if one.path == tree.path}
                assert not tree.version or tree.version not in versions, "a version changes with the content"
            before = after

    def test_several_at_once_get_the_same(self, tmp_path: Path) -> None:
        declared = self._published(tmp_path, "alpha", "beta")
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = list(pool.map(lambda _: self._resolve(declared, tmp_path), range(_AT_ONCE)))
        assert all(trees == found[0] for trees in found)

    def test_it_writes_nothing_outside_of_the_store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home, current = tmp_path / "home", tmp_path / "current"
        for folder, names in ((home, ("HOME", "XDG_CACHE_HOME", "TMPDIR")), (current, ())):
            folder.mkdir()
            for name in names:
                monkeypatch.setenv(name, str(folder))
        monkeypatch.chdir(current)
        declared = self._published(tmp_path, "alpha")
        skills = _contents([SourceTree(str(tmp_path / "skills"), "")])
        source = self._open(declared, tmp_path)
        assert not (tmp_path / "store").exists(), "opening a source writes nothing: it happens on the client, too"
        trees = source.resolve()
        assert [*home.rglob("*"), *current.rglob("*")] == []
        assert _contents([SourceTree(str(tmp_path / "skills"), "")]) == skills
        if self.remote:
            store = os.path.realpath(tmp_path / "store")
            assert all(os.path.realpath(tree.path).startswith(store + os.sep) for tree in trees)

    def test_the_form_of_its_skills_is_passed_on(self, tmp_path: Path) -> None:
        declared = self._published(tmp_path, "alpha")
        given = declared if isinstance(declared, Mapping) else {"location": declared}
        for form in FORMATS:
            if form in self.formats:
                trees = self._resolve({**given, "format": form}, tmp_path)
                assert {tree.format for tree in trees} == {form}
            else:
                with pytest.raises(ConfigError, match="format"):
                    self._open({**given, "format": form}, tmp_path)

    def test_its_leases_can_be_closed_twice(self, tmp_path: Path) -> None:
        for tree in self._resolve(self._published(tmp_path, "alpha"), tmp_path):
            if tree.lease is not None:
                tree.lease.close()
                tree.lease.close()
            assert _contents([tree])

    def test_nothing_there_is_a_source_error(self, tmp_path: Path) -> None:
        source = self._open(self.missing(), tmp_path)
        with pytest.raises(SourceError) as caught:
            source.resolve()
        assert caught.value.source, "the error does not name its source"
        assert caught.value.source in str(caught.value)
        assert not caught.value.retryable, "a retry does not help if the location does not exist"

    def test_what_can_never_work_fails_at_once(self, tmp_path: Path) -> None:
        for location in self.impossible():
            with pytest.raises(ConfigError):
                open_source(self.kind, location, self.context(tmp_path / "store"))

    def test_no_secret_is_shown(self, tmp_path: Path) -> None:
        location = self.with_secret(self.missing())
        if location is None:
            pytest.skip("a location of this source cannot contain a secret")
        assert self.secret in location
        source = self._open(location, tmp_path)
        with pytest.raises(SourceError) as caught:
            source.resolve()
        shown = [source.origin, repr(source.spec), str(caught.value), repr(caught.value), caught.value.source]
        assert not [text for text in shown if self.secret in text]
        assert caught.value.__cause__ is None, "the message of a library may contain the secret: raise … from None"

    def _published(self, folder: Path, *names: str) -> str | Mapping[str, Any]:
        skills = folder / "skills"
        shutil.rmtree(skills, ignore_errors=True)
        for name in names:
            scripts = skills / name / "scripts"
            scripts.mkdir(parents=True)
            (skills / name / "SKILL.md").write_text(_SKILL.format(name=name), encoding="utf-8")
            (scripts / f"{name}.sh").write_text(f"echo {name}\n", encoding="utf-8")
        return self.publish(skills)

    def _open(self, declared: str | Mapping[str, Any], folder: Path, *, refresh: bool = False) -> SkillSource:
        return open_source(self.kind, declared, self.context(folder / "store", refresh=refresh))

    def _resolve(self, declared: str | Mapping[str, Any], folder: Path, *, refresh: bool = False) -> list[SourceTree]:
        return self._open(declared, folder, refresh=refresh).resolve()


def _contents(trees: Sequence[SourceTree]) -> dict[str, bytes]:
    """Every file of every skill, by the skill's folder and its path there."""
    found: dict[str, bytes] = {}
    for tree in trees:
        for skill in (result.skill for result in tree.results or ()):
            if skill is not None:
                files = skill.files
                found |= {f"{skill.name}/{path}": files.read(path, 0, _MAX_FILE).data for path in files.paths()}
        if tree.results is not None:
            continue
        for folder, *_ in find_skills(tree.path, Report(tree.path), SourceContext().limits):
            top = Path(folder)
            for file in sorted(top.rglob("*")):
                if file.is_file():
                    found[f"{top.name}/{file.relative_to(top).as_posix()}"] = file.read_bytes()
    return found
