"""Skills of MCP servers: each MUST of the extension for hosts, transports, and servers with faults."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from checks.evidence import missing_tests
from flink_skills import AgentSkillManager, ConfigError, SkillConfig
from flink_skills.errors import ExecutionError, ResourceError, SkillLockError, SourceError
from flink_skills.manager import SkillLock, SkillScope
from flink_skills.sources import SourceContext, open_source
from flink_skills.tools.state import SkillState, check_commands, load_effect
from tests.kit.waiting import wait_until
from tests.tools.mcp.skills_site import OPEN, Site, write_skill

REFUNDS = "skill://acme/refunds/SKILL.md"
NOTES = "skill://acme/refunds/refs/notes.md"


def loaded(manager: AgentSkillManager, name: str = "refunds") -> SkillState:
    """Return the state of a conversation that loaded a skill."""
    state, skill = SkillState(), manager.view().get(name)
    assert skill is not None
    state.apply(load_effect(skill.name, manager.view().activate(name).digest, server=skill.server))
    return state


def local(tmp_path: Path, name: str = "refunds") -> str:
    return str(write_skill(tmp_path / "local" / name).parent)


def notes_of(manager: AgentSkillManager) -> str:
    return "\n".join(map(str, manager.diagnostics))


# ---- Listing


@pytest.mark.row("B28")
@pytest.mark.parametrize("is_modern", [True, False])
@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_skills_are_listed_and_read_over_each_transport(
    make_site: Callable[..., Site], transport: str, is_modern: bool
) -> None:
    site = make_site(transport=transport)
    site.faults["modern"] = is_modern
    manager = site.manager()
    assert [skill.name for skill in manager.load_skills()] == ["refunds"], manager.failures
    assert "Does refunds" in manager.view().menu()
    assert "# refunds" in manager.view().activate("refunds").text
    assert manager.view().read_resource("refunds", "refs/notes.md").text == "Notes of refunds\n"
    assert ("older than 2026-07-28" in notes_of(manager)) is not is_modern


@pytest.mark.row("B28")
def test_a_host_reads_nothing_before_it_is_needed_and_each_file_once(site: Site) -> None:
    manager = site.manager()
    manager.load_skills()
    manager.inspect()
    manager.view().menu()
    assert site.asked("resources/read") == []
    for _ in range(3):
        manager.view().activate("refunds")
    assert site.asked("resources/read") == [REFUNDS]
    manager.view().read_resource("refunds", "refs/notes.md")
    # Another process of the machine has the files in the store.
    site.manager().view().read_resource("refunds", "refs/notes.md")
    assert site.asked("resources/read") == [REFUNDS, NOTES]
    assert "resources/directory/read" not in {method for method, _ in site.server.requests}


def test_the_digest_is_that_of_the_same_skill_elsewhere(site: Site) -> None:
    (folder,) = AgentSkillManager(paths=[str(site.folder / "acme")]).load_skills()
    assert site.manager().load_skills()[0].digest == folder.digest
    site.faults["no_size"] = True
    manager = site.manager(site.source("other"))
    assert "without 'size'" in notes_of(manager)
    assert manager.view().activate("refunds").digest


@pytest.mark.parametrize("limit", [{"skills.limits.tree-directories": "5"}, {"skills.limits.download": "2 kb"}])
def test_a_list_has_limits(site: Site, limit: dict[str, str]) -> None:
    site.faults.update(many=1_000, page=10)
    manager = site.manager(config=limit)
    assert 5 <= len(manager.load_skills()) < 15
    assert "the others are omitted" in notes_of(manager)
    assert len(site.asked("skills/list")) <= 2


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ({"entry": {"resources": None}}, "resources"),
        ({"entry": {"resources": []}}, "resources"),
        ({"entry": {"resources": "dynamic"}}, "is dynamic"),
        ({"entry": {"uri": "skill://acme/other/SKILL.md"}}, "does not end with the name"),
        ({"entry": {"uri": "skill://acme/refunds/skill.txt"}}, "instead of the URI"),
        ({"front_matter": {"name": ".."}}, "does not end with the name"),
        ({"entry": {"uri": "skill://x/b:c/SKILL.md"}, "front_matter": {"name": "b:c"}}, "does not end with the name"),
        ({"front_matter": {"description": ""}}, "no string 'description'"),
        ({"resource": {"digest": "md5:0"}}, "digest is not valid"),
        ({"resource": {"size": -1}}, "size is not valid"),
        ({"resource": {"size": True}}, "size is not valid"),
        ({"resource": {"uri": "skill://acme/refunds/../x"}}, "invalid path"),
        ({"resource": {"uri": "skill://acme/refunds/%2e%2e/x"}}, "invalid path"),
        ({"resource": {"uri": "skill://acme/refunds/a%2Fb"}}, "invalid path"),
        ({"resource": {"uri": "skill://acme/else/SKILL.md"}}, "outside the skill"),
        ({"resource": {"uri": NOTES}}, "listed twice"),
        ({"resource": {"size": 1 << 40}}, "skills.limits"),
        ({"changed_uri": "notes.md", "resource": {"uri": "skill://acme/refunds/SKILL.md/x"}}, "below a file"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_an_invalid_entry_is_omitted_and_named(site: Site, faults: dict[str, Any], message: str) -> None:
    site.faults.update(faults)
    site.faults["more_entries"] = [
        {
            "uri": "skill://good/SKILL.md",
            "frontmatter": {"name": "good", "description": "Works."},
            "resources": [{"uri": "skill://good/SKILL.md", "digest": f"sha256:{0:064x}", "size": 1}],
        }
    ]
    if "entry" in faults or "front_matter" in faults:
        site.faults["more_entries"] = []
    manager = site.manager()
    assert [skill.name for skill in manager.load_skills()] == ["good"] * len(site.faults["more_entries"])
    assert message in notes_of(manager)
    assert not manager.failures


def test_a_skill_that_is_not_listed_is_loaded_by_its_uri(site: Site) -> None:
    site.faults["hides"] = True
    manager = site.manager(site.source(skills=[REFUNDS]))
    assert [skill.name for skill in manager.load_skills()] == ["refunds"]
    assert site.asked("skills/get") == [REFUNDS]
    missing = site.manager(site.source("other", skills=["skill://none/SKILL.md"]))
    assert "does not have it" in str(missing.failures[0])


# ---- Verification


def test_front_matter_with_other_types_of_scalars_is_equal(make_site: Callable[..., Site]) -> None:
    more = "version: 1.10\nflag: yes\nmetadata:\n  n: 7\n  text: |\n    a\n    b\ntags: [a, 1, null]\n"
    site = make_site("acme/refunds", more=more)
    assert "# refunds" in site.manager().view().activate("refunds").text


def test_a_stored_file_is_verified_at_each_read(site: Site) -> None:
    manager = site.manager()
    manager.view().read_resource("refunds", "refs/notes.md")
    (stored,) = site.store.rglob("notes.md")
    stored.chmod(0o600)
    stored.write_text("Bad of refunds!\n")  # as long
    assert manager.view().read_resource("refunds", "refs/notes.md").text == "Notes of refunds\n"
    assert site.asked("resources/read") == [NOTES, NOTES]


def test_the_store_has_label_and_uri_and_is_searched_for_no_skills(site: Site) -> None:
    site.manager(site.source("one"), site.source("two")).view().activate("one:refunds")
    site.manager(site.source("two")).view().activate("refunds")
    files = [path.relative_to(site.store).parts for path in site.store.rglob("SKILL.md")]
    assert sorted(parts[:3] for parts in files) == [
        (".mcp", label, "skill%3A%2F%2Facme%2Frefunds%2FSKILL.md") for label in ("one", "two")
    ]
    assert site.asked("resources/read") == [REFUNDS, REFUNDS]
    assert not [path for path in site.store.iterdir() if not path.name.startswith(".")]


@pytest.mark.parametrize(("files", "size"), [(512, 16), (1, (16 << 20) - 200)])
def test_the_limits_of_the_extension_are_supported(site: Site, files: int, size: int) -> None:
    for number in range(files - 3 if files > 3 else 1):
        (site.folder / f"acme/refunds/refs/{number}.bin").write_bytes(bytes([255]) + b"a" * (size - 1))
    manager = site.manager(site.source(prefetch=True, timeout=60))
    assert [skill.name for skill in manager.load_skills()] == ["refunds"], manager.failures
    assert len(site.asked("resources/read")) == (files if files > 3 else 4)


# ---- Names and origin


def test_a_skill_of_a_server_shadows_no_other_and_is_not_shadowed(
    make_site: Callable[..., Site], tmp_path: Path
) -> None:
    one, two = make_site(), make_site()
    path = local(tmp_path)
    manager = one.manager(one.source("one"), two.source("two"), paths=[path])
    assert [skill.name for skill in manager.load_skills()] == ["one:refunds", "refunds", "two:refunds"]
    assert manager.view().get("refunds").server == ""  # type: ignore[union-attr]
    assert "origin" not in manager.view().activate("refunds").text.split("\n")[0]
    text = manager.view().activate("two:refunds").text
    assert text.startswith('<skill_content name="two:refunds" origin="MCP server two">')
    assert "<origin>MCP server two</origin>" in manager.view().menu()
    assert manager.view().read_resource("two:refunds", "refs/notes.md").origin == "MCP server two"
    # The skill of a server reads from its own server.
    assert one.asked("resources/read") == []


def test_a_label_belongs_to_one_server(make_site: Callable[..., Site]) -> None:
    one, two = make_site(), make_site()
    with pytest.raises(ConfigError, match="has the label 'acme' as well"):
        one.manager(one.source(), two.source()).load_skills()


def test_nested_skills_are_files_of_the_outer_skill(make_site: Callable[..., Site]) -> None:
    site = make_site("acme/refunds", "acme/refunds/inner")
    manager = site.manager(site.source(scripts=["refunds"]))
    assert [skill.name for skill in manager.load_skills()] == ["inner", "refunds"]
    text = manager.view().read_resource("refunds", "inner/SKILL.md").text
    assert text.startswith("---\nname: inner")
    # An approval of the outer skill is none of the inner one.
    check_commands(manager.view(), loaded(manager, "refunds"))
    with pytest.raises(ExecutionError, match="'inner'"):
        check_commands(manager.view(), loaded(manager, "inner"))


# ---- Authority


def test_commands_are_refused_while_a_skill_without_approval_is_loaded(site: Site, tmp_path: Path) -> None:
    manager = site.manager(paths=[local(tmp_path, "mine")])
    view = manager.view()
    check_commands(view, loaded(manager, "mine"), "mine")
    # To read its file is not to load it.
    view.read_resource("refunds", "SKILL.md")
    check_commands(view, loaded(manager, "mine"))
    for state, names in ((loaded(manager), ("mine",)), (SkillState(), ("refunds",))):
        with pytest.raises(ExecutionError, match="server acme is in use: the job has not approved"):
            check_commands(view, state, *names)
    # A skill that the server no longer has is still in the conversation.
    with pytest.raises(ExecutionError, match="no longer has the skill"):
        check_commands(view.only(["mine"]), loaded(manager))
    state = SkillState.from_json(loaded(manager).to_json())
    with pytest.raises(ExecutionError):
        check_commands(view, state)


@pytest.mark.row("B28")
def test_an_approval_is_bound_to_the_digests_and_ends_with_a_change(site: Site) -> None:
    manager = site.manager(site.source(scripts=["refunds"]))
    state = loaded(manager)
    check_commands(manager.view(), state)
    scopes = [SkillScope.from_json(scope.to_json()) for scope in manager.pinned_scopes()]
    (site.folder / "acme/refunds/scripts/run.sh").write_text("#!/bin/sh\necho evil\n")
    changed = manager.refresh()
    assert changed is not None
    assert changed.changed == ("refunds",)
    # Also after a restart with the plan of the submit.
    config = SkillConfig({**OPEN, "skills.store.dir": str(site.store)})
    again = AgentSkillManager.from_scopes(scopes, config=config)
    check_commands(again.view(), loaded(again))
    again.refresh()
    for one in (manager, again):
        with pytest.raises(ExecutionError, match="changed since the job approved it"):
            check_commands(one.view(), loaded(one))


def test_a_turn_keeps_the_entry_that_it_loaded(site: Site) -> None:
    manager = site.manager()
    view = manager.view()
    before = view.activate("refunds").digest
    (site.folder / "acme/refunds/refs/notes.md").write_text("Other\n")
    manager.refresh()
    assert view.activate("refunds").digest == before
    with pytest.raises(ResourceError, match="does not match its entry"):
        view.read_resource("refunds", "refs/notes.md")
    assert manager.view().read_resource("refunds", "refs/notes.md").text == "Other\n"


def test_dynamic_skills_need_the_job_and_are_never_approved(site: Site) -> None:
    site.faults["entry"] = {"resources": "dynamic"}
    assert site.manager().load_skills() == []
    manager = site.manager(site.source(dynamic=True, scripts=["refunds"]))
    assert "# refunds" in manager.view().activate("refunds").text
    site.faults["front_matter"] = {"license": "MIT"}
    with pytest.raises(ResourceError, match="'license' is only in the entry"):
        site.manager(site.source(dynamic=True)).view().activate("refunds")
    assert manager.view().read_resource("refunds", "refs/notes.md").text == "Notes of refunds\n"
    with pytest.raises(ExecutionError):
        check_commands(manager.view(), loaded(manager))
    assert not list(site.store.rglob("SKILL.md"))


# ---- Pins, prefetch, lock


@pytest.mark.row("B28")
def test_a_plan_pins_the_entries_and_a_dead_server_costs_the_call_only(site: Site, tmp_path: Path) -> None:
    manager = site.manager(paths=[local(tmp_path, "mine")])
    manager.load_skills()
    scopes = [SkillScope.from_json(json.loads(json.dumps(scope.to_json()))) for scope in manager.pinned_scopes()]
    site.close()
    config = SkillConfig({**OPEN, "skills.store.dir": str(site.store)})
    again = AgentSkillManager.from_scopes(scopes, config=config)
    assert [skill.name for skill in again.load_skills()] == ["mine", "refunds"]
    with pytest.raises(ResourceError, match="MCP server 'acme'"):
        again.view().activate("refunds")
    assert again.view().activate("mine").text


def test_after_prefetch_a_dead_server_does_not_matter(site: Site) -> None:
    manager = site.manager(site.source(prefetch=True))
    manager.load_skills()
    assert len(site.asked("resources/read")) == 3
    site.close()
    assert manager.view().read_resource("refunds", "scripts/run.sh").text.startswith("#!/bin/sh")
    config = SkillConfig({**OPEN, "skills.store.dir": str(site.store)})
    again = AgentSkillManager.from_scopes(manager.pinned_scopes(), config=config)
    assert "# refunds" in again.view().activate("refunds").text


def test_a_lock_has_the_entries_and_rejects_a_change(site: Site) -> None:
    lock = SkillLock.of(site.manager().load_skills())
    entry = lock.skills["refunds"]
    assert entry["server"] == "acme"
    approved = site.manager(site.source(scripts=[entry["approval"]]))
    check_commands(approved.view(), loaded(approved))
    assert entry["entry"]["uri"] == REFUNDS
    assert entry["entry"]["frontmatter"]["name"] == "refunds"
    site.manager(lock=SkillLock.from_json(lock.to_json())).load_skills()
    (site.folder / "acme/refunds/refs/notes.md").write_text("Other\n")
    with pytest.raises(SkillLockError, match=str(entry["digest"])):
        site.manager(lock=lock).load_skills()


# ---- Rules of the extension


ROOT = Path(__file__).parents[3]
RULES = yaml.safe_load(Path(__file__).with_name("skills_extension.yaml").read_text())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["must"][:60])
def test_each_must_of_the_extension_has_its_tests(rule: dict[str, Any]) -> None:
    assert rule["tests"]
    assert not missing_tests(ROOT, " ".join(f"`{test}`" for test in rule["tests"]))


def test_a_directory_is_answered_from_the_entry(site: Site) -> None:
    site.faults["extension"] = {"directoryRead": True}
    manager = site.manager()
    view = manager.view()
    state = view.activate("refunds")
    (site.folder / "acme/refunds/refs/later.md").write_text("Later.\n")
    assert "refs/notes.md" in state.text
    assert "later" not in state.text
    for path in ("refs", "refs/later.md"):
        with pytest.raises(ResourceError) as caught:
            view.read_resource("refunds", path)
        assert "later" not in str(caught.value).partition("did you mean")[2]
    assert manager.refresh() is not None
    assert manager.view().read_resource("refunds", "refs/later.md").text == "Later.\n"
    assert "resources/directory/read" not in {method for method, _ in site.server.requests}


def test_a_uri_with_a_host_of_another_scheme_is_only_a_name(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    lookup, hosts = socket.getaddrinfo, set[str]()

    def found(host: Any, *more: Any, **named: Any) -> Any:
        hosts.add(str(host))
        return lookup(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    site.faults.update(scheme="https:", server_name="../other")
    manager = site.manager()
    (skill,) = manager.load_skills()
    assert (skill.server, skill.full_name) == ("acme", "acme:refunds")
    assert "# refunds" in manager.view().activate("refunds").text
    assert site.asked("resources/read") == ["https://acme/refunds/SKILL.md"]
    assert hosts == {"127.0.0.1"}


def test_a_resource_is_no_skill_because_of_its_scheme(site: Site) -> None:
    site.faults.update(hides=True, older=[{"uri": REFUNDS, "name": "refunds"}])
    assert site.manager().load_skills() == []


def test_fields_that_grant_something_have_no_effect(make_site: Callable[..., Site]) -> None:
    granted = "allowed-tools: Bash(*) execute_shell_command\nhooks:\n  PreToolUse: [{command: sh scripts/run.sh}]\n"
    site, plain = make_site(more=granted), make_site("acme/other")
    manager = site.manager(site.source(), plain.source("plain"))
    view = manager.view()
    texts = [re.sub("/[0-9a-f]{32}/", "/", view.activate(name).text) for name in ("refunds", "other")]
    assert texts[0].replace("refunds", "other") == texts[1].replace("plain", "acme")
    with pytest.raises(ExecutionError, match="has not approved"):
        check_commands(view, loaded(manager))


def test_an_approval_is_for_the_skill_of_one_server(make_site: Callable[..., Site]) -> None:
    one, two = make_site(), make_site()
    manager = one.manager(one.source("one", scripts=["refunds"]), two.source("two"))
    check_commands(manager.view(), loaded(manager, "one:refunds"))
    with pytest.raises(ExecutionError, match="server two is in use"):
        check_commands(manager.view(), loaded(manager, "two:refunds"))


def test_stored_content_needs_an_approval_without_its_server(site: Site) -> None:
    manager = site.manager(site.source(prefetch=True))
    scopes = manager.pinned_scopes()
    site.close()
    again = AgentSkillManager.from_scopes(scopes, config=SkillConfig({**OPEN, "skills.store.dir": str(site.store)}))
    with pytest.raises(ExecutionError, match="server acme is in use"):
        check_commands(again.view(), loaded(again))


# ---- Reports of changes, connections


@pytest.mark.parametrize("is_modern", [True, False])
def test_a_report_of_the_server_is_passed_on(make_site: Callable[..., Site], is_modern: bool) -> None:
    site = make_site(transport="stdio")
    site.faults.update(modern=is_modern, reports=True)
    manager = site.manager()
    manager.load_skills()
    opened, reports = ("subscriptions/listen" if is_modern else "initialize"), list[float]()
    before = len(site.asked(opened))
    end = manager.watch(lambda: reports.append(time.monotonic()))
    wait_until(lambda: len(site.asked(opened)) > before, "the connection")
    site.faults["announced"] = 1
    wait_until(lambda: reports, "the report")
    end()


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["93.184.216.34", "10.0.0.1"]])
def test_a_name_that_leads_to_a_private_address_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    lookup = socket.getaddrinfo

    def found(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        if host != "acme.example.org":
            return lookup(host, port, *more, **named)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    source = site.source()
    source["url"] = source["url"].replace("127.0.0.1", "acme.example.org")
    manager = site.manager(source, config={"skills.source.allow-private": "false"})
    (failure,) = manager.failures
    assert "loopback or private address; to allow it, set skills.source.allow-private" in str(failure)
    assert not failure.retryable
    assert site.server.requests == []
    if addresses == ["127.0.0.1"]:
        assert [skill.name for skill in site.manager(source).load_skills()] == ["refunds"]


# ---- Declarations


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("mcp+http://127.0.0.1:1/mcp", "plain http is not allowed"),
        ("mcp+https://127.0.0.1:1/mcp", "loopback or private"),
        ("mcp+https://", "host"),
        ("mcp+stdio:", "the command is missing"),
        ("mcp+stdio:'a", "the command cannot be read"),
        ("mcp+https://h.example/mcp#labl=x", "label"),
        ("mcp+https://h.example/mcp#label=a/b", "is not valid"),
        ("mcp+https://h.example/mcp#label=x&prefetch=maybe", "prefetch is not valid"),
        ("mcp+https://h.example/mcp#timeout=0", "timeout"),
        ("mcp+https://h.example/mcp#scripts=a@sha256:0", "scripts"),
    ],
)
def test_a_declaration_that_cannot_work_is_an_error(location: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_source("url", location, SourceContext())


def test_no_secret_is_shown(site: Site) -> None:
    source = site.source("acme", server={"headers": {"Authorization": "Bearer s3cret-0123456789"}})
    source["url"] = source["url"].replace("127.0.0.1", "me:s3cret-0123456789@127.0.0.1")
    site.faults["no_extension"] = True
    context = SourceContext(SkillConfig(OPEN), store_dir=str(site.store))
    opened = open_source("url", source, context)
    with pytest.raises(SourceError) as caught:
        opened.resolve()
    shown = [opened.origin, repr(opened.spec), str(opened.spec.public), str(caught.value), repr(caught.value)]
    assert not [text for text in shown if "s3cret" in text]
    assert caught.value.source in str(caught.value)
    program = open_source("url", "mcp+stdio:server --token s3cret-0123456789", context)
    assert "s3cret" not in program.origin
