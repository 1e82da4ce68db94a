"""Indexes of skills at /.well-known/agent-skills/index.json. Examines the internals of sources.wellknown on purpose."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flink_skills.errors import SourceError
from flink_skills.options import SkillConfig
from flink_skills.sources import INDEX_PATH, SCHEMA, SourceContext, SourceTree, open_source, remove_tree
from flink_skills.sources.wellknown import index_address, read_index
from tests.sources.web import ALLOWED, SKILL, Page, Web, zip_bytes

pytestmark = pytest.mark.usefixtures("no_waits")

OTHER = SKILL.replace(b"greet", b"wave")
PLACE = f"/{INDEX_PATH}"


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def entry(name: str, url: str, data: bytes, kind: str = "archive", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "description": "x", "url": url, "digest": digest(data), **more}


def index(*entries: Any, **more: Any) -> bytes:
    return json.dumps({"$schema": SCHEMA, "skills": entries, **more}).encode()


def publish(web: Web, *entries: Any, place: str = PLACE, tag: bool = True) -> None:
    data = index(*entries)
    web.pages[place] = Page(data, headers={"ETag": f'"{digest(data)}"'} if tag else {})


def resolve(url: Any, store: str, *, refresh: bool = False, **options: object) -> list[SourceTree]:
    config = SkillConfig({**ALLOWED, **{f"skills.{name}": value for name, value in options.items()}})
    return open_source("url", url, SourceContext(config, store_dir=store, refresh=refresh)).resolve()


def failure(url: str, store: str, **options: Any) -> SourceError:
    with pytest.raises(SourceError) as caught:
        resolve(url, store, **options)
    assert list((Path(store) / ".work").glob("*")) == []
    assert caught.value.__cause__ is None
    return caught.value


def files(trees: list[SourceTree]) -> list[str]:
    return sorted(str(file.relative_to(tree.path)) for tree in trees for file in Path(tree.path).rglob("*.md"))


@pytest.fixture
def two(web: Web) -> Web:
    """An archive and a bare file."""
    web.pages["/.well-known/agent-skills/greet.zip"] = Page(zip_bytes())
    web.pages["/files/wave"] = Page(OTHER)
    publish(web, entry("greet", "greet.zip", zip_bytes()), entry("wave", "/files/wave?raw=1", OTHER, "skill-md"))
    return web


@pytest.mark.parametrize("url", ["", "/", PLACE, f"{PLACE}#fragment"])
def test_an_index_is_found(two: Web, store: str, url: str) -> None:
    trees = resolve(two.url + url, store)
    assert files(trees) == ["skills/greet/SKILL.md", "wave/SKILL.md"]
    for tree, data in zip(trees, (zip_bytes(), OTHER), strict=True):
        assert tree.version == hashlib.sha256(data).hexdigest()
        assert tree.path == f"{store}/{tree.version}"
        assert (tree.remote, tree.notes) == (True, ())
        assert tree.lease is not None
    assert {tree.origin for tree in trees} == {(two.url + url).partition("#")[0]}


def test_an_index_below_a_path(web: Web, store: str) -> None:
    publish(web, entry("greet", "../../files/g.zip", zip_bytes()), place=f"/team/a{PLACE}")
    web.pages["/team/a/files/g.zip"] = Page(zip_bytes())
    for url in ("/team/a/", f"/team/a{PLACE}"):
        assert files(resolve(web.url + url, store)) == ["skills/greet/SKILL.md"]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://h", "https://h/" + INDEX_PATH),
        ("https://h?a=/b", f"https://h/{INDEX_PATH}?a=/b"),
        ("https://u:p@h:1/x/", f"https://u:p@h:1/x/{INDEX_PATH}"),
        (f"https://h/x/{INDEX_PATH}?t=1", f"https://h/x/{INDEX_PATH}?t=1"),
        ("https://h/x", None),
        ("https://h/s.zip", None),
        ("https://h/agent-skills/index.json", None),
        ("https://${env:U}:${file:/a/b}@h/", f"https://${{env:U}}:${{file:/a/b}}@h/{INDEX_PATH}"),
    ],
)
def test_where_an_index_is(url: str, address: str | None) -> None:
    assert index_address(url) == address


def test_nothing_that_is_unchanged_is_fetched_twice(two: Web, store: str) -> None:
    first = resolve(two.url, store)
    assert two.count("GET") == 3
    assert resolve(two.url, store) == first
    assert (two.count("GET"), two.count("HEAD")) == (3, 1)
    publish(two, entry("greet", "greet.zip", zip_bytes()), entry("wave", "/new", SKILL, "skill-md"))
    two.pages["/new"] = Page(SKILL)
    after = resolve(two.url, store, refresh=True)
    assert after[0] == first[0]
    assert two.requests[-2:] == [("GET", PLACE), ("GET", "/new")]
    remove_tree(first[0].path)
    assert resolve(two.url, store) == after
    assert two.requests[-2:] == [("HEAD", PLACE), ("GET", "/.well-known/agent-skills/greet.zip")]


def test_checks(two: Web, store: str) -> None:
    never = {"store.check": "never"}
    first = resolve(two.url, store, **never)
    for given_refresh in (False, True):
        assert resolve(two.url, store, refresh=given_refresh, **never) == first
    assert len(two.requests) == 3
    config = SkillConfig({**ALLOWED, "skills.store.check": "always"})
    one = SourceContext(config, store_dir=store)
    for _ in range(2):
        open_source("url", two.url, one).resolve()
    assert (two.count("GET"), two.count("HEAD")) == (3, 2)
    two.close()
    assert resolve(two.url, store, **never) == first


def test_a_pinned_index(two: Web, store: str) -> None:
    page = two.pages[PLACE]
    assert isinstance(page, Page)
    pinned = f"{two.url}#sha256={hashlib.sha256(page.body).hexdigest()}"
    first = resolve(pinned, store)
    assert resolve(pinned, store, **{"store.check": "always"}) == first
    assert len(two.requests) == 3
    publish(two, entry("wave", "/files/wave", OTHER, "skill-md"))
    assert resolve(pinned, store, refresh=True) == first
    assert "differs from the pinned one" in str(failure(f"{two.url}#sha256={'0' * 64}", store))


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (7, "the entry is not an object"),
        ({}, "the entry has no name"),
        ({"name": "x" * 65}, "the entry has no name"),
        ({"name": "a\nb"}, "the entry has no name"),
        (entry("x", "x.zip", b"", "mcp"), "the type 'mcp' is unknown; skill-md and archive are supported"),
        (entry("x", "", b""), "the entry has no url"),
        (entry("x", "a\nb", b""), "the entry has no url"),
        (entry("x", "x.zip", b"", digest="sha256:12"), "the digest is not"),
        (entry("x", "x.zip", b"", digest="md5:" + "0" * 64), "the digest is not"),
        (entry("x", "x.zip", b"", digest=None), "the digest is not"),
        (entry("x", "file:///etc/passwd", b""), "is not an http(s) address"),
        (entry("x", "s3://bucket/x.zip", b""), "is not an http(s) address"),
        (entry("x", "http://[::1/x", b""), "cannot be parsed"),
        (entry("x", "http://a b/x", b""), "the host is invalid"),
        (entry("x", "http://other.example/x.zip?sig=s3cret", b""), "http://other.example/x.zip is on another host"),
        (entry("x", "gone.zip", b""), "does not exist"),
        (entry("x", "/files/wave", b"else"), "differs from the pinned one"),
        (entry("x", "/page", b"<html>"), "is a web page"),
        (entry("x", "/text", b"text"), "is not an archive"),
    ],
)
def test_a_bad_entry_hides_no_good_one(web: Web, store: str, bad: Any, said: str) -> None:
    web.pages.update({"/files/wave": Page(OTHER), "/page": Page(b"<html>"), "/text": Page(b"text")})
    publish(web, bad, entry("wave", "/files/wave", OTHER, "skill-md"))
    [tree] = resolve(web.url, store)
    assert files([tree]) == ["wave/SKILL.md"]
    [note] = tree.notes
    assert said in note.message
    assert set(note.skill) <= {"x"}
    assert note.path.startswith(web.url)
    assert "s3cret" not in str(note)
    assert {path.name for path in Path(store).iterdir() if path.name[0] != "."} == {tree.version}


def test_an_index_of_bad_entries_only_is_an_error_with_the_reasons(web: Web, store: str) -> None:
    publish(web, entry("x", "gone.zip", b""), entry("y", "y", b"", "mcp"))
    error = failure(web.url, store)
    assert "lists no usable skill\n- y: entry 2 of the skill index is skipped: the type 'mcp'" in str(error)
    assert "- x: " in str(error)
    assert "gone.zip: the source does not exist" in str(error)
    assert not error.retryable
    publish(web)
    assert "lists no usable skill" in str(failure(web.url, store))


def test_what_trying_again_may_fix_is_raised(two: Web, store: str) -> None:
    two.pages["/files/wave"] = Page(status=503)
    error = failure(two.url, store)
    assert error.retryable
    assert f"{two.url}/files/wave" in str(error)
    assert error.source == two.url
    two.pages["/files/wave"] = Page(OTHER)
    assert len(resolve(two.url, store)) == 2
    assert two.count("GET") == 1 + 1 + 4 + 1  # the index and the archive once


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<!doctype html><html>", "is a web page"),
        (b"{", "the file is not valid JSON"),
        (b"[" * 100_000, "the file is not valid JSON"),
        (b"\xff{}", "the file is not UTF-8 text"),
        (b"[]", "the content is not a JSON object"),
        (b'{"skills": []}', "$schema is missing"),
        (b'{"$schema": "https://schemas.agentskills.io/discovery/0.3.0/schema.json", "skills": []}', "discovery/0.3.0"),
        (b'{"$schema": ["x"], "skills": []}', "the schema is"),
        (json.dumps({"$schema": SCHEMA, "skills": {}}).encode(), "the list 'skills' is missing"),
    ],
)
def test_what_is_no_index(web: Web, store: str, body: bytes, said: str) -> None:
    web.pages[PLACE] = Page(body, headers={"ETag": '"1"'})
    for _ in range(2):
        error = failure(web.url, store)
        assert said in str(error)
        assert (error.source, error.retryable) == (web.url, False)
    assert not list((Path(store) / ".urls").glob("*"))  # nothing wrong is remembered


def test_an_index_with_a_byte_order_mark(two: Web, store: str) -> None:
    page = two.pages[PLACE]
    assert isinstance(page, Page)
    page.body = b"\xef\xbb\xbf" + page.body
    assert len(resolve(two.url, store)) == 2
    assert len(resolve(two.url, store)) == 2
    assert two.count("GET") == 3


def test_an_address_without_an_index_says_where_one_would_be(web: Web, store: str) -> None:
    error = failure(f"{web.url}/team/", store)
    assert f"{web.url}/team{PLACE}: the source does not exist" in str(error)
    assert f"where the skills of {web.url}/team/ would be listed; for an archive give its own URL" in str(error)
    assert "would be listed" not in str(failure(f"{web.url}{PLACE}", store))


def test_artifacts_on_other_hosts_need_an_option_and_get_no_credentials(web: Web, store: str) -> None:
    web.pages["/wave"] = Page(OTHER)
    publish(web, entry("wave", web.url_as("localhost") + "/wave", OTHER, "skill-md"), tag=False)
    assert "add the host to skills.source.allowed-hosts or set skills.source.allow-redirects" in str(
        failure(web.url, store)
    )
    options = json.dumps({"http": {"headers": {"X-Api-Key": "s3cret"}}})
    for given_options in ({"source.allow-redirects": True}, {"source.allowed-hosts": ["127.0.0.1", "localhost"]}):
        web.seen.clear()
        web.requests.clear()
        url = web.url.replace("//", "//me:s3cret@")
        [tree] = resolve(url, store, **{"source.options": options, **given_options})
        asked = [(path, headers) for (_, path), headers in zip(web.requests, web.seen, strict=True)]
        assert [path for path, _ in asked][-2:] == [PLACE, "/wave"]
        for path, headers in asked:
            assert headers.get("x-api-key") == ("s3cret" if path == PLACE else None)
            assert ("authorization" in headers) == (path == PLACE)
        remove_tree(tree.path)


def test_credentials_of_the_address_are_for_artifacts_beside_it(two: Web, store: str) -> None:
    assert len(resolve(two.url.replace("//", "//me:s3cret@"), store)) == 2
    by_path = dict(zip([path for _, path in two.requests], two.seen, strict=True))
    assert all("authorization" in by_path[path] for path in (PLACE, "/.well-known/agent-skills/greet.zip"))


def test_references_in_the_address_stay_out_of_messages(web: Web, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM", "s3cret-team")
    publish(web, entry("x", "gone.zip", b""), place=f"/s3cret-team{PLACE}")
    url = f"{web.url}/${{env:TEAM}}/"
    error = failure(url, store)
    assert "gone.zip: the source does not exist" in str(error)
    assert "s3cret" not in str(error)
    assert "${env:TEAM}" in str(error)


def test_one_content_under_two_names_is_one_tree(web: Web, store: str) -> None:
    web.pages["/wave"] = Page(OTHER)
    publish(web, entry("a", "/wave", OTHER, "skill-md"), entry("b", "/wave", OTHER, "skill-md"))
    assert len(resolve(web.url, store)) == 1
    assert web.count("GET") == 2


def test_of_two_places_of_one_content_the_first_is_asked(web: Web, store: str) -> None:
    web.pages["/a.zip"] = Page(zip_bytes())
    publish(web, entry("greet", "/a.zip", zip_bytes()), entry("again", "/gone.zip", zip_bytes()))
    assert files(resolve(web.url, store)) == ["skills/greet/SKILL.md"]
    assert web.count("GET") == 2


def test_many_entries(web: Web, store: str) -> None:
    entries = []
    for number in range(30):
        data = SKILL.replace(b"greet", f"greet-{number}".encode())
        web.pages[f"/{number}"] = Page(data)
        entries.append(entry(f"greet-{number}", f"/{number}", data, "skill-md"))
    publish(web, *entries)
    trees = resolve(web.url, store)
    assert [files([tree]) for tree in trees] == [[f"greet-{number}/SKILL.md"] for number in range(30)]
    [first, *_] = resolve(web.url, store, **{"limits.tree-directories": 10})
    [note] = first.notes
    assert (note.code, note.severity) == ("D01", "warning")
    assert "has 30 entries, of which 10 are read" in note.message
    assert "skills.limits.tree-directories" in note.fix


def test_a_damaged_record_is_fetched_again(two: Web, store: str) -> None:
    first = resolve(two.url, store)
    [record] = (Path(store) / ".urls").iterdir()
    good = json.loads(record.read_text())
    for wrong in ({"text": good["text"].replace("greet", "gruss")}, {"text": None}, {"text": "\ud800"}):
        record.write_text(json.dumps({**good, **wrong}))
        assert resolve(two.url, store, **{"store.check": "never"}) == first
        assert json.loads(record.read_text())["text"] == good["text"]
    assert two.count("GET") == 3 + 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["name", "type", "url", "digest"]) | st.text(), inner)
    ),
)


@settings(max_examples=40, deadline=None)
@given(JSON | st.builds(lambda skills: {"$schema": SCHEMA, "skills": skills}, st.lists(JSON)))
def test_any_json_is_an_index_or_a_source_error(data: Any) -> None:
    try:
        artifacts, notes = read_index(json.dumps(data), "https://h", 5)
    except SourceError:
        return
    assert len(artifacts) + len(notes) <= 6


def test_the_store_has_no_loose_ends(two: Web, store: str) -> None:
    trees = resolve(two.url, store)
    for tree in trees:
        assert tree.lease is not None
        tree.lease.close()
    names = [path.name for path in Path(store).iterdir()]
    assert sorted(name for name in names if name[0] != ".") == sorted(tree.version for tree in trees)
