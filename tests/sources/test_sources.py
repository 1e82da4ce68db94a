"""Sources on this machine: paths, job-JAR resources, file URLs; and what is not a valid source at all."""

import hashlib
import os
from pathlib import Path

import pytest

from flink_skills.errors import ConfigError, SourceError
from flink_skills.options import SkillConfig
from flink_skills.sources import SourceContext, SourceTree, open_source
from tests.sources.web import ALLOWED, SKILL, zip_bytes


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def context(store: str, **options: object) -> SourceContext:
    return SourceContext(SkillConfig({**ALLOWED, **options}), store_dir=store)


def resolve(kind: str, location: str, store: str) -> SourceTree:
    [tree] = open_source(kind, location, context(store)).resolve()
    return tree


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# Paths


@pytest.mark.row("B4")
def test_a_folder_is_used_where_it_is(tmp_path: Path, store: str) -> None:
    assert resolve("path", str(tmp_path), store) == SourceTree(str(tmp_path), str(tmp_path))
    assert not Path(store).exists()


@pytest.mark.row("B16")
@pytest.mark.parametrize("location", ["./skills", "skills", "~/skills", "../skills"])
def test_a_relative_path_shows_the_absolute_one(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    monkeypatch.setenv("HOME", str(tmp_path / "a"))
    absolute = tmp_path / "skills" if location.startswith("..") else tmp_path / "a" / "skills"
    with pytest.raises(ConfigError, match="is relative") as error:
        open_source("path", location, context(store))
    assert f"give {str(absolute)!r}" in str(error.value)


@pytest.mark.parametrize("name", ["missing", "missing/deeper", "file.txt/x", "missing #1", "x" * 300])
def test_a_missing_path(tmp_path: Path, store: str, name: str) -> None:
    (tmp_path / "file.txt").write_text("x")
    with pytest.raises(SourceError, match=r"does not exist|cannot be read: File name too long") as error:
        resolve("path", str(tmp_path / name), store)
    assert error.value.source == str(tmp_path / name)
    assert not error.value.retryable


@pytest.mark.row("B4")
def test_paths_that_are_no_source(tmp_path: Path, store: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "SKILL.md").write_bytes(SKILL)
    (tmp_path / "page.html").write_text("<html>")
    for name, said in (
        ("fifo", "neither a folder nor a file"),
        ("SKILL.md", f"give its folder, {str(tmp_path)!r}"),
        ("page.html", "is not an archive"),
    ):
        with pytest.raises(SourceError) as error:
            resolve("path", str(tmp_path / name), store)
        assert said in str(error.value)


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("", "give an absolute one"),
        ("  ", "give an absolute one"),
        ("a\0b", "give an absolute one"),
        ("https://me:s3cret@host/a.zip?t=s3cret", "is a URL; declare it with the URLs"),
    ],
)
def test_what_is_no_path(location: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        open_source("path", location, SourceContext())
    assert said in str(error.value)
    assert "s3cret" not in str(error.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(tmp_path: Path, store: str) -> None:
    tmp_path.chmod(0o000)
    try:
        with pytest.raises(SourceError, match="permission denied"):
            resolve("path", str(tmp_path), store)
    finally:
        tmp_path.chmod(0o700)


def test_a_pinned_archive_on_this_machine(tmp_path: Path, store: str) -> None:
    path, data = tmp_path / "s.zip", zip_bytes()
    path.write_bytes(data)
    for location in (f"{path}#sha256={sha256(data)}", f"file://{path}#sha256={sha256(data).upper()}"):
        tree = resolve("path" if location.startswith("/") else "url", location, store)
        assert (tree.path, tree.version, tree.remote) == (f"{store}/{sha256(data)}", sha256(data), False)
    path.write_bytes(b"other")
    for kind, place in (("path", str(path)), ("url", f"file://{path}")):
        with pytest.raises(SourceError) as error:
            resolve(kind, f"{place}#sha256={sha256(data)}", store)
        assert f"the sha256 is {sha256(b'other')}, which differs from the pinned one" in str(error.value)
        assert not error.value.retryable
    assert not Path(store, sha256(b"other")).exists()


def test_a_folder_has_no_pin(tmp_path: Path, store: str) -> None:
    pin = f"#sha256={'0' * 64}"
    given = SourceContext(store_dir=store, resource_paths={"skills": [str(tmp_path)]})
    for kind, location in (("path", str(tmp_path)), ("url", tmp_path.as_uri()), ("resource", "skills")):
        with pytest.raises(ConfigError, match=r"cannot be pinned with sha256; pin its skills with skills\.lock"):
            open_source(kind, location + pin, given)
    for kind, location in (("path", f"{tmp_path}/later"), ("url", f"{tmp_path.as_uri()}/later")):
        source = open_source(kind, location + pin, given)
        (tmp_path / "later").mkdir()
        with pytest.raises(SourceError, match=r"skills\.lock"):
            source.resolve()
        (tmp_path / "later").rmdir()


# File URLs


@pytest.mark.row("B4")
def test_file_urls(tmp_path: Path, store: str) -> None:
    (tmp_path / "my skills.zip").write_bytes(zip_bytes())
    tree = resolve("url", f"file://{tmp_path}/my%20skills.zip", store)
    assert Path(tree.path, "skills/greet").is_dir()
    assert not tree.remote
    assert resolve("url", f"file://localhost{tmp_path}", store).path == str(tmp_path)
    with pytest.raises(SourceError, match="the file name is invalid"):
        resolve("url", "file:///a%00b", store)


@pytest.mark.row("B6")
def test_a_file_url_of_one_skill_file(tmp_path: Path, store: str) -> None:
    (tmp_path / "Skill.md").write_bytes(SKILL)
    url = f"file://{tmp_path}/Skill.md"
    tree = resolve("url", url, store)
    assert (Path(tree.path) / "greet" / "SKILL.md").read_bytes() == SKILL
    assert resolve("url", f"{url}#sha256={sha256(SKILL)}", store) == tree
    with pytest.raises(SourceError, match="differs from the pinned one"):
        resolve("url", f"{url}#sha256={'0' * 64}", store)


# Resources


def test_resources_are_what_the_runtime_made_of_them(tmp_path: Path, store: str) -> None:
    (tmp_path / "one").mkdir()
    data = zip_bytes()
    (tmp_path / "skills.zip").write_bytes(data)
    paths = {"skills": [str(tmp_path / "one"), str(tmp_path / "skills.zip")], "a.zip": [str(tmp_path / "skills.zip")]}
    given = SourceContext(store_dir=store, resource_paths=paths)
    trees = open_source("resource", "skills/", given).resolve()
    assert [tree.origin for tree in trees] == ["resource:skills/"] * 2
    assert trees[0].path == str(tmp_path / "one")
    assert Path(trees[1].path, "skills/greet/SKILL.md").read_bytes() == SKILL
    assert open_source("resource", f"a.zip#sha256={sha256(data)}", given).resolve()[0].version == sha256(data)
    with pytest.raises(SourceError, match="differs from the pinned one"):
        open_source("resource", f"a.zip#sha256={'0' * 64}", given).resolve()
    with pytest.raises(SourceError, match=r"no such folder or file \(did you mean 'skills'\?\)"):
        open_source("resource", "skill", given).resolve()
    with pytest.raises(SourceError, match="no job JAR here"):
        open_source("resource", "skills", SourceContext()).resolve()
    with pytest.raises(ConfigError):
        open_source("resource", "../x", given)


# What is no URL


@pytest.mark.row("B4")
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "is empty; give a URL"),
        (" \n", "is empty; give a URL"),
        (" https://example.org/s.zip", "spaces around it"),
        ("https://example.org/s.zip\r\nX: y", "control characters"),
        ("s3:/bucket/s.zip", "write s3://…"),
        ("S3:bucket/s.zip", "write s3://…"),
        ("https:example.org", "write https://…"),
        ("file:/opt/skills", "write file:///…"),
        ("example.org/s.zip", "the value is not a URL; write https://…, s3://… or file:///…"),
        ("/opt/s.zip", "write file:///opt/s.zip, or use skills.from.paths"),
        ("./s.zip", "the value is a path, not a URL"),
        ("file://host/s.zip", "three slashes"),
        ("file://", "three slashes"),
        ("foo://x/s.zip", "nothing here knows the protocol 'foo'"),
        (
            "ftp://example.org/s.zip",
            "ftp is not supported; FTP sends everything unencrypted; serve the file over https",
        ),
        ("git://example.org/s.git", "a repository is not an archive"),
        ("https://exa mple.org/s.zip", "the host is invalid"),
        ("https://exa\u2100mple.org/s.zip", "the host or port cannot be parsed"),
        ("https://example.org:x/s.zip", "the host or port cannot be parsed"),
        ("https://github.com/acme/skills", "https://codeload.github.com/acme/skills/zip/refs/heads/<branch>"),
        ("https://www.github.com/acme/skills.git", "https://codeload.github.com/acme/skills/zip/refs/heads/<branch>"),
        ("https://github.com/acme/skills/tree/main/a", "https://codeload.github.com/acme/skills/zip/refs/heads/main"),
        (
            "https://github.com/acme/skills/blob/main/a/SKILL.md",
            "https://raw.githubusercontent.com/acme/skills/main/a/SKILL.md",
        ),
        ("https://github.com", "the URL is a page of GitHub, not a file"),
        ("memory://s.zip#sha256=12", "64 hexadecimal"),
    ],
)
def test_what_is_no_url_gets_a_hint(url: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        open_source("url", url, SourceContext())
    assert said in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        "s3:/key:s3cret@bucket/s.zip?t=s3cret",
        "https://me:s3cret@github.com/acme/skills?t=s3cret",
        "foo://me:s3cret@host/s.zip?t=s3cret",
        "ftp://me:s3cret@host/s.zip?t=s3cret",
        "file://me:s3cret@host/s.zip?t=s3cret",
        "http://me:s3cret@example.org/s.zip?t=s3cret",
        "https://me:s3cret@127.0.0.1/s.zip?t=s3cret",
        "https://me:s3cret@exa mple.org/s.zip?t=s3cret",
        "https://me:s3cret@h:x/s.zip?t=s3cret",
        " https://me:s3cret@h/s.zip?t=s3cret",
        "zip://x?t=s3cret::http://me:s3cret@example.org/s.zip?t=s3cret",
        "me:s3cret@host/s.zip?t=s3cret",
    ],
)
def test_no_hint_shows_a_secret(url: str) -> None:
    with pytest.raises(ConfigError) as error:
        open_source("url", url, SourceContext())
    assert "s3cret" not in str(error.value)
    assert error.value.__cause__ is None


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/acme/skills/archive/refs/heads/main.zip",
        "https://github.com/acme/skills/releases/download/v1/s.zip",
        "https://b\u00fccher.example/s.zip",
        "https://example.org/my skills.zip",
        "https://${env:NOT_SET_HERE}@${file:/not/there}/s.zip",
        "zip://inner.zip::https://example.org/s.zip",
        "https://example.org",
    ],
)
def test_urls_that_may_work(url: str) -> None:
    assert open_source("url", url, SourceContext()).location == url


def test_options_may_refer_to_secrets_that_only_the_cluster_has() -> None:
    options = '{"https": {"headers": {"Authorization": "${env:NOT_SET_HERE}"}}}'
    config = SkillConfig({"skills.source.options": options})
    source = open_source("url", "https://example.org/s.zip", SourceContext(config))
    with pytest.raises(SourceError, match="environment variable 'NOT_SET_HERE'") as error:
        source.resolve()
    assert error.value.source == "https://example.org/s.zip"
    with pytest.raises(ConfigError, match="is not valid JSON"):
        open_source("url", "memory://s.zip", SourceContext(SkillConfig({"skills.source.options": "{"})))
