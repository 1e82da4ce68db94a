"""Hostile and broken OCI registries."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from flink_skills.errors import ConfigError, SourceError
from flink_skills.sources import SourceContext, SourceTree, open_source
from tests.sources.oci_server import CONTENT_TYPE, MANIFEST, OciServer, digest_of, files_of, tar_of

SKILL = b"---\nname: greet\ndescription: Says hello.\n---\nHi\n"
FILES = {"greet/SKILL.md": SKILL, "greet/scripts/a.sh": b"echo\n"}
pytestmark = pytest.mark.usefixtures("no_login")


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("oci://host/Team/x:1", "'Team/x' is not a valid repository"),
        ("oci://host/x:", None),
        ("oci://host/x:a/b", "not the address"),
        ("oci://host/x@sha256:12", "not the address"),
        ("oci://host", "not the address"),
        ("oci:///x", "not the address"),
        (f"oci://host/x@sha256:{64 * 'a'}#sha256={64 * 'b'}", "another digest"),
    ],
)
def test_invalid_addresses_fail_at_once(location: str, reason: str | None) -> None:
    if reason is None:
        open_source("url", location, SourceContext())
        return
    with pytest.raises(ConfigError, match=reason):
        open_source("url", location, SourceContext())


def hang(registry: OciServer) -> Callable[[Any], None]:
    return lambda handler: registry.closing.wait(60)


def drip(registry: OciServer) -> Callable[[Any], None]:
    """An answer that never ends."""

    def answer(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        while not registry.closing.is_set():
            handler.wfile.write(b"\0" * 65536)

    return answer


def cut(registry: OciServer, data: bytes) -> Callable[[Any], None]:
    def answer(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[:-1])
        handler.close_connection = True

    return answer


@pytest.mark.parametrize("what", ["manifest", "blob"])
@pytest.mark.parametrize(
    ("fault", "reason", "retryable"),
    [
        ("hang", "was not read within|sent nothing", True),
        ("drip", "more than", False),
        ("cut", "try again", True),
        ("other", "instead of", False),
        ("long", "instead of|more than", False),
        ("missing", "does not exist", False),
        ("busy", "returned 503; try again", True),
    ],
)
def test_faults_of_a_registry_are_errors_in_time(
    registry: OciServer, opened: Callable[..., SourceTree], what: str, fault: str, reason: str, retryable: bool
) -> None:
    data = tar_of(FILES)
    digest = registry.artifact("a/greet", "1", [registry.blob(data, CONTENT_TYPE)])["digest"]
    path = f"/v2/a/greet/manifests/{digest}" if what == "manifest" else f"/v2/a/greet/blobs/{digest_of(data)}"
    content = registry.manifests["a/greet", "1"][1] if what == "manifest" else data
    registry.answers[path] = {
        "hang": hang(registry),
        "drip": drip(registry),
        "cut": cut(registry, content),
        "other": lambda handler: registry.send(handler, 200, content[::-1], Content_Type=MANIFEST),
        "long": lambda handler: registry.send(handler, 200, content + b" ", Content_Type=MANIFEST),
        "missing": lambda handler: registry.send(handler, 404),
        "busy": lambda handler: registry.send(handler, 503),
    }[fault]
    began = time.monotonic()
    with pytest.raises(SourceError, match=reason) as caught:
        opened(f"a/greet@{digest}", source__timeout="3 s")
    assert caught.value.retryable is retryable
    assert time.monotonic() - began < 10
    registry.answers.clear()
    assert files_of(opened(f"a/greet@{digest}")) == FILES


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a\\..\\..\\x", "C:/x", "a/\0b", "greet/" + 50 * "d/" + "x"])
def test_hostile_names_are_refused(registry: OciServer, opened: Callable[..., SourceTree], name: str) -> None:
    registry.artifact("a/files", "1", [registry.file("SKILL.md", SKILL), registry.file(name, b"x")])
    with pytest.raises(SourceError, match="the artifact is refused"):
        opened("a/files:1")
    if "\0" not in name:  # which ends a name in a tar
        registry.artifact("a/tar", "1", [registry.blob(tar_of({**FILES, name: b"x"}), CONTENT_TYPE)])
        with pytest.raises(SourceError, match="the artifact is refused"):
            opened("a/tar:1")


def test_links_bombs_and_large_content_are_refused(registry: OciServer, opened: Callable[..., SourceTree]) -> None:
    zeros = {"greet/zeros": bytes(30 << 20)}
    for tag, layer, options, reason in (
        ("link", tar_of({**FILES, "greet/l": "/etc"}), {}, "is a link"),
        ("bomb", tar_of({**FILES, **zeros}), {}, "times the archive"),
        ("large", tar_of(FILES), {"limits__total": 10}, "larger than 10 bytes"),
        ("blob", tar_of(FILES), {"limits__download": 10}, "exceed the limit of 10 bytes"),
        ("many", tar_of(FILES), {"limits__entries": 1}, "more than 1 entries"),
        ("damaged", tar_of(FILES)[:-20], {}, "damaged|truncated"),
    ):
        registry.artifact("a/x", tag, [registry.blob(layer, CONTENT_TYPE)])
        with pytest.raises(SourceError, match=reason):
            opened(f"a/x:{tag}", **options)
        registry.image("a/i", tag, [layer, layer])
        if tag != "many":
            with pytest.raises(SourceError, match=reason):
                opened(f"a/i:{tag}", **options)


def test_hostile_manifests_are_refused(registry: OciServer, opened: Callable[..., SourceTree]) -> None:
    good = registry.blob(tar_of(FILES), CONTENT_TYPE)
    for number, (layers, reason) in enumerate(
        (
            ([{**good, "size": -1}], "size of .* is not a number"),
            ([{**good, "size": True}], "size of .* is not a number"),
            ([{**good, "digest": "sha256:../../x"}], "a digest in the manifest"),
            ([{**good, "digest": 7}], "a digest in the manifest"),
            (["x"], "is not an object"),
            ([], "has 0 layers"),
            ([{**good, "size": good["size"] + 1}], "bytes came of the"),
            ([{**good, "size": good["size"] - 1}], "more than"),
        )
    ):
        registry.artifact("a/x", str(number), layers)
        with pytest.raises(SourceError, match=reason):
            opened(f"a/x:{number}")
    deep = b"[" * 100_000
    for number, data in enumerate((deep, b"{", b"7", b" " * (5 << 20))):
        registry.manifests["a/y", str(number)] = registry.manifests["a/y", digest_of(data)] = (MANIFEST, data)
        with pytest.raises(SourceError, match=r"not a JSON object|more than 4194304 bytes"):
            opened(f"a/y:{number}")


def test_indexes_in_indexes_end(registry: OciServer, opened: Callable[..., SourceTree]) -> None:
    member = registry.artifact("a/all", "g", [registry.blob(tar_of(FILES), CONTENT_TYPE)])
    for level in range(10):
        member = registry.index("a/all", f"level-{level}", [member])
    with pytest.raises(SourceError, match="more than 4 indexes in each other"):
        opened("a/all:level-9")
    assert files_of(opened("a/all:level-2"))
    # An index that names itself has not the digest that it names.
    cycle = {"mediaType": member["mediaType"], "digest": digest_of(b"cycle"), "size": 5}
    registry.index("a/all", "cycle", [cycle])
    registry.manifests["a/all", cycle["digest"]] = registry.manifests["a/all", "cycle"]
    with pytest.raises(SourceError, match="the index has no usable member"):
        opened("a/all:cycle")


def test_ten_thousand_members_have_a_limit(registry: OciServer, opened: Callable[..., SourceTree]) -> None:
    good = registry.artifact("a/all", "g", [registry.blob(tar_of(FILES), CONTENT_TYPE)])
    absent = [{**good, "digest": digest_of(str(number).encode())} for number in range(10_000)]
    registry.index("a/all", "1", [good, *absent])
    tree = opened("a/all:1", limits__tree_directories=20)
    assert len(files_of(tree)) == len(FILES)
    assert [note.left_out for note in tree.notes if note.code == "D01"] == [9_981]


def test_members_have_the_limits_of_one_archive(registry: OciServer, opened: Callable[..., SourceTree]) -> None:
    members = [
        registry.artifact("a/all", name, [registry.blob(tar_of({f"{name}/SKILL.md": SKILL}), CONTENT_TYPE)])
        for name in ("greet", "other", "third")
    ]
    registry.index("a/all", "1", members)
    for options in ({"limits__entries": 2}, {"limits__total": 2 * len(SKILL)}):
        tree = opened("a/all:1", **options)
        assert len(files_of(tree)) == 2
        assert ["a member of the index is refused" in note.message for note in tree.notes] == [True]
