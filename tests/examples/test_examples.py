"""The examples run as users run them, and show what they are for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OFFLINE = (
    *("agent_tools", "data_analysis", "dynamic_tools", "file_tools", "function_tools", "interactive_script"),
    *("langchain_tools", "load_modes", "mcp_tools", "streaming_tools", "structured_output", "toolsets"),
    *("two_agents", "web_research"),
)

pytestmark = pytest.mark.row("A17")

# On a machine that does nothing else they take a second or two.
DEADLINE = 60


def run(name: str, *arguments: str) -> str:
    """What an example prints."""
    # Tables are as wide as the terminal, and coloured where it says so.
    settings = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    done = subprocess.run(
        [sys.executable, "-m", f"examples.{name}", *arguments],
        cwd=ROOT,
        env={**settings, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def rows(output: str) -> list[list[str]]:
    """The lines of the table in ``output``, by cell, without the heading's."""
    lines = [line for line in output.splitlines() if line.startswith(("│", "├"))]
    body = lines[next(at for at, line in enumerate(lines) if line.startswith("├")) + 1 :]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in body if line.startswith("│")]


def test_every_example_is_listed_here_and_tells_how_to_run_it() -> None:
    there = {path.parent.name for path in (ROOT / "examples").glob("*/__main__.py")}
    assert there == set(OFFLINE)
    for name in sorted(there):
        text = (ROOT / "examples" / name / "README.md").read_text(encoding="utf-8")
        assert f"python -m examples.{name}" in text
        assert 'model = "openai:NAME"' in text


def test_tools_come_and_go_with_skills() -> None:
    output = run("dynamic_tools")
    tokens = [int(row[3]) for row in rows(output) if row[0]]
    assert len(tokens) == 11
    assert tokens[0] == tokens[-1] == 0
    everything = re.search(r"All twelve together: about (\d+) tokens", output)
    assert everything
    assert 0 < max(tokens) < int(everything[1])
    assert "Answer: Your parcel A-17" in output


def test_an_agent_corrects_a_program() -> None:
    output = run("file_tools")
    called = [row[0] for row in rows(output) if row[0]]
    assert called == ["Bash", "Glob", "Bash", "Grep", "Read", "Edit", "Bash", "Write", "Read"]
    said = " ".join(row[2] for row in rows(output))
    assert said.index("shipping of exactly 50: 490, not 0") < said.index("edited, lines 16-16")
    assert said.index("edited, lines 16-16") < said.index("all prices are right")
    assert "is outside the workspace" in said
    assert "Answer: Orders of exactly 50" in output


def test_artifacts_of_one_event_are_there_for_the_next(tmp_path: Path) -> None:
    output = run("data_analysis", str(tmp_path))
    assert re.search(r"^south +2,242\.90  █+$", output, re.MULTILINE)
    assert "\nsouth 42%, north 31%, west 21%, east 7%\n" in output
    saved = rows(output)
    assert [row[0] for row in saved] == ["out/regions.csv", "out/regions.svg"]
    for name, version, _, size in saved:
        [file] = tmp_path.glob(f"*/*/{version}/{Path(name).name}")
        assert file.stat().st_size == int(size)
    assert [line.split(",") for line in next(tmp_path.rglob("regions.csv")).read_text().split()][:2] == [
        ["region", "revenue"],
        ["south", "2242.90"],
    ]
    assert run("data_analysis", str(tmp_path)) == output, "what is saved again has the same version"


def test_without_a_folder_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert "out/regions.svg" in run("data_analysis")
    assert not list(tmp_path.rglob("regions*"))


def test_a_program_that_asks_is_answered_and_one_that_runs_on_is_ended() -> None:
    output = run("interactive_script")
    lines = rows(output)
    states = [row[2] for row in lines if row[2]]
    # On a slow machine the model looks at the programs more often.
    assert [state for state in states if state != "running"] == [
        "waits: prompt",
        "waits: selection",
        "waits: prompt",
        "exited",
        "wrote out/topic.json",
        "killed",
    ]
    assert states[-3:] == ["running", "running", "killed"]
    called = [row[0] for row in lines if row[0].startswith("skill_")]
    assert {*called} == {"skill_exec", "skill_write_stdin", "skill_poll_session", "skill_kill_session"}
    assert "created orders" in [row[1] for row in lines]


def test_each_way_of_loading_holds_the_skill_where_it_says() -> None:
    lines = rows(run("load_modes"))
    held = {(one[0], other[0]): one[1:6] for one, other in zip(lines[::2], lines[1::2], strict=True)}
    for content, place in (("system", "system"), ("tool-result", "result")):
        assert held["turn", content] == ["-", place, place, "-", "-"]
        assert held["once", content] == ["-", place, "-", "-", "-"]
        assert held["session", content] == ["-", place, place, place, place]
    assert len(held) == 6
    for sizes in lines[1::2]:
        *each, new = (int(cell.replace(",", "")) for cell in sizes[1:])
        assert max(each) <= new <= sum(each)
    # A session with results is never told anything twice.
    assert lines[-1][-1] == lines[-1][-2]


def test_the_prompts_of_two_agents_stay_apart() -> None:
    output = run("two_agents")
    table = [[agent, skills, loaded, messages] for agent, _, skills, loaded, messages in rows(output)]
    assert table == [
        ["desk", "replies", "", "1"],
        ["desk", "replies", "replies", "3"],
        ["expert", "memory-settings", "", "1"],
        ["expert", "memory-settings", "memory-settings", "3"],
        ["desk", "replies", "replies", "5"],
    ]
    assert "Answer: Hello!" in output


def test_answers_are_of_the_declared_type() -> None:
    output = run("structured_output")
    assert rows(output.partition("How ")[0]) == [
        ["R-17", "248.35", "none"],
        ["R-18", "142.44", "total is 124.24, not 142.44"],
    ]
    story = output[output.index("Conversation about R-18") :]
    assert "it reads:  Your answer does not fit: invoice: Field required; total: Field required" in story
    assert story.endswith('{"invoice":"R-18","total":142.44,"problems":["total is 124.24, not 142.44"]}\n')


def test_a_search_leads_to_pages_and_the_answer_names_them() -> None:
    output = run("web_research")
    assert [row[:2] for row in rows(output) if row[0]] == [
        ["web_search", "ok"],
        ["web_fetch", "ok"],
        ["web_fetch", "BLOCKED_URL"],
        ["web_fetch", "HTTP_STATUS"],
    ]
    assert "track()" not in output
    assert "Sources:\n[Choosing a window](http://docs.example.org:" in output


@pytest.mark.row("J34")
def test_a_server_that_dies_in_a_turn_is_an_error_and_then_answers() -> None:
    output = run("mcp_tools")
    assert [row[:2] for row in rows(output) if row[0]] == [
        ["far_get_prompt", "ok"],
        ["far_list_resources", "ok"],
        ["far_get_weather", "ok"],
        ["near_calculate", "ok"],
        ["far_get_weather", "error"],
        ["far_get_weather", "error"],
        ["far_get_weather", "ok"],
    ]
    assert "75.2" in output
    assert "no weather of Atlantis; there is that of Berlin and Lisbon" in " ".join(output.replace("│", "").split())
    assert output.endswith("pack a hat. Berlin has rain: pack a coat.\n")


def test_a_report_is_seen_while_it_is_written_and_published_once() -> None:
    output = run("streaming_tools")
    seen = [(tool, text.partition(":")[0]) for tool, text in rows(output)]
    at = seen.index(("preview", "(withdrawn"))
    assert seen[0] == ("job_state", "orders was looked at")
    assert seen[1:at] and set(seen[1:at]) <= {("preview", "What happened"), ("preview", "Why")}
    assert seen[at + 1 :] == [("preview", "What happened"), ("preview", "Why"), ("published", "Job orders")]
    events = output.partition("as AG-UI events:\n")[2].split("\n")
    assert events[0] == "  RUN_STARTED" and events[-2] == "  RUN_FINISHED"
    assert "  CUSTOM" in events and output.count("TOOL_CALL_RESULT") == 2


@pytest.mark.row("J33")
def test_functions_of_every_form_are_tools() -> None:
    output = run("function_tools")
    assert "price: Price of an article. Returns: ``article`` and ``francs``." in output
    assert '"count": {"default": 1, "description": "How many.", "maximum": 99, "minimum": 1' in output
    called = [row[0] for row in rows(output) if row[0]]
    assert called == ["price", "stock", "price", "convert", "delivery_days", "convert", "book"]
    said = " ".join(row[2] for row in rows(output))
    for part in ('{"article": "tea", "francs": 9.0}', "article: Field required", "there is no rate for GBP", "9.54"):
        assert part in said
    assert "booked: 2 tea for c7, id of 32 characters" in said
    assert "Answer: Two packs of tea" in output


def test_a_tool_set_gives_each_customer_other_tools() -> None:
    output = run("toolsets")
    tools = " ".join(row[1] for row in rows(output)).split()
    assert tools == ["price,", "discount,", "stock", "price"]
    assert "10 % off" in output
    assert "There is no tool 'discount'" in " ".join(row[2] for row in rows(output))
    assert "The tool set was opened and closed." in output
    assert output.endswith("System prompt of each model: Prices are in francs.\n")


def test_agents_are_tools_of_an_agent() -> None:
    output = run("agent_tools")
    assert [row[0] for row in rows(output) if row[0]] == ["desk", "clerk", "clerk", "desk", "writer"]
    assert "Answer: Your order 17 is three days late" in output
    assert "looked_up = [17]; 5 requests to models" in output


def test_tools_of_langchain_are_tools_of_an_agent() -> None:
    output = run("langchain_tools")
    assert [row[0] for row in rows(output) if row[0]] == ["find_pages", "orders_of", "convert", "convert"]
    said = " ".join(row[2] for row in rows(output))
    assert "Tea is sent within two days." in said
    assert '"customer": "c7"' in said
    assert "convert: no rate for GBP" in said
    assert "Answer: Order 17 is sent within two days; it is 9.54 euro." in output
