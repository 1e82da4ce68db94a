"""Names of tools and skills in a job file, as ``run --check`` and ``run --explain`` show them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import FlinkSkills
from tests.job.files import PLAIN, write_job

pytestmark = pytest.mark.flink

TOOLS = '''
from flink_skills import tool


def pay_refund(cents: int) -> str:
    """Pay a refund."""
    return "paid"


@tool(approve=True)
def pay_card(cents: int) -> str:
    """Pay."""
    return "paid"


def allow(request):
    return True
'''
SERVER = Path(__file__).parents[1] / "tools" / "mcp" / "plain_server.py"


def job(folder: Path, approve: str = "pay_*", options: str = "", more: str = "") -> None:
    (folder / "tools_to_pay.py").write_text(TOOLS)
    agent = (
        "{name: refunds, model: offline, tools: ['tools_to_pay:pay_refund', 'tools_to_pay:pay_card'], "
        f"approve: {{by: 'tools_to_pay:allow', tools: ['{approve}']}}{more}}}"
    )
    write_job(folder, PLAIN, agent=agent, options=f"{{{options}}}")


def test_the_check_and_the_explanation_show_what_each_pattern_matches(
    tmp_path: Path, flink_skills: FlinkSkills
) -> None:
    job(tmp_path, options="skills.tool.timeout.pay_refund: 3 s, skills.tools.approve: '*_refund'")
    checked = flink_skills("run", "job.yaml", "--check")
    assert checked.code == 0, checked.stdout
    lines = checked.stdout.splitlines()
    assert (
        "✓ approvals: *_refund (pay_refund), pay_* (pay_card, pay_refund), pay_card: tools_to_pay:allow decides"
        in lines
    )
    assert "✓ names: option skills.tool.timeout.pay_refund: pay_refund" in lines
    explained = flink_skills("run", "job.yaml", "--explain")
    assert "names option skills.tools.approve: *_refund → pay_refund" in explained.stdout.splitlines()
    assert "names approve.tools: pay_* → pay_card, pay_refund" in explained.stdout.splitlines()
    data = flink_skills("run", "job.yaml", "--explain", "--format", "json").json
    assert {"in": "approve.tools", "name": "pay_*", "matches": ["pay_card", "pay_refund"], "problem": None} in data[
        "names"
    ]


@pytest.mark.parametrize(
    ("approve", "options", "line"),
    [
        ("pay_refnd", "", "agent.approve.tools[0]: 'pay_refnd' matches no tool of agent 'refunds'. Did you mean"),
        ("pay_*", "skills.tools.approve: pay-refund", "options.skills.tools.approve: 'pay-refund' matches no tool of"),
        ("pay_*", "skills.tools.approve: PayRefund", "options.skills.tools.approve: 'PayRefund' matches no tool of"),
        ("pay_*", "skills.tool.lost-calls.pay_refnd: refuse", "lost-calls.pay_refnd: 'pay_refnd' matches no tool of"),
        ("pay_*", "skills.tool.timeout.pay_refnd: 3 s", "skills.tool.timeout.pay_refnd: 'pay_refnd' matches no tool"),
        ("pay_*", "skills.env.reprt.TOKEN: '${env:HOME}'", "skills.env.reprt.TOKEN: 'reprt' matches no skill of"),
    ],
)
def test_a_misspelled_name_is_an_error_at_its_place(
    approve: str, options: str, line: str, tmp_path: Path, flink_skills: FlinkSkills
) -> None:
    job(tmp_path, approve, options)
    for words in (("--check",), ("--explain",), ()):
        done = flink_skills("run", "job.yaml", *words)
        assert done.code != 0, words
        said = done.stdout + done.stderr
        assert line in said, (words, said)
        if words == ("--check",):
            assert "approvals: pay_refnd" not in said
            assert any(found.startswith("✗") and line in found for found in said.splitlines())


def test_the_tools_of_a_server_are_known_when_it_is_reached(tmp_path: Path, flink_skills: FlinkSkills) -> None:
    command = json.dumps([sys.executable, str(SERVER)])
    more = f", mcp_servers: {{shop: {{command: {command}, sandbox: false, prefix: shop_}}}}"
    job(tmp_path, "count", more=more)
    # Without a connection: no tool of a server with a prefix has this name.
    checked = flink_skills("run", "job.yaml", "--check")
    assert (checked.code, "'count' matches no tool of agent 'refunds'" in checked.stdout) == (1, True)
    for name, code in (("shop_count", 0), ("shop_cuont", 1)):
        job(tmp_path, name, more=more)
        checked = flink_skills("run", "job.yaml", "--check")
        assert checked.code == 0
        said = f"! warning: approve.tools: '{name}' matches no tool of agent 'refunds' yet. MCP server 'shop' can"
        assert any(line.startswith(said) for line in checked.stdout.splitlines()), checked.stdout
        assert f"approvals: {name} (no tool yet)" in checked.stdout
        explained = flink_skills("run", "job.yaml", "--explain")
        assert f"! approve.tools: '{name}' matches no tool of agent 'refunds' yet." in explained.stdout
        reached = flink_skills("run", "job.yaml", "--check", "--reach")
        assert reached.code == code, reached.stdout
    assert "'shop_cuont' matches no tool of agent 'refunds'. Did you mean 'shop_count'?" in reached.stdout


def test_an_agent_without_an_approver_is_a_warning(tmp_path: Path, flink_skills: FlinkSkills) -> None:
    (tmp_path / "tools_to_pay.py").write_text(TOOLS)
    write_job(tmp_path, PLAIN, agent="{name: refunds, model: offline, tools: ['tools_to_pay:pay_card']}")
    checked = flink_skills("run", "job.yaml", "--check")
    said = "! approvals: pay_card: the calls are refused, because the agent has no 'approve'"
    assert (checked.code, said in checked.stdout.splitlines()) == (0, True), checked.stdout
