"""Servers of skills with faults, over HTTP and stdio, and processes that are killed while they read from one."""

from __future__ import annotations

import multiprocessing
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flink_skills import AgentSkillManager, SkillConfig
from flink_skills.errors import ResourceError, UnknownNameError
from flink_skills.manager import SkillScope
from tests.kit.waiting import wait_until
from tests.tools.mcp.skills_site import OPEN, Site, write_skill

REFUNDS = "skill://acme/refunds/SKILL.md"


@pytest.fixture(params=["http", "stdio"])
def site(request: pytest.FixtureRequest, make_site: Callable[..., Site]) -> Site:
    return make_site(transport=request.param)


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
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_a_faulty_list_is_an_error_of_its_source_only(
    site: Site, tmp_path: Path, faults: dict[str, Any], message: str
) -> None:
    site.faults.update(faults)
    began = time.monotonic()
    other = write_skill(tmp_path / "local/other").parent
    manager = site.manager(paths=[str(other)], config={"skills.source.timeout": "2 s"})
    assert [skill.name for skill in manager.load_skills()] == ["other"]
    (failure,) = manager.failures
    assert re.search(message, str(failure)), failure
    assert time.monotonic() - began < 30


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


def test_a_file_that_is_not_listed_is_refused_without_a_request(site: Site) -> None:
    manager = site.manager()
    manager.load_skills()
    (site.folder / "acme/refunds/refs/new.md").write_text("new")
    for path in ("refs/new.md", "../other/SKILL.md", "scripts"):
        with pytest.raises(ResourceError):
            manager.view().read_resource("refunds", path)
    assert site.asked("resources/read") == []


@pytest.mark.row("B28")
def test_ten_thousand_skills_on_pages_are_listed(site: Site) -> None:
    site.faults["many"] = 10_000
    manager = site.manager(config={"skills.source.timeout": "60 s"})
    assert len(manager.load_skills()) == 10_001
    assert len(site.asked("skills/list")) == 11
    assert site.asked("resources/read") == []


def test_equal_names_of_one_server_are_distinguished_by_their_paths(site: Site) -> None:
    for skill in ("billing/refunds", "support/refunds", "other"):
        write_skill(site.folder / "acme" / skill)
    shutil.rmtree(site.folder / "acme/refunds")
    manager = site.manager()
    names = [skill.name for skill in manager.load_skills()]
    assert names == ["acme/acme/billing:refunds", "acme/acme/support:refunds", "other"]
    with pytest.raises(UnknownNameError, match="acme/acme/billing:refunds"):
        manager.view(["refunds"])
    manager.view().activate("acme/acme/support:refunds")
    assert site.asked("resources/read") == ["skill://acme/support/refunds/SKILL.md"]


def test_a_redirect_to_another_host_is_not_followed(make_site: Callable[..., Site]) -> None:
    site = make_site()
    site.faults["redirect"] = "http://169.254.169.254/"
    (failure,) = site.manager().failures
    assert "Redirect to http://169.254.169.254/ not followed" in str(failure)


def activate(scopes: list[Any], config: dict[str, str]) -> None:
    """Load the skill of a plan in another process."""
    manager = AgentSkillManager.from_scopes([SkillScope.from_json(one) for one in scopes], config=SkillConfig(config))
    manager.view().activate("refunds")


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_process_that_is_killed_during_a_load_leaves_nothing_and_the_next_load_is_the_same(
    site: Site, is_changed: bool
) -> None:
    scopes = [scope.to_json() for scope in site.manager().pinned_scopes()]
    config = {**OPEN, "skills.store.dir": str(site.store)}
    site.faults["slow"] = {"resources/read": 10}
    process = multiprocessing.get_context("spawn").Process(target=activate, args=(scopes, config))
    process.start()
    wait_until(lambda: site.asked("resources/read"), "the request for the skill file")
    process.kill()
    process.join()
    assert not list(site.store.rglob("SKILL.md"))
    site.faults.clear()
    manager = AgentSkillManager.from_scopes([SkillScope.from_json(one) for one in scopes], config=SkillConfig(config))
    if not is_changed:
        assert "# refunds" in manager.view().activate("refunds").text
        return
    # The plan has the digests of the first load: a second one has the same content, or fails.
    write_skill(site.folder / "acme/refunds", "license: MIT\n")
    with pytest.raises(ResourceError, match="does not match its entry"):
        manager.view().activate("refunds")
