"""Skills in OCI registries: forms of publishers, images, indexes, pins, credentials, and hostile registries."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from flink_skills.agents.plan.plan import AgentPlan
from flink_skills.cli.app import run_app
from flink_skills.errors import ConfigError, SourceError
from flink_skills.flink.submit_checks import pin_sources
from flink_skills.manager import AgentSkillManager, SkillScope
from flink_skills.options import SkillConfig
from flink_skills.skill import load_folder
from flink_skills.sources import SourceContext, SourceSpec, SourceTree, open_source
from flink_skills.sources.oci import push_skill
from tests.sources.oci_server import (
    CONTENT_TYPE,
    IMAGE_CONFIG,
    IMAGE_LAYER,
    MANIFEST,
    TITLE,
    OciServer,
    address,
    context,
    digest_of,
    files_of,
    tar_of,
)
from tests.sources.web import ALLOWED

SKILL = b"---\nname: greet\ndescription: Says hello.\n---\nHi\n"
OTHER = b"---\nname: other\ndescription: Says hello too.\n---\nHi\n"
FILES = {"greet/SKILL.md": SKILL, "greet/scripts/a.sh": b"echo\n"}


pytestmark = pytest.mark.usefixtures("no_login")


@pytest.mark.row("B30")
@pytest.mark.parametrize(
    ("kind", "layer"),
    [
        ("application/vnd.agentskills.skill.v1", CONTENT_TYPE),
        ("application/vnd.agentskills.skill.v1", f"{IMAGE_LAYER}+gzip"),
        ("application/vnd.agent.skill.v1+json", "application/vnd.agent.skill.content.v1.tar+gzip"),
        ("application/vnd.cncf.skill.manifest.v1+json", "application/vnd.cncf.skill.bundle.v1.tar+gzip"),
        ("application/vnd.unknown.config.v1+json", CONTENT_TYPE),
    ],
)
def test_artifact_with_one_archive_is_read(
    registry: OciServer, opened: Callable[..., SourceTree], kind: str, layer: str
) -> None:
    registry.artifact("a/greet", "1", [registry.blob(tar_of(FILES), layer, annotations={TITLE: "x.tar.gz"})], kind)
    assert files_of(opened("a/greet:1")) == FILES


def test_artifact_with_a_type_in_its_config_alone_is_read(
    registry: OciServer, opened: Callable[..., SourceTree]
) -> None:
    config = registry.blob(b"{}", "application/vnd.agentskills.skill.config.v1+json")
    layers = [registry.blob(tar_of(FILES), CONTENT_TYPE)]
    registry.put("a/greet", "1", {"mediaType": MANIFEST, "config": config, "layers": layers})
    assert files_of(opened("a/greet:1")) == FILES


@pytest.mark.row("B30")
@pytest.mark.parametrize("media_type", ["text/markdown", IMAGE_LAYER, "application/gzip"])
def test_artifact_with_a_layer_for_each_file_is_read(
    registry: OciServer, opened: Callable[..., SourceTree], media_type: str
) -> None:
    layers = [registry.file("SKILL.md", SKILL, media_type), registry.file("scripts/a.sh", b"echo\n", media_type)]
    registry.artifact("a/greet", "1", layers)
    assert files_of(opened("a/greet:1")) == FILES


def test_artifact_with_files_and_an_unpacked_folder_is_read(
    registry: OciServer, opened: Callable[..., SourceTree]
) -> None:
    notes = {TITLE: "scripts", "io.deis.oras.content.unpack": "true"}
    folder = registry.blob(tar_of({"scripts/a.sh": b"echo\n"}), f"{IMAGE_LAYER}+gzip", annotations=notes)
    registry.artifact("a/greet", "1", [registry.file("SKILL.md", SKILL), folder])
    assert files_of(opened("a/greet:1")) == FILES


@pytest.mark.row("B30")
def test_image_has_its_layers_in_order(registry: OciServer, opened: Callable[..., SourceTree]) -> None:
    below = tar_of(
        {
            "skills/": None, "skills/greet/SKILL.md": OTHER, "skills/gone/SKILL.md": OTHER, "skills/old.md": b"x",
            "kept/a/x": b"1", "kept/b/y": b"2", "file": b"f", "bin/sh": "busybox",
        }
    )  # fmt: skip
    middle = tar_of({"skills/.wh.gone": b"", "kept/a/.wh..wh..opq": b"", "kept/a/new": b"3", "file/below": b"4"})
    above = tar_of({"skills/greet/SKILL.md": SKILL, "skills/.wh.old.md": b"", "skills/greet/scripts/a.sh": b"echo\n"})
    registry.image("a/image", "1", [below, middle, above])
    tree = opened("a/image:1")
    expected = {f"skills/{name}": data for name, data in FILES.items()}
    assert files_of(tree) == {**expected, "kept/a/new": b"3", "kept/b/y": b"2", "file/below": b"4"}
    assert [(note.code, note.severity) for note in tree.notes] == [("D06", "info")]
    assert "1 links" in tree.notes[0].message


def test_image_with_a_link_in_a_skill_is_refused(registry: OciServer, opened: Callable[..., SourceTree]) -> None:
    registry.image("a/image", "1", [tar_of({**FILES, "greet/link": "/etc/passwd"})])
    with pytest.raises(SourceError, match="'greet/link' is a link"):
        opened("a/image:1")


def test_image_with_a_zstd_layer_is_read_or_names_the_package(
    registry: OciServer, opened: Callable[..., SourceTree]
) -> None:
    zstandard = pytest.importorskip("zstandard")
    data = zstandard.compress(tar_of(FILES, packed=False))
    config = registry.blob(b"{}", IMAGE_CONFIG)
    layers = [registry.blob(data, f"{IMAGE_LAYER}+zstd")]
    registry.put("a/image", "1", {"mediaType": MANIFEST, "config": config, "layers": layers})
    assert files_of(opened("a/image:1")) == FILES


def test_index_of_platforms_has_the_one_of_this_host(
    registry: OciServer, opened: Callable[..., SourceTree], monkeypatch: pytest.MonkeyPatch
) -> None:
    def member(data: bytes, architecture: str, system: str = "linux", **more: str) -> dict[str, Any]:
        found = registry.image("a/image", "x", [tar_of({"greet/SKILL.md": data})])
        return {**found, "platform": {"os": system, "architecture": architecture, **more}}

    members = [
        member(OTHER, "unknown", "unknown"),
        member(SKILL, "arm64", variant="v8"),
        member(OTHER + b"\n", "amd64"),
    ]
    registry.index("a/image", "1", members)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert files_of(opened("a/image:1"))["greet/SKILL.md"] == SKILL
    registry.index("a/image", "2", members[2:])
    with pytest.raises(SourceError, match="the image is for linux/amd64 only"):
        opened("a/image:2")


def collection(registry: OciServer, **more: Any) -> None:
    members = []
    for name in ("greet", "other"):
        data = SKILL.replace(b"greet", name.encode())
        layer = registry.blob(tar_of({f"{name}/SKILL.md": data}), CONTENT_TYPE)
        members.append(registry.artifact("a/all", name, [layer]))
    registry.index("a/all", "1", members, **more)


@pytest.mark.row("B30")
def test_collection_has_all_its_members(registry: OciServer, tmp_path: Path) -> None:
    collection(registry, artifactType="application/vnd.agentskills.collection.v1")
    manager = AgentSkillManager(
        urls=[address(registry, "a/all:1")], config=SkillConfig(ALLOWED), store_dir=str(tmp_path / "store")
    )
    assert [skill.name for skill in manager.load_skills()] == ["greet", "other"]
    assert not manager.diagnostics


def test_member_in_another_repository_is_found_by_its_annotation(
    registry: OciServer, opened: Callable[..., SourceTree]
) -> None:
    member = registry.artifact("b/greet", "1", [registry.blob(tar_of(FILES), CONTENT_TYPE)])
    notes = {"io.agentskills.skill.ref": f"{registry.place}/b/greet:1"}
    registry.index("a/all", "1", [{**member, "annotations": notes}])
    assert {name.partition("/")[2]: data for name, data in files_of(opened("a/all:1")).items()} == FILES
    elsewhere = {"io.agentskills.skill.ref": "registry.invalid/b/greet:1"}
    registry.index("a/all", "2", [{**member, "annotations": elsewhere}])
    with pytest.raises(SourceError, match=r"registry is not allowed: .* another host"):
        opened("a/all:2")


def test_member_that_cannot_be_used_costs_itself_only(registry: OciServer, opened: Callable[..., SourceTree]) -> None:
    good = registry.artifact("a/all", "g", [registry.blob(tar_of(FILES), CONTENT_TYPE)])
    unknown = registry.artifact("a/all", "u", [registry.blob(b"x", "application/wasm")], "application/wasm.v1")
    hostile = registry.artifact("a/all", "h", [registry.blob(tar_of({"../x": b""}), CONTENT_TYPE)])
    missing = {**good, "digest": digest_of(b"none")}
    registry.index("a/all", "1", [unknown, hostile, missing, good])
    tree = opened("a/all:1")
    assert sorted(name.partition("/")[2] for name in files_of(tree)) == sorted(FILES)
    texts = " ".join(note.message for note in tree.notes)
    assert "'application/wasm.v1' with layers of application/wasm is unknown" in texts
    assert "leaves the archive" in texts
    assert "does not exist" in texts
    # The registry is queried again for what it lacks.
    registry.requests.clear()
    opened("a/all:1")
    assert registry.paths()


def test_unknown_forms_are_refused_with_their_types(registry: OciServer, opened: Callable[..., SourceTree]) -> None:
    registry.artifact("a/chart", "1", [registry.blob(b"x", "application/vnd.helm.chart")], "application/vnd.cncf.helm")
    with pytest.raises(SourceError, match=r"'application/vnd.cncf.helm' with layers of application/vnd.helm.chart"):
        opened("a/chart:1")
    registry.put("a/old", "1", {"mediaType": "application/vnd.docker.distribution.manifest.v1+json", "layers": []})
    with pytest.raises(SourceError, match=r"manifest\.v1\+json' has not the fields"):
        opened("a/old:1")
    registry.put("a/both", "1", {"mediaType": MANIFEST, "layers": [], "manifests": []})
    with pytest.raises(SourceError, match="has not the fields"):
        opened("a/both:1")


def test_a_moved_tag_is_seen_on_open_and_a_pin_stays(registry: OciServer, tmp_path: Path) -> None:
    def publish(text: bytes) -> str:
        layer = registry.blob(tar_of({"greet/SKILL.md": SKILL + text}), CONTENT_TYPE)
        return str(registry.artifact("a/greet", "1", [layer])["digest"])

    first = publish(b"1")
    declared = address(registry, "a/greet:1")
    pinned = open_source("url", declared, context(tmp_path)).pinned()
    assert pinned == SourceSpec("url", f"{declared}?pin={first}")
    assert open_source("url", pinned, context(tmp_path)).pinned() == pinned
    assert pinned.shown == pinned.location
    second = publish(b"2")

    def text(spec: Any, *, refresh: bool = False) -> bytes:
        (tree,) = open_source("url", spec, context(tmp_path, refresh=refresh)).resolve()
        return files_of(tree)["greet/SKILL.md"][-1:]

    assert text(pinned) == b"1"
    assert text(declared) == b"2"
    assert text(pinned, refresh=True) == b"2"
    registry.requests.clear()
    assert text(pinned, refresh=True) == b"2"
    assert {method for method, _, _ in registry.requests} == {"HEAD"}, "a refresh asks for the digest alone"
    assert text(f"oci://{registry.place}/a/greet@{second}") == b"2"
    registry.requests.clear()
    assert text(f"oci://{registry.place}/a/greet@{second}") == b"2"
    assert registry.requests == [], "a digest in the store is not requested"


@pytest.mark.row("B30")
def test_a_tag_is_pinned_in_the_plan(registry: OciServer) -> None:
    digest = registry.artifact("a/greet", "1", [registry.blob(tar_of(FILES), CONTENT_TYPE)])["digest"]
    known, unknown = address(registry, "a/greet:1"), address(registry, "a/greet:2")

    def pinned(url: str, **options: Any) -> list[str]:
        scopes = (SkillScope("job", urls=[url]),)
        plan = AgentPlan("a", {}, "", scopes, (), {}, (), None, {**ALLOWED, **options})
        return [str(spec) for scope in pin_sources(plan, local=False).scopes for spec in scope.urls]

    assert pinned(known) == [f"{known}?pin={digest}"]
    assert pinned(unknown) == [unknown], "the operator reads what the client cannot"
    assert pinned(known, **{"skills.validate-on-submit": "never"}) == [known]
    with pytest.raises(SourceError, match="does not exist"):
        pinned(unknown, **{"skills.validate-on-submit": "always"})


def test_a_digest_decides_and_another_tag_is_a_note(registry: OciServer, opened: Callable[..., SourceTree]) -> None:
    old = registry.artifact("a/greet", "1", [registry.blob(tar_of(FILES), CONTENT_TYPE)])["digest"]
    new = registry.artifact("a/greet", "1", [registry.blob(tar_of({"o/SKILL.md": OTHER}), CONTENT_TYPE)])["digest"]
    for _ in range(2):  # from the registry, and from the store
        tree = opened(f"a/greet:1@{old}")
        assert files_of(tree) == FILES
        assert [note.message for note in tree.notes] == [f"the tag '1' is now {new}; the digest {old} is used"]
    assert opened(f"a/greet:1@{new}").notes == ()


def test_a_registry_without_digests_in_headers_is_read(registry: OciServer, opened: Callable[..., SourceTree]) -> None:
    registry.sends_digest = False
    registry.artifact("a/greet", "1", [registry.blob(tar_of(FILES), CONTENT_TYPE)])
    assert files_of(opened("a/greet:1")) == FILES


@pytest.mark.parametrize("scheme", ["basic", "bearer"])
@pytest.mark.parametrize("where", ["address", "options", "file", "names"])
def test_credentials_reach_their_registry_only(
    registry: OciServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, where: str
) -> None:
    registry.artifact("a/greet", "1", [registry.blob(tar_of(FILES), CONTENT_TYPE)])
    registry.login, registry.scheme = "me:t0p-secret", scheme
    monkeypatch.setenv("TOKEN", "t0p-secret")
    options, location = {}, address(registry, "a/greet:1")
    if where == "address":
        location = location.replace("//", "//me:${env:TOKEN}@")
    elif where == "options":
        login = {"key": "me", "secret": "${env:TOKEN}"}
        options["source__options"] = json.dumps({"oci": {registry.place: login}})
    else:
        entry: Any = {"auth": base64.b64encode(b"me:t0p-secret").decode()}
        entry = entry if where == "file" else {"username": "me", "password": "t0p-secret"}
        (tmp_path / "config.json").write_text(json.dumps({"auths": {f"https://{registry.place}/v2/": entry}}))
        options["source__options"] = json.dumps({"oci": {"login-file": str(tmp_path / "config.json")}})
    source = open_source("url", location, context(tmp_path, **options))
    (tree,) = source.resolve()
    assert files_of(tree) == FILES
    assert "t0p-secret" not in repr((source.spec, source.origin, tree, source.pinned().shown))
    kept = [file for file in (tmp_path / "store").rglob("*") if file.is_file() and b"t0p-secret" in file.read_bytes()]
    assert not kept
    scopes = [unquote(path) for path in registry.paths() if path.startswith("/token")]
    assert all("scope=repository:a/greet:pull" in path for path in scopes), "the registry names another scope"
    assert len(scopes) == (2 if scheme == "bearer" else 0), "a token for each opening"


def test_identity_token_is_exchanged(registry: OciServer, opened: Callable[..., SourceTree], tmp_path: Path) -> None:
    registry.artifact("a/greet", "1", [registry.blob(tar_of(FILES), CONTENT_TYPE)])
    registry.login, registry.scheme = "t0p-secret", "bearer"
    (tmp_path / "docker").mkdir()
    logins = {"auths": {registry.place: {"identitytoken": "t0p-secret"}}}
    (tmp_path / "docker" / "config.json").write_text(json.dumps(logins))
    assert files_of(opened("a/greet:1")) == FILES


@pytest.mark.parametrize(
    ("logins", "reason"),
    [
        ({}, "access without credentials is refused .401.; set 'key' and 'secret'"),
        ({"credsStore": "desktop"}, "names the credential helper 'desktop', which is not started; write the login"),
        ({"auths": {"127.0.0.1": {"auth": "eDp5"}}}, "access without credentials is refused"),
        ([], "is not a readable object"),
    ],
)
def test_refused_access_names_the_fix(
    registry: OciServer, opened: Callable[..., SourceTree], tmp_path: Path, logins: Any, reason: str
) -> None:
    registry.login = "me:pw"
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "config.json").write_text(json.dumps(logins))
    with pytest.raises(SourceError, match=reason) as caught:
        opened("a/greet:1")
    assert not caught.value.retryable


def test_no_credential_goes_to_a_token_server_of_another_host(
    registry: OciServer, opened: Callable[..., SourceTree]
) -> None:
    other = OciServer("127.0.0.2")
    try:
        registry.login, registry.scheme, registry.realm = "me:pw", "bearer", f"{other.url}/token"
        other.login = "me:pw"
        registry.artifact("a/greet", "1", [registry.blob(tar_of(FILES), CONTENT_TYPE)])
        options = {"source__options": json.dumps({"oci": {registry.place: {"key": "me", "secret": "pw"}}})}
        with pytest.raises(SourceError, match=r"token server is not allowed: .* another host"):
            opened("a/greet:1", **options)
        assert other.requests == []
        assert files_of(opened("a/greet:1", source__allowed_hosts=["127.0.0.1", "127.0.0.2"], **options)) == FILES
    finally:
        other.close()


def test_blobs_of_a_storage_host_are_read_without_credentials(
    registry: OciServer, opened: Callable[..., SourceTree]
) -> None:
    for host in ("127.0.0.1", "127.0.0.2"):
        storage = OciServer(host)
        try:
            data = tar_of({**FILES, "greet/host": host.encode()})
            layer = registry.blob(data, CONTENT_TYPE)
            registry.artifact("a/greet", host, [layer])
            storage.blobs = dict(registry.blobs)
            target = f"{storage.url}/v2/store/blobs/{layer['digest']}"
            path = f"/v2/a/greet/blobs/{layer['digest']}"
            registry.answers[path] = lambda handler, to=target: registry.send(handler, 307, Location=to)
            registry.login = "me:pw"
            options = {"source__options": json.dumps({"oci": {registry.place: {"key": "me", "secret": "pw"}}})}
            if host == "127.0.0.2":
                with pytest.raises(SourceError, match="redirects to an address that is not allowed"):
                    opened(f"a/greet:{host}", **options)
                assert storage.requests == []
            assert "greet/host" in files_of(opened(f"a/greet:{host}", source__allow_redirects=True, **options))
            assert [authorization for _, _, authorization in storage.requests] == [""]
        finally:
            storage.close()


def test_addresses_obey_the_rules_of_web_servers(registry: OciServer, tmp_path: Path) -> None:
    for options, reason in (
        ({"skills.source.allow-http": True}, "skill source oci:.*private address"),
        ({**ALLOWED, "skills.source.allowed-hosts": ["registry.example.org"]}, "skill source oci:.*is not one of"),
    ):
        with pytest.raises(ConfigError, match=reason):
            open_source("url", address(registry, "a/greet:1"), SourceContext(SkillConfig(options)))
    private = SkillConfig({"skills.source.allow-private": True, "skills.source.timeout": "2 s"})
    with pytest.raises(SourceError):  # which does not speak TLS
        open_source("url", address(registry, "a/x:1"), SourceContext(private, store_dir=str(tmp_path))).resolve()
    assert registry.requests == []


def skill_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "greet"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(SKILL)
    (folder / "scripts" / "a.sh").write_bytes(b"echo\n")
    return folder


@pytest.mark.row("B30")
def test_pushed_skill_has_the_digest_of_its_folder_and_zip(registry: OciServer, tmp_path: Path) -> None:
    folder = skill_folder(tmp_path)
    spec = SourceSpec("path", str(folder))
    first = push_skill(spec, address(registry, "a/greet:1"), context(tmp_path))[1]
    (folder / "SKILL.md").touch()
    again = push_skill(spec, address(registry, "a/greet:2"), context(tmp_path))[1]
    assert first.partition("@")[2] == again.partition("@")[2] != ""
    archive = tmp_path / "greet.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name, data in FILES.items():
            file.writestr(name, data)
    digests = {load_folder(str(folder)).skill.digest}  # type: ignore[union-attr]
    for url in (first, archive.as_uri()):
        (skill,) = AgentSkillManager(
            urls=[url], config=SkillConfig(ALLOWED), store_dir=str(tmp_path / "store")
        ).load_skills()
        digests.add(skill.digest)
    assert len(digests) == 1


def test_invalid_skills_are_not_pushed(registry: OciServer, tmp_path: Path) -> None:
    folder = skill_folder(tmp_path)
    (folder / "key.pem").write_text(
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\n"
    )
    packing, pushed = push_skill(SourceSpec("path", str(folder)), address(registry, "a/greet:1"), context(tmp_path))
    assert not pushed
    assert packing.diagnostics
    (folder / "key.pem").unlink()
    renamed = SourceSpec("path", str(folder.rename(tmp_path / "hello")))
    with pytest.raises(ConfigError, match="one skill below its name, not hello"):
        push_skill(renamed, address(registry, "a/greet:1"), context(tmp_path))
    assert registry.requests == []


def test_commands_read_and_write_registries(
    registry: OciServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [f"--set={name}={str(value).lower()}" for name, value in ALLOWED.items()]
    options.append(f"--set=skills.store.dir={tmp_path / 'store'}")

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["flink-skills", *arguments, *options])
        code = run_app()
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return printed.out

    folder = str(skill_folder(tmp_path))
    pushed = run("push", folder, address(registry, "a/greet:1"))
    digest = registry.manifests["a/greet", "1"][1]
    assert f"{address(registry, 'a/greet:1')}@{digest_of(digest)}" in pushed
    assert "greet" in run("list", address(registry, "a/greet:1"))
    assert run("validate", address(registry, "a/greet:1")) is not None
    lock = str(tmp_path / "skills.lock")
    run("lock", address(registry, "a/greet:1"), "-o", lock)
    run("lock", folder, "-o", lock, "--check")


@pytest.fixture(scope="module")
def real_registry() -> Iterator[str]:
    """The registry of go-containerregistry, which is not of this project."""
    program = shutil.which("registry")
    if program is None:
        pytest.skip("needs 'registry': go install github.com/google/go-containerregistry/cmd/registry@v0.22.1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([program, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "the registry does not start"
                time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_a_real_registry_takes_and_serves_a_skill(real_registry: str, tmp_path: Path) -> None:
    folder = SourceSpec("path", str(skill_folder(tmp_path)))
    _, pushed = push_skill(folder, f"oci://{real_registry}/team/greet:1.0", context(tmp_path))
    for url in (pushed, f"oci://{real_registry}/team/greet:1.0"):
        (tree,) = open_source("url", url, context(tmp_path)).resolve()
        assert files_of(tree) == FILES
        assert tree.notes == ()
    with pytest.raises(SourceError, match="does not exist"):
        open_source("url", f"oci://{real_registry}/team/greet:2.0", context(tmp_path)).resolve()
