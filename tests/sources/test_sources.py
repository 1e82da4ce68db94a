"""Sources on this machine: paths, job-JAR resources, file URLs; and what is not a valid source at all."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_skills.errors import ConfigError, SourceError
from flink_skills.options import SkillConfig
from flink_skills.skill import Limits
from flink_skills.sources import SourceContext, SourceSpec, SourceTree, open_source
from flink_skills.sources.secrets import expand, expand_values
from tests.sources.web import ALLOWED, SKILL, Web, zip_bytes


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


PIN = "0123456789abcdef" * 4
OTHER = "f" * 64


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("/opt/skills", SourceSpec("path", "/opt/skills")),
        ("/opt/a#b.zip", SourceSpec("path", "/opt/a#b.zip")),
        ("/opt/a#sha", SourceSpec("path", "/opt/a#sha")),
        (f"/opt/a.zip#sha256={PIN}", SourceSpec("path", "/opt/a.zip", PIN)),
        (f"/opt/a.zip#sha256={PIN.upper()}", SourceSpec("path", "/opt/a.zip", PIN)),
        (f"/opt/a.zip#sha256=sha256:{PIN}", SourceSpec("path", "/opt/a.zip", PIN)),
        ("/opt/notes#format=heading", SourceSpec("path", "/opt/notes", None, "heading")),
        (f"/opt/a#1#format=heading&sha256={PIN}", SourceSpec("path", "/opt/a#1", PIN, "heading")),
        ("/a#format=heading#format=skill", SourceSpec("path", "/a#format=heading")),
        (f"/a#sha256={PIN}#x", SourceSpec("path", f"/a#sha256={PIN}#x")),
        ("", SourceSpec("path", "")),
    ],
)
def test_pins_are_read_and_written(text: str, spec: SourceSpec) -> None:
    assert SourceSpec.parse("path", text) == spec
    assert SourceSpec.parse("path", str(spec)) == spec
    assert SourceSpec.parse("path", spec) is spec


def test_a_pin_that_nobody_would_check_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'sha265' after '#' is unknown \(did you mean 'sha256'\?\)"):
        SourceSpec.parse("url", f"https://me:pw@host/a.zip?t=1#sha265={PIN}")
    assert SourceSpec.parse("url", "https://host/a.zip#part").location == "https://host/a.zip#part"
    assert SourceSpec.parse("path", "/a#b=c").location == "/a#b=c"


@given(
    st.sampled_from(["path", "resource", "url", "shelf"]),
    st.lists(st.sampled_from(["#", "sha256=", "format=", "heading", "skill", "&", PIN, "/a", "?", "\n", "é"])),
    st.sampled_from([None, PIN, OTHER]),
    st.sampled_from(["skill", "heading"]),
)
def test_a_spec_survives_its_text(kind: str, parts: list[str], sha256: str | None, form: str) -> None:
    spec = SourceSpec(kind, "".join(parts), sha256, form)
    assert SourceSpec.parse(kind, str(spec)) == spec


@given(st.text())
def test_any_text_is_a_spec_or_a_config_error(text: str) -> None:
    try:
        spec = SourceSpec.parse("url", text)
    except ConfigError:
        return
    assert SourceSpec.parse("url", str(spec)) == spec


@pytest.mark.parametrize(
    ("given", "spec"),
    [
        ({"path": "/a"}, SourceSpec("path", "/a")),
        ({"location": "/a", "sha256": PIN}, SourceSpec("path", "/a", PIN)),
        ({"path": "/a", "format": "heading", "sha256": None}, SourceSpec("path", "/a", None, "heading")),
        ({"path": f"/a#sha256={PIN}", "format": "heading"}, SourceSpec("path", "/a", PIN, "heading")),
        ({"path": f"/a#sha256={PIN}", "sha256": PIN.upper()}, SourceSpec("path", "/a", PIN)),
    ],
)
def test_mappings(given: dict[str, Any], spec: SourceSpec) -> None:
    assert SourceSpec.parse("path", given) == spec


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("/a#sha256=12", "sha256 needs 64 hexadecimal digits"),
        (f"/a#sha256={PIN}0", "sha256 needs 64 hexadecimal digits"),
        ("/a#format=md", "no format 'md'; use 'skill' or 'heading'"),
        (f"/a#sha256={PIN}&from=x", "'from' after '#' is unknown"),
        (f"/a#sha256={PIN}&fromat=skill", "did you mean 'format'"),
        (f"/a#sha256={PIN}&sha256={PIN}", "'sha256' after '#' is duplicated"),
        ({"path": "/a", "sha265": PIN}, "'sha265' is unknown (did you mean 'sha256'?)"),
        ({"url": "/a"}, "'url' is unknown"),
        ({}, "needs one string 'path'"),
        ({"path": "/a", "location": "/a"}, "needs one string 'path'"),
        ({"path": 7}, "needs one string 'path'"),
        ({"path": "/a", "sha256": 7}, "64 hexadecimal"),
        ({"path": f"/a#sha256={PIN}", "sha256": OTHER}, "pinned twice, and differently"),
        ({"path": "/a#format=heading", "format": "skill"}, "pinned twice, and differently"),
        (7, "a value of type int is not a valid source; give a string or a mapping"),
        (SourceSpec("url", "https://u:pw@h/a?t=1"), "https://h/a: is declared as path, but it is a url"),
    ],
)
def test_what_is_no_declaration(given: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SourceSpec.parse("path", given)
    assert said in str(caught.value)


def test_no_secret_is_in_what_is_printed_of_a_spec() -> None:
    spec = SourceSpec.parse("url", "https://me:s3cret@host/a.zip?sig=s3cret#format=heading")
    assert repr(spec) == "SourceSpec('url', 'https://host/a.zip', sha256=None, format='heading')"
    for wrong in ("https://me:s3cret@host/a?t=s3cret#sha256=1", "https://s3cret@h/a#format=x"):
        with pytest.raises(ConfigError) as caught:
            SourceSpec.parse("url", wrong)
        assert "s3cret" not in str(caught.value)


# Secrets by reference


def test_references_are_replaced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("from a file ${env:TOKEN}\r\n")
    monkeypatch.setenv("TOKEN", "a ${env:HOME} b")
    assert expand("x ${env:TOKEN} y") == "x a ${env:HOME} b y"
    assert expand(f"${{file:{tmp_path}/token}}|") == "from a file ${env:TOKEN}|"
    assert expand("${TOKEN} ${foo:x} $TOKEN ${env:") == "${TOKEN} ${foo:x} $TOKEN ${env:"
    assert expand_values({"a": ["${env:TOKEN}", 1, None], "${env:TOKEN}": True}) == {
        "a": ["a ${env:HOME} b", 1, None],
        "${env:TOKEN}": True,
    }


def test_errors_name_the_reference_and_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "s3cret")
    (tmp_path / "binary").write_bytes(b"s3cret\xff")
    (tmp_path / "long").write_text("s3cret" * 20_000)
    os.mkfifo(tmp_path / "fifo")
    for reference, said in (
        ("env:MISSING_ONE", "environment variable 'MISSING_ONE'"),
        ("env:", "environment variable ''"),
        ("file:token", "no absolute path"),
        (f"file:{tmp_path}/none", "does not exist"),
        (f"file:{tmp_path}", "is not a file"),
        (f"file:{tmp_path}/fifo", "is not a file"),
        (f"file:{tmp_path}/binary", "not UTF-8 text"),
        (f"file:{tmp_path}/long", "larger than"),
        ("file:/a\0b", "no absolute path"),
    ):
        with pytest.raises(ConfigError) as caught:
            expand(f"${{env:GIVEN}}${{{reference}}}")
        assert said in str(caught.value)
        assert reference.partition(":")[2] in str(caught.value) or "\0" in reference
        assert "s3cret" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_file_system_options_have_their_secrets_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    options = json.dumps({"s3": {"key": "${env:MY_KEY}", "config": {"a": ["${env:MY_KEY}"]}, "anon": False}})
    context = SourceContext(SkillConfig({"skills.source.options": options}))
    with pytest.raises(ConfigError, match=r"skills\.source\.options, for s3: the environment variable 'MY_KEY'"):
        context.file_system_options("s3")
    assert context.file_system_options("s3", expanded=False)["key"] == "${env:MY_KEY}"
    assert context.file_system_options("gs") == {}
    monkeypatch.setenv("MY_KEY", "s3cret")
    assert context.file_system_options("s3") == {"key": "s3cret", "config": {"a": ["s3cret"]}, "anon": False}
    assert context.without_options().file_system_options("s3") == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"s3": 1}', '"s3cret"'])
def test_options_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match=r"option skills\.source\.options: .*write a JSON object") as caught:
        SourceContext(SkillConfig({"skills.source.options": text})).file_system_options("s3")
    assert "s3cret" not in str(caught.value)


def test_limits_come_from_the_options_unless_they_are_given() -> None:
    config = SkillConfig({"skills.limits.file": 5})
    assert SourceContext(config).limits.file == 5
    assert SourceContext(config, limits=Limits(file=7)).limits.file == 7


def test_https_at_a_port_without_tls(web: Web, store: str) -> None:
    with pytest.raises(SourceError, match=r"the server does not use TLS on this port: write http:// instead") as caught:
        resolve("url", web.url.replace("http:", "https:") + "/s.zip", store)
    assert not caught.value.retryable
