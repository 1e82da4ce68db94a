"""Every kind of source, also those of third parties, keeps to what ``SkillSourceContract`` says."""

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.options import SkillConfig
from flink_skills.sources import (
    INDEX_PATH,
    SCHEMA,
    SourceContext,
    SourceSpec,
    open_source,
    register_source,
    source_kinds,
    unregister_source,
)
from flink_skills.testing import SkillSourceContract
from tests.sources.git_server import GitServer, Repository, needs_git
from tests.sources.oci_server import CONTENT_TYPE, OciServer, tar_of
from tests.sources.web import ALLOWED, Page, Web, zip_of
from tests.tools.mcp.skills_site import Site

THIRD_PARTY = '''
import os
import shutil
from flink_skills.errors import ConfigError, SourceError
from flink_skills.sources import SkillSource, SourceTree

class ShelfSource(SkillSource):
    """shelf://name: a folder below $SHELF."""

    kind = "shelf"

    def __init__(self, spec, context):
        super().__init__(spec, context)
        name = spec.location.partition("?")[0].removeprefix("shelf://")
        if not name or "/" in name:
            raise ConfigError(f"skill source {self.origin}: write shelf://name")
        self._path = os.path.join(os.environ["SHELF"], name)

    def resolve(self):
        if not os.path.isdir(self._path):
            raise SourceError(f"skill source {self.origin}: is not on the shelf", source=self.origin)
        return [SourceTree(self._path, self.origin, format=self.spec.format)]

class NoSource:
    def __init__(self, spec, context): ...
'''


class _OfTemporaryFolder:
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.place = tmp_path_factory.mktemp("published")

    def copied(self, skills: Path, to: str) -> Path:
        shutil.rmtree(self.place / to, ignore_errors=True)
        return Path(shutil.copytree(skills, self.place / to))


class TestFolder(_OfTemporaryFolder, SkillSourceContract):
    kind = "path"

    def publish(self, skills: Path) -> str:
        return str(self.copied(skills, "here"))

    def missing(self) -> str:
        return "/nowhere/at/all"

    def impossible(self) -> list[str]:
        return ["", " ", "relative/folder", "./x", "a\0b", "https://host/skills.zip"]


class TestLocalArchive(_OfTemporaryFolder, SkillSourceContract):
    kind = "path"

    def publish(self, skills: Path) -> str:
        path = self.place / "skills.zip"
        path.write_bytes(zip_of(skills))
        return str(path)

    def missing(self) -> str:
        return "/nowhere/at/all.zip"


class TestResource(_OfTemporaryFolder, SkillSourceContract):
    kind = "resource"

    def publish(self, skills: Path) -> str:
        self.copied(skills, "jar-1")
        return "skills"

    def missing(self) -> str:
        return "other"

    def impossible(self) -> list[str]:
        return ["", "/", "../x", "a\\b", "a\0b"]

    def context(self, store: Path, *, refresh: bool = False) -> SourceContext:
        return SourceContext(
            SkillConfig(), {"skills": [str(self.place / "jar-1")]}, store_dir=str(store), refresh=refresh
        )


class TestFileUrl(_OfTemporaryFolder, SkillSourceContract):
    kind = "url"

    def publish(self, skills: Path) -> str:
        return self.copied(skills, "a b#c").as_uri()

    def missing(self) -> str:
        return "file:///nowhere/at/all.zip"

    def impossible(self) -> list[str]:
        return ["", "file://host/skills.zip", "file:/x", "file:relative", "/opt/skills.zip"]


class _OfWeb(SkillSourceContract):
    kind = "url"
    remote = True

    @pytest.fixture(autouse=True)
    def _web(self) -> Iterator[None]:
        self.web = Web()
        yield
        self.web.close()

    def publish(self, skills: Path) -> str:
        data = zip_of(skills)
        self.web.pages["/s.zip"] = Page(data, headers={"ETag": f'"{hashlib.sha256(data).hexdigest()}"'})
        return f"{self.web.url}/s.zip"

    def missing(self) -> str:
        return f"{self.web.url}/other.zip"

    def impossible(self) -> list[str]:
        return ["", "https:///x", "htps://host/a.zip", "https://host/a.zip#sha256=12", "ftp://host/a.zip"]

    def with_secret(self, location: str) -> str:
        return f"{location.replace('//', f'//user:{self.secret}@')}?sig={self.secret}"

    def context(self, store: Path, *, refresh: bool = False) -> SourceContext:
        return SourceContext(SkillConfig(ALLOWED), store_dir=str(store), refresh=refresh)


class TestWebArchive(_OfWeb):
    pass


class TestWebArchiveWithoutVersions(_OfWeb):
    def publish(self, skills: Path) -> str:
        self.web.pages["/s.zip"] = Page(zip_of(skills))
        return f"{self.web.url}/s.zip"


class TestSkillIndex(_OfWeb):
    """An artifact for each skill: an archive of its folder."""

    def publish(self, skills: Path) -> str:
        entries = []
        for folder in sorted(skills.iterdir()):
            data = zip_of(folder)
            self.web.pages[f"/.well-known/agent-skills/{folder.name}.zip"] = Page(data)
            entries.append(
                {
                    "name": folder.name,
                    "type": "archive",
                    "description": "x",
                    "url": f"{folder.name}.zip",
                    "digest": f"sha256:{hashlib.sha256(data).hexdigest()}",
                }
            )
        self.web.pages[f"/{INDEX_PATH}"] = Page(json.dumps({"$schema": SCHEMA, "skills": entries}).encode())
        return self.web.url

    def missing(self) -> str:
        return f"{self.web.url}/other/"


@needs_git
class TestGit(_OfTemporaryFolder, SkillSourceContract):
    """A branch of a git server."""

    kind = "url"
    remote = True

    @pytest.fixture(autouse=True)
    def _server(self, _place: None) -> Iterator[None]:
        self.repository, self.server = Repository(self.place), GitServer(self.place)
        yield
        self.server.close()

    def publish(self, skills: Path) -> str:
        self.repository.publish(skills)
        return f"{self.server.url()}@main"

    def missing(self) -> str:
        return f"{self.server.url()}@other"

    def impossible(self) -> list[str]:
        return [
            "git+https:///x.git", "git+ssh://git@host/x.git", "git+https://host/x.git#egg=x", "git+https://host",
            "git+https://host/x.git#subdirectory=../y", "git+https://host/x.git@main#commit=12",
            "git+https://github.com/o/r/tree/main/skills", "git+file://host/x.git",
        ]  # fmt: skip

    def with_secret(self, location: str) -> str:
        return location.replace("//", f"//user:{self.secret}@")

    def context(self, store: Path, *, refresh: bool = False) -> SourceContext:
        return SourceContext(SkillConfig(ALLOWED), store_dir=str(store), refresh=refresh)


class TestLocalGit(TestGit):
    """A repository on this host."""

    remote = False

    def publish(self, skills: Path) -> str:
        self.repository.publish(skills)
        return f"git+file://{self.repository.path}@main"

    def missing(self) -> str:
        return "git+file:///nowhere/at/all.git@main"

    def with_secret(self, location: str) -> None:
        return None


class _OfRegistry(SkillSourceContract):
    kind = "url"
    remote = True

    @pytest.fixture(autouse=True)
    def _registry(self) -> Iterator[None]:
        self.registry = OciServer()
        yield
        self.registry.close()

    def publish(self, skills: Path) -> str:
        files = {f"{skills.name}/{file.relative_to(skills)}": file for file in skills.rglob("*") if file.is_file()}
        layer = tar_of({name: file.read_bytes() for name, file in sorted(files.items())})
        self.registry.artifact("team/skills", "1", [self.registry.blob(layer, CONTENT_TYPE)])
        return f"oci://{self.registry.place}/team/skills:1"

    def missing(self) -> str:
        return f"oci://{self.registry.place}/team/other:1"

    def impossible(self) -> list[str]:
        return ["oci://", "oci://host", "oci://host/UPPER:1", "oci://host/a:1@sha256:12", "oci://host/a:1?x=y"]

    def with_secret(self, location: str) -> str:
        return location.replace("//", f"//user:{self.secret}@")

    def context(self, store: Path, *, refresh: bool = False) -> SourceContext:
        return SourceContext(SkillConfig(ALLOWED), store_dir=str(store), refresh=refresh)


class TestOciArtifact(_OfRegistry):
    pass


class TestOciByItsOwnKind(_OfRegistry):
    kind = "oci"


class TestOciCollection(_OfRegistry):
    """An artifact for each skill, with a layer for each file."""

    def publish(self, skills: Path) -> str:
        members = []
        for folder in sorted(skills.iterdir()):
            files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
            layers = [self.registry.file(name, file.read_bytes()) for name, file in sorted(files.items())]
            members.append(self.registry.artifact("team/skills", folder.name, layers))
        self.registry.index("team/skills", "1", members)
        return f"oci://{self.registry.place}/team/skills:1"


class TestOciImage(_OfRegistry):
    """An image with a layer for each skill."""

    def publish(self, skills: Path) -> str:
        files = {folder: [file for file in folder.rglob("*") if file.is_file()] for folder in sorted(skills.iterdir())}
        layers = [
            tar_of({file.relative_to(skills).as_posix(): file.read_bytes() for file in found})
            for found in files.values()
        ]
        self.registry.image("team/skills", "1", layers)
        return f"oci://{self.registry.place}/team/skills:1"


class TestServedSkills(_OfTemporaryFolder, SkillSourceContract):
    """Skills of an MCP server behind HTTP."""

    kind = "url"
    remote = True
    formats = ("skill",)
    transport = "http"

    @pytest.fixture(autouse=True)
    def _site(self, _place: None) -> Iterator[None]:
        (self.place / "site").mkdir()
        self.site = Site(self.place / "site", self.place / "store", self.transport)
        yield
        self.site.close()

    def publish(self, skills: Path) -> str:
        self.copied(skills, "site")
        return self.site.url

    def missing(self) -> str:
        return self.site.url.replace("/mcp", "/other")

    def impossible(self) -> list[str]:
        return ["mcp+https://", "mcp+https://host/mcp#labl=x", "mcp+https://host/mcp#label=a/b", "mcp+ftp://host/x"]

    def with_secret(self, location: str) -> str:
        return location.replace("//", f"//user:{self.secret}@")

    def context(self, store: Path, *, refresh: bool = False) -> SourceContext:
        return SourceContext(SkillConfig(ALLOWED), store_dir=str(store), refresh=refresh)


class TestServedSkillsOfAProgram(TestServedSkills):
    """Skills of an MCP server that is a program."""

    transport = "stdio"

    def missing(self) -> str:
        return "mcp+stdio:/nowhere/at/all"

    def impossible(self) -> list[str]:
        return ["mcp+stdio:", "mcp+stdio:'a", "mcp+stdio:a#timeout=0"]

    def with_secret(self, location: str) -> str:
        return f"{location} --token {self.secret}"


class TestMemory(_OfWeb):
    """Any other file system of fsspec."""

    def publish(self, skills: Path) -> str:
        import fsspec

        fsspec.filesystem("memory").pipe("/contract/s.zip", zip_of(skills))
        return "memory://contract/s.zip"

    def missing(self) -> str:
        return "memory://contract/other.zip"


@pytest.fixture
def package(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of a third party, installed: its module and its dist-info are on the path."""
    place = tmp_path_factory.mktemp("site-packages")
    (place / "shelf_skills.py").write_text(THIRD_PARTY)
    info = place / "shelf_skills-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf-skills\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[flink_skills.sources]\n"
        "shelf = shelf_skills:ShelfSource\n"
        "broken = shelf_skills_gone:X\n"
        "odd = shelf_skills:NoSource\n"
    )
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.delitem(sys.modules, "shelf_skills", raising=False)
    return place


class _OfThirdParty(_OfTemporaryFolder, SkillSourceContract):
    kind = "url"

    @pytest.fixture(autouse=True)
    def _shelf(self, package: Path, _place: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SHELF", str(self.place))

    def publish(self, skills: Path) -> str:
        self.copied(skills, "team")
        return "shelf://team"

    def missing(self) -> str:
        return "shelf://nobody"

    def impossible(self) -> list[str]:
        return ["shelf://", "shelf://a/b"]

    def with_secret(self, location: str) -> str:
        return f"{location}?token={self.secret}"


class TestThirdPartyByEntryPoint(_OfThirdParty):
    pass


class TestThirdPartyByItsOwnKind(_OfThirdParty):
    kind = "shelf"


class TestThirdPartyRegistered(_OfThirdParty):
    @pytest.fixture(autouse=True)
    def _registered(self, package: Path) -> Iterator[None]:
        (package / "shelf_skills-1.0.dist-info" / "entry_points.txt").write_text("")
        assert "shelf" not in source_kinds()
        register_source("shelf", "shelf_skills:ShelfSource")
        yield
        unregister_source("shelf")


def test_kinds_of_installed_packages_are_there(package: Path) -> None:
    assert {"path", "resource", "url", "shelf", "broken"} <= set(source_kinds())
    with pytest.raises(ConfigError, match=r"'broken': shelf_skills_gone:X cannot be imported .* install or fix"):
        open_source("broken", "x", SourceContext())
    with pytest.raises(ConfigError, match="NoSource is not a SkillSource"):
        open_source("odd", "x", SourceContext())


def test_kinds_can_be_added_but_not_replaced(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: unregister_source("made"))
    register_source("made", f"{__name__}:Made", install="pip install made-skills")
    register_source("made", f"{__name__}:Made", install="pip install made-skills")
    for kind in ("url", "made"):
        with pytest.raises(ConfigError, match="already; choose another name"):
            register_source(kind, "other:Made")
    with pytest.raises(ConfigError, match=r"cannot be imported .*; pip install made-skills"):
        open_source("url", "made://x", SourceContext())
    with pytest.raises(UnknownNameError, match="did you mean 'path'"):
        open_source("paths", "x", SourceContext())


@pytest.mark.parametrize(
    "declared",
    [
        "shelf://team#format=heading",
        {"url": "shelf://team", "format": "heading"},
        SourceSpec("url", "shelf://team", format="heading"),
    ],
)
def test_a_third_party_kind_gets_the_whole_declaration(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: Any
) -> None:
    monkeypatch.setenv("SHELF", str(tmp_path))
    source = open_source("url", declared, SourceContext())
    assert source.spec == SourceSpec("shelf", "shelf://team", format="heading")
