"""Skills of MCP servers: each MUST of the extension for hosts, transports, and servers with faults."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flink_skills import AgentSkillManager, ConfigError, SkillConfig
from flink_skills.errors import ExecutionError, ResourceError, SkillLockError, SourceError, UnknownNameError
from flink_skills.manager import SkillLock, SkillScope
from flink_skills.sources import SourceContext, open_source
from flink_skills.tools.state import SkillState, check_commands, load_effect
from tests.tools.mcp.skills_site import OPEN, Site, write_skill

PROGRAM = Path(__file__).with_name("skills_server.py")
REFUNDS = "skill://acme/refunds/SKILL.md"
NOTES = "skill://acme/refunds/refs/notes.md"


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def make(*skills: str, more: str = "") -> Site:
        folder = tmp_path / f"site-{len(sites)}"
        folder.mkdir()
        for skill in skills or ("acme/refunds",):
            write_skill(folder / skill, more)
        sites.append(Site(folder, tmp_path / "store"))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


@pytest.fixture
def site(make_site: Callable[..., Site]) -> Site:
    return make_site()


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
def test_skills_are_listed_and_read_over_each_transport(site: Site, transport: str, is_modern: bool) -> None:
    site.faults["modern"] = is_modern
    log = site.store.with_suffix(".log")
    program = shlex.join([sys.executable, str(PROGRAM), str(site.folder), json.dumps(site.faults), str(log)])
    source = site.source() if transport == "http" else {"url": f"mcp+stdio:{program}", "label": "acme"}
    manager = site.manager(source)
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


@pytest.mark.row("B28")
def test_ten_thousand_skills_on_pages_are_listed(site: Site) -> None:
    site.faults["many"] = 10_000
    manager = site.manager(config={"skills.source.timeout": "60 s"})
    assert len(manager.load_skills()) == 10_001
    assert len(site.asked("skills/list")) == 11
    assert site.asked("resources/read") == []


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
        ({"cursors": "cycle"}, "returned before"),
        ({"cursors": "endless", "slow": {"skills/list": 0.01}}, "did not answer within|pages"),
        ({"results": {"skills/list": {"resultType": "complete"}}}, "'skills' is missing"),
        ({"results": {"skills/list": {"resultType": "task", "skills": []}}}, "resultType 'task'"),
        ({"slow": {"skills/list": 30}}, "did not answer within"),
        ({"cut": ["skills/list"]}, "skills/list failed"),
        ({"no_extension": True}, "does not declare the extension"),
        ({"no_extension": True, "older": [{"uri": REFUNDS, "name": "refunds"}]}, "older form.*FastMCP"),
        ({"redirect": "http://169.254.169.254/"}, "skills/list failed"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_a_faulty_list_is_an_error_of_its_source_only(
    site: Site, tmp_path: Path, faults: dict[str, Any], message: str
) -> None:
    site.faults.update(faults)
    began = time.monotonic()
    manager = site.manager(paths=[local(tmp_path, "other")], config={"skills.source.timeout": "2 s"})
    assert [skill.name for skill in manager.load_skills()] == ["other"]
    (failure,) = manager.failures
    assert re.search(message, str(failure)), failure
    assert time.monotonic() - began < 30


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


@pytest.mark.parametrize(
    ("faults", "problem"),
    [
        ({"content": {REFUNDS: "short"}}, "bytes instead of"),
        ({"resource": {"digest": f"sha256:{0:064x}"}}, "the sha256 is"),
        ({"resource": {"size": 3}}, "bytes instead of 3"),
        ({"front_matter": {"description": "Something else."}}, "'description' differs"),
        ({"front_matter": {"license": "MIT"}}, "'license' is only in the entry"),
        ({"results": {"resources/read": {"resultType": "complete", "contents": []}}}, "resources/read failed"),
        ({"cut": ["resources/read"]}, "resources/read failed"),
        ({"slow": {"resources/read": 30}}, "did not answer within"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_content_that_differs_from_its_entry_is_not_used(site: Site, faults: dict[str, Any], problem: str) -> None:
    site.faults.update(faults)
    manager = site.manager(site.source(timeout=2))
    began = time.monotonic()
    with pytest.raises(ResourceError, match=problem) as caught:
        manager.view().activate("refunds")
    assert "acme" in str(caught.value)
    assert time.monotonic() - began < 20
    assert not list(site.store.rglob("SKILL.md"))
    # The next call succeeds when the server does.
    site.faults.clear()
    if "cut" in faults or "slow" in faults or "results" in faults or "content" in faults:
        assert "# refunds" in manager.view().activate("refunds").text


def test_front_matter_with_other_types_of_scalars_is_equal(make_site: Callable[..., Site]) -> None:
    more = "version: 1.10\nflag: yes\nmetadata:\n  n: 7\n  text: |\n    a\n    b\ntags: [a, 1, null]\n"
    site = make_site("acme/refunds", more=more)
    assert "# refunds" in site.manager().view().activate("refunds").text


def test_a_file_that_is_not_listed_is_refused_without_a_request(site: Site) -> None:
    manager = site.manager()
    manager.load_skills()
    (site.folder / "acme/refunds/refs/new.md").write_text("new")
    for path in ("refs/new.md", "../other/SKILL.md", "scripts"):
        with pytest.raises(ResourceError):
            manager.view().read_resource("refunds", path)
    assert site.asked("resources/read") == []


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


def test_equal_names_of_one_server_are_distinguished_by_their_paths(make_site: Callable[..., Site]) -> None:
    site = make_site("acme/billing/refunds", "acme/support/refunds", "acme/other")
    manager = site.manager()
    names = [skill.name for skill in manager.load_skills()]
    assert names == ["acme/acme/billing:refunds", "acme/acme/support:refunds", "other"]
    with pytest.raises(UnknownNameError, match="acme/acme/billing:refunds"):
        manager.view(["refunds"])
    manager.view().activate("acme/acme/support:refunds")
    assert site.asked("resources/read") == ["skill://acme/support/refunds/SKILL.md"]


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
