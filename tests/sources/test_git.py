"""Skills of git repositories: commits, pins, refresh, credentials and addresses, with a real git server."""

from __future__ import annotations

import json
import logging
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import AgentSkillManager
from flink_skills.endpoint import redact, user_of
from flink_skills.errors import ConfigError, SourceError
from flink_skills.options import SkillConfig
from flink_skills.sources import SourceContext, SourceSpec, SourceTree, open_source
from tests.sources.git_server import GitServer, Repository, needs_git
from tests.sources.web import ALLOWED, zip_of

COMMIT = "0123456789abcdef" * 2 + "01234567"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n"


def skill(name: str, text: str = "Do it.") -> str:
    return f"---\nname: {name}\ndescription: Does {name}.\n---\n{text}\n"


def write(folder: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    found = GitServer(tmp_path)
    yield found
    found.close()


@pytest.fixture
def context(tmp_path: Path) -> Any:
    def make(*, refresh: bool = False, **options: Any) -> SourceContext:
        config = SkillConfig(
            {
                **ALLOWED,
                **{f"skills.{key.replace('__', '.').replace('_', '-')}": value for key, value in options.items()},
            }
        )
        return SourceContext(config, store_dir=str(tmp_path / "store"), refresh=refresh)

    return make


def resolved(location: Any, context: SourceContext) -> SourceTree:
    (tree,) = open_source("url", location, context).resolve()
    return tree


def files(tree: SourceTree) -> dict[str, bytes]:
    top = Path(tree.path)
    return {str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file()}


def test_a_local_path_needs_no_suffix_before_the_ref() -> None:
    address = "git+file:///srv/skills@main#subdirectory=ops"
    opened = open_source("url", address, SourceContext())
    assert (opened.origin, redact(address), user_of(address)) == (address, address, "")


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("git+ssh://git@host/r.git@v1#subdirectory=a", "write git+https://host/r.git@v1#subdirectory=a, for a private"),
        ("git+ssh://git@host:22/o/r.git", "SSH is not supported, because each TaskManager would need the program ssh"),
        ("ssh://git@host/~o/r.git", "write git+https://host/~o/r.git"),
        ("git@host.example.org:o/r.git", "write git+https://host.example.org/o/r.git"),
        ("git+ftp://host/r.git", "git+ftp is not supported"),
        ("git+https://host", "the address is invalid; write git+https://host/repo.git@REF#subdirectory=PATH"),
        ("git+https://host/a b.git", "the address is invalid"),
        ("git+https://host/r.git?token=1", "the address is invalid"),
        ("git+https://host/r.git@main#egg=x", "'egg' after '#' is unknown"),
        ("git+https://host/r.git@main#egg=a/b", "the address is invalid"),
        ("git+https://host/r.git#subdirectory=a&subdirectory=b", "the part after '#' is invalid"),
        ("git+https://host/r.git#subdirectory=a/../b", "the subdirectory is not a path"),
        ("git+https://host/r.git#subdirectory=%2e%2e", "the subdirectory is not a path"),
        ("git+https://host/r.git#commit=abc", "the commit is abbreviated or invalid"),
        ("git+https://host/r.git#sha256=12", "sha256 needs 64 hexadecimal digits"),
        ("git+file://host/r.git", "the address has a host; write git+file:///path/repo.git@REF"),
        ("git+http://host/r.git", "skills.source.allow-http"),
        ("git+https://127.0.0.1/r.git", "skills.source.allow-private"),
        ("git+https://[::1]/r.git", "skills.source.allow-private"),
        ("git://host/r.git", "write git+https://host/repo.git@REF"),
        (
            "git+https://github.com/o/r/tree/main/skills",
            "write git+https://github.com/o/r.git@main#subdirectory=skills",
        ),
        ("https://github.com/o/r/tree/v1/a/b", "or write git+https://github.com/o/r.git@v1#subdirectory=a/b"),
        ("https://github.com/o/r/blob/v1/a/SKILL.md", "or write git+https://github.com/o/r.git@v1#subdirectory=a"),
        ("https://github.com/o/r.git", "or write git+https://github.com/o/r.git@<branch>"),
        ("https://gitlab.com/g/s/r/-/tree/main/a?ref=x", "write git+https://gitlab.com/g/s/r.git@main#subdirectory=a"),
        ("https://code.example.org/g/r/-/blob/main/SKILL.md", "write git+https://code.example.org/g/r.git@main"),
    ],
)
def test_an_address_that_cannot_work_is_a_config_error(location: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_source("url", location, SourceContext())
    assert said in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        open_source("url", "git+ssh://u:s3cret@host/a.git?s3cret", SourceContext())
    assert "s3cret" not in repr(caught.value)


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("git+https://host/r.git@v1#subdirectory=a", "git+https://host/r.git@v1#subdirectory=a"),
        ("git+https://me:s3cret@host:8443/r.git@v1", "git+https://host:8443/r.git@v1"),
        ("git+https://s3cret@host/r.git@@scope/pkg@1.0", "git+https://host/r.git@@scope/pkg@1.0"),
        ("git+https://x:${file:/etc/a/b}@host/r.git@v1", "git+https://host/r.git@v1"),
        ("git+https://example.org/r@feature/x", "git+https://example.org/r@feature/x"),
        ("git+https://me:1/s3cret@host/r.git", "git+https://…@host/r.git"),
        ("git+https://me:s3cret/x@host/r.git", "git+https://…"),
        ("git+https://me:s3cret#x@host/r.git", "git+https://…"),
        ("git+https://host/r.git?t=s3cret@x", "git+https://…"),
    ],
)
def test_the_shown_address_has_no_secret(location: str, shown: str) -> None:
    assert "s3cret" not in redact(location)
    assert redact(redact(location)) == redact(location)
    if "…" not in shown:
        assert redact(location) == shown
    assert "s3cret" not in user_of(location) or "s3cret" not in redact(location)


@pytest.mark.parametrize(
    ("text", "location", "sha256", "format"),
    [
        (f"#subdirectory=a/b&sha256={'0' * 64}", "#subdirectory=a/b", "0" * 64, "skill"),
        (f"#sha256={'0' * 64}&subdirectory=a", "#subdirectory=a", "0" * 64, "skill"),
        (f"#subdirectory=a#sha256={'0' * 64}&format=heading", "#subdirectory=a", "0" * 64, "heading"),
        ("#format=heading", "", None, "heading"),
        (f"#subdirectory=a&commit={COMMIT}", f"#subdirectory=a&commit={COMMIT}", None, "skill"),
        ("#subdirectory=a", "#subdirectory=a", None, "skill"),
        ("&x#subdirectory=a", "&x#subdirectory=a", None, "skill"),
    ],
)
def test_pins_are_combined_with_a_subdirectory(text: str, location: str, sha256: str | None, format: str) -> None:
    spec = SourceSpec.parse("url", f"git+https://host/r.git@v1{text}")
    assert spec == SourceSpec("url", f"git+https://host/r.git@v1{location}", sha256, format)
    assert SourceSpec.parse("url", str(spec)) == spec
    assert "format=skill" not in str(spec)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flink_skills.sources.git.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'flink-skills\[git\]'"):
        open_source("url", "git+https://example.org/r.git", SourceContext())


@needs_git
@pytest.mark.parametrize("protocol", ["2", "0"])
@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_each_form_of_a_ref(tmp_path: Path, server: GitServer, context: Any, protocol: str, object_format: str) -> None:
    repository = Repository(tmp_path, "r.git", object_format=object_format)
    server.protocol = protocol
    write(repository.tree, {"a/SKILL.md": skill("a", "one")})
    first = repository.commit()
    repository.git("tag", "-a", "v1", "-m", "annotated")
    repository.git("tag", "@scope/pkg@1.0")
    repository.git("push", "-q", str(repository.path), "HEAD:refs/heads/feature/x", "--tags")
    write(repository.tree, {"a/SKILL.md": skill("a", "two")})
    second = repository.commit()
    url = server.url("r.git")
    for ref, wanted in (
        ("@v1", "one"), ("@@scope/pkg@1.0", "one"), ("@feature/x", "one"), ("@refs/tags/v1", "one"),
        (f"@{second}", "two"), ("", "two"), ("@main", "two"), ("@refs/heads/main", "two"),
    ):  # fmt: skip
        tree = resolved(url + ref, context())
        assert f"\n{wanted}\n" in files(tree)["a/SKILL.md"].decode(), ref
        assert tree.origin == url + ref
    pinned = open_source("url", f"{url}@v1#subdirectory=a", context()).pinned()
    assert pinned.location == f"{url}@v1#subdirectory=a&commit={first}"
    assert open_source("url", f"{url}@{first}", context()).pinned().location == f"{url}@{first}"


@needs_git
def test_a_ref_that_does_not_exist_is_named_with_near_names(
    repository: Repository, server: GitServer, context: Any
) -> None:
    write(repository.tree, {"a/SKILL.md": skill("a")})
    commit = repository.commit()
    repository.git("push", "-q", str(repository.path), "HEAD:refs/heads/main-2")
    for ref, said in (
        ("mian", r"the repository has no branch or tag 'mian' \(did you mean 'main'"),
        ("x..y", "no branch or tag 'x..y'"),
        (commit[:10], "or all digits of a commit"),
        (COMMIT, f"does not send the commit {COMMIT}; write a branch or tag that has it"),
    ):
        for url in (server.url(), f"git+file://{repository.path}"):
            with pytest.raises(SourceError, match=said) as caught:
                resolved(f"{url}@{ref}", context())
            assert not caught.value.retryable
            assert caught.value.source == f"{url}@{ref}"


@needs_git
def test_a_name_of_a_tag_and_a_branch_is_ambiguous(repository: Repository, server: GitServer, context: Any) -> None:
    write(repository.tree, {"a/SKILL.md": skill("a")})
    repository.commit()
    repository.git("tag", "v1")
    write(repository.tree, {"a/SKILL.md": skill("a", "new")})
    repository.commit()
    repository.git("push", "-q", str(repository.path), "HEAD:refs/heads/v1")
    with pytest.raises(SourceError, match="'v1' is a tag and a branch; write refs/tags/v1 or refs/heads/v1"):
        resolved(f"{server.url()}@v1", context())
    assert "new" in files(resolved(f"{server.url()}@refs/heads/v1", context()))["a/SKILL.md"].decode()


@needs_git
def test_a_repository_without_commits_is_an_error(repository: Repository, server: GitServer, context: Any) -> None:
    with pytest.raises(SourceError, match="the repository has no HEAD"):
        resolved(server.url(), context())


@needs_git
def test_only_one_commit_of_the_history_is_fetched(repository: Repository, server: GitServer, context: Any) -> None:
    import os

    write(repository.tree, {"a/SKILL.md": skill("a"), "a/big.bin": os.urandom(300_000)})
    repository.commit()
    (repository.tree / "a" / "big.bin").unlink()
    repository.commit()
    resolved(server.url(), context(limits__download="200 kb"))


@pytest.mark.row("B29")
@needs_git
def test_the_digest_is_that_of_a_folder_and_an_archive(
    tmp_path: Path, repository: Repository, server: GitServer, context: Any
) -> None:
    skills = tmp_path / "skills"
    write(
        skills,
        {
            "a/SKILL.md": skill("a"),
            "a/run.sh": "echo",
            "a/é ü/x.bin": bytes(range(256)),
            "b/SKILL.md": skill("b"),
            "bad/SKILL.md": "no front matter",
            "a/__pycache__/x.pyc": b"1",
        },
    )
    (skills / "a" / "run.sh").chmod(0o755)
    repository.publish(skills)
    (tmp_path / "skills.zip").write_bytes(zip_of(skills))
    with tarfile.open(tmp_path / "skills.tar", "w") as archive:
        archive.add(skills, "skills")
    found = {}
    for source in (
        str(skills), str(tmp_path / "skills.zip"), str(tmp_path / "skills.tar"), server.url(), f"git+file://{repository.path}@main"
    ):  # fmt: skip
        words: Any = {"urls": [source]} if "://" in source else {"paths": [source]}
        with AgentSkillManager(**words, config=context().config, store_dir=str(tmp_path / "store")) as manager:
            digests = {one.name: one.digest for one in manager.load_skills()}
            codes = sorted((one.code, one.severity, one.message) for one in manager.diagnostics)
            found[source] = digests, codes
    assert set(found[server.url()][0]) == {"a", "b"}
    assert all(value == found[server.url()] for value in found.values()), found
    tree = Path(resolved(server.url(), context()).path)
    assert (tree / "a" / "run.sh").stat().st_mode & 0o111
    assert not (tree / "a" / "SKILL.md").stat().st_mode & 0o111


@needs_git
def test_a_subdirectory_and_a_skill_at_the_root(repository: Repository, server: GitServer, context: Any) -> None:
    write(repository.tree, {"ops/one/SKILL.md": skill("one"), "other/two/SKILL.md": skill("two"), "README.md": "x"})
    repository.commit()
    assert set(files(resolved(f"{server.url()}#subdirectory=ops", context()))) == {"one/SKILL.md"}
    assert set(files(resolved(f"{server.url()}#subdirectory=ops/one/", context()))) == {"one/SKILL.md"}
    for path, said in (
        ("opps", r"no directory 'opps' \(did you mean 'ops'"),
        ("README.md", "no directory 'README.md'"),
    ):
        with pytest.raises(SourceError, match=said):
            resolved(f"{server.url()}#subdirectory={path}", context())


@needs_git
def test_a_sha256_pin(repository: Repository, server: GitServer, context: Any) -> None:
    write(repository.tree, {"a/SKILL.md": skill("a")})
    repository.commit()
    sha256 = resolved(server.url(), context()).version
    pinned = f"{server.url()}@main#sha256={sha256}"
    before = len(server.requests)
    assert resolved(pinned, context()).version == sha256
    assert len(server.requests) == before, "a pinned tree in the store needs no server"
    write(repository.tree, {"a/SKILL.md": skill("a", "new")})
    repository.commit()
    with pytest.raises(SourceError, match=r"the sha256 is [0-9a-f]{64}, which differs from the pinned one"):
        resolved(pinned.replace(sha256[:8], "00000000"), context())


@needs_git
def test_lfs_pointers_and_submodules_are_named(repository: Repository, server: GitServer, context: Any) -> None:
    write(repository.tree, {"a/SKILL.md": skill("a"), "a/model.bin": POINTER})
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{COMMIT},vendor/lib")
    repository.git("config", "filter.lfs.smudge", "touch /tmp/never")
    write(repository.tree, {".gitattributes": "*.bin filter=lfs"})
    repository.git("add", "a", ".gitattributes")
    repository.git("commit", "-q", "-m", "x")
    repository.git("push", "-q", str(repository.path), "HEAD:main")
    for _ in range(2):  # the second opening is from the store
        tree = resolved(server.url(), context())
        assert files(tree)["a/model.bin"] == POINTER
        assert [(note.code, note.severity, note.message, note.fix) for note in tree.notes] == [
            (
                "D06",
                "warning",
                "the repository has a pointer of Git LFS instead of 'a/model.bin'",
                "store the file without Git LFS",
            ),
            (
                "D06",
                "warning",
                "the submodule 'vendor/lib' is not fetched",
                "declare its repository as a source",
            ),
        ]


@pytest.mark.row("B29")
@needs_git
def test_a_pinned_commit_stays_until_a_refresh(repository: Repository, server: GitServer, context: Any) -> None:
    write(repository.tree, {"a/SKILL.md": skill("a", "one")})
    repository.commit()
    spec = open_source("url", f"{server.url()}@main", context()).pinned()
    write(repository.tree, {"a/SKILL.md": skill("a", "two")})
    repository.commit()
    assert "one" in files(resolved(spec, context()))["a/SKILL.md"].decode()
    requests = len(server.requests)
    assert "one" in files(resolved(spec, context()))["a/SKILL.md"].decode()
    assert len(server.requests) == requests, "a pinned commit in the store needs no server"
    assert "two" in files(resolved(spec, context(refresh=True)))["a/SKILL.md"].decode()
    assert "one" in files(resolved(spec, context()))["a/SKILL.md"].decode(), "a restart uses the plan's commit"


@needs_git
def test_an_unchanged_branch_costs_one_listing(repository: Repository, server: GitServer, context: Any) -> None:
    write(repository.tree, {"a/SKILL.md": skill("a")})
    repository.commit()
    opening = context()
    resolved(server.url(), opening)
    server.requests.clear()
    resolved(server.url(), opening)
    assert server.requests == [], "the processes of one opening share the answer"
    resolved(server.url(), context(store__check="never"))
    assert server.requests == []
    resolved(server.url(), context(refresh=True))
    assert [path for _, path in server.requests] == [
        "/skills.git/info/refs?service=git-upload-pack", "/skills.git/git-upload-pack"
    ]  # fmt: skip
    write(repository.tree, {"b/SKILL.md": skill("b")})
    repository.commit()
    assert set(files(resolved(server.url(), context(refresh=True)))) == {"a/SKILL.md", "b/SKILL.md"}


@needs_git
def test_a_manager_refreshes_a_branch(tmp_path: Path, repository: Repository, server: GitServer, context: Any) -> None:
    write(repository.tree, {"a/SKILL.md": skill("a")})
    repository.commit()
    with AgentSkillManager(urls=[server.url()], config=context().config, store_dir=str(tmp_path / "s")) as manager:
        assert [one.name for one in manager.load_skills()] == ["a"]
        assert manager.refresh() is None
        write(repository.tree, {"b/SKILL.md": skill("b")})
        repository.commit()
        changes = manager.refresh()
        assert changes is not None
        assert [one.name for one in manager.load_skills()] == ["a", "b"]


@pytest.mark.row("B29")
@needs_git
def test_a_token_by_reference(
    repository: Repository, server: GitServer, context: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    write(repository.tree, {"a/SKILL.md": skill("a")})
    repository.commit()
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("GIT_TOKEN", "p@ss/w:rd#1?%2F")
    server.login = "me:p@ss/w:rd#1?%2F"
    location = server.url(login="me:${env:GIT_TOKEN}") + "@main"
    tree = resolved(location, context())
    assert set(files(tree)) == {"a/SKILL.md"}
    assert tree.origin == f"{server.url()}@main"
    server.login = "me:other"
    with pytest.raises(SourceError, match="access is refused; check the user or token in its URL") as caught:
        resolved(location, context())
    monkeypatch.delenv("GIT_TOKEN")
    with pytest.raises(SourceError, match="the environment variable 'GIT_TOKEN'") as missing:
        resolved(location, context())
    assert not [text for text in (str(caught.value), str(missing.value), caplog.text) if "p@ss" in text]


@needs_git
def test_options_of_https_apply_and_the_store_separates_credentials(
    repository: Repository, server: GitServer, context: Any
) -> None:
    write(repository.tree, {"a/SKILL.md": skill("a")})
    repository.commit()
    options = json.dumps({"http": {"headers": {"Authorization": "Basic bWU6dG9rZW4="}}})
    server.login = "me:token"
    resolved(
        server.url(), context(source__options=json.dumps({"http": {"client_kwargs": json.loads(options)["http"]}}))
    )
    resolved(server.url(login="me:token"), context())
    with pytest.raises(SourceError, match="access is refused"):
        resolved(server.url(login="me:wrong"), context(store__check="never"))


@needs_git
@pytest.mark.parametrize("kind", ["allowed", "refused", "private", "http"])
def test_a_redirect_to_another_host(
    tmp_path: Path, repository: Repository, server: GitServer, context: Any, kind: str
) -> None:
    write(repository.tree, {"a/SKILL.md": skill("a")})
    repository.commit()
    other = GitServer(tmp_path)
    target = f"http://localhost:{other.port}" if kind != "private" else "http://169.254.169.254"

    def redirect(handler: Any) -> bool:
        handler.send_response(301)
        handler.send_header("Location", target + handler.path)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return True

    server.fault = redirect
    server.login = "me:s3cret"
    options: dict[str, Any] = {"source__allow_redirects": True} if kind in ("allowed", "private") else {}
    if kind == "private":
        options["source__allow_private"] = False
    location = server.url(login="me:s3cret")
    try:
        if kind == "allowed":
            assert set(files(resolved(location, context(**options)))) == {"a/SKILL.md"}
            assert {method for method, _ in other.requests} == {"GET", "POST"}
            assert not [headers for headers in other.seen if "authorization" in headers]
        elif kind == "private":
            with pytest.raises((SourceError, ConfigError), match="private"):
                resolved(location, context(**options))
        else:
            with pytest.raises(SourceError, match="redirects to an address that is not allowed"):
                resolved(location, context(**options))
            assert other.requests == []
    finally:
        other.close()


@needs_git
def test_hosts_that_are_not_allowed(repository: Repository, server: GitServer, context: Any) -> None:
    with pytest.raises(ConfigError, match=r"not one of skills\.source\.allowed-hosts"):
        open_source("url", server.url(), context(source__allowed_hosts=("skills.example.org",)))
    # A name that leads to a private address is checked when it is connected.
    config = SkillConfig({"skills.source.allow-http": True})
    source = open_source("url", server.url(host="localtest.invalid"), SourceContext(config))
    with pytest.raises(SourceError):
        source.resolve()
