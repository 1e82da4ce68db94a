"""The example with refunds: the bridge, and the complete demo."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.refunds.bridge import Bridge
from tests.examples.refund_questions import answers, ask, bridge_of, question

ROOT = Path(__file__).resolve().parents[2]
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    with bridge_of(tmp_path) as running:
        yield running


def send(bridge: Bridge, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Send a request, and return the status and the content."""
    connection = http.client.HTTPConnection("127.0.0.1", bridge.server_address[1], timeout=30)
    data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
    connection.request(method, path, data, {**JSON, **{name.replace("_", "-"): of for name, of in headers.items()}})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    is_json = response.headers.get_content_type() == "application/json"
    return response.status, json.loads(content) if is_json else content


def test_open_questions_are_those_without_an_end(bridge: Bridge, tmp_path: Path) -> None:
    assert send(bridge, "GET", "/questions") == (200, {"open": [], "ended": []})
    ask(tmp_path, question("b", since=2), question("a", since=1), question("c", since=3))
    ask(tmp_path, question("c", status="answered", by="ann", question=None))
    status, found = send(bridge, "GET", "/questions")
    assert status == 200
    assert [record["wait_id"] for record in found["open"]] == ["a", "b"]
    assert [(record["status"], record["by"], record["question"]) for record in found["ended"]] == [
        ("answered", "ann", "Pay c?")
    ]


@pytest.mark.parametrize(
    ("given", "decision", "rest"),
    [
        ({"approved": True, "by": "ann"}, {"approved": True, "by": "ann"}, {"by": "ann"}),
        ({"approved": False, "reason": "no"}, {"approved": False, "by": None, "reason": "no"}, {}),
        ({"approved": True, "arguments": {"n": 1}}, {"approved": True, "by": None, "arguments": {"n": 1}}, {}),
        ({"cancel": True, "by": "ann"}, None, {"cancel": True, "by": "ann"}),
    ],
)
def test_an_answer_is_one_record_with_the_key_of_its_question(
    bridge: Bridge, tmp_path: Path, given: dict[str, Any], decision: dict[str, Any] | None, rest: dict[str, Any]
) -> None:
    ask(tmp_path, question("a"))
    assert send(bridge, "POST", "/answers", {"wait_id": "a", **given}) == (200, {"ok": True})
    empty = {"key": "key of a", "wait_id": "a", "cancel": None, "by": ""}
    assert answers(tmp_path) == [{**empty, "answer": decision, **rest}]


def test_a_question_of_code_has_any_answer(bridge: Bridge, tmp_path: Path) -> None:
    ask(tmp_path, question("a", kind="wait", tool="", arguments=None))
    assert send(bridge, "POST", "/answers", {"wait_id": "a", "answer": {"days": [1, 2]}})[0] == 200
    assert answers(tmp_path)[0]["answer"] == {"days": [1, 2]}


@pytest.mark.parametrize(
    ("body", "headers", "status", "said"),
    [
        ({"wait_id": "z", "approved": True}, {}, 400, "question 'z' is not open"),
        ({"wait_id": "a"}, {}, 400, "approved is missing"),
        ({"wait_id": "a", "approved": "yes"}, {}, 400, "approved is missing"),
        ({"wait_id": "a", "approved": True, "arguments": [1]}, {}, 400, "arguments is not an object"),
        ({"wait_id": "a", "approved": True, "by": 3}, {}, 400, "by is not a string"),
        ({"wait_id": "a", "approved": True, "evil": 1}, {}, 400, "unknown field 'evil'"),
        ("[1]", {}, 400, "the body is not an object"),
        ("{", {}, 400, "the body is not JSON"),
        (b"x" * 70_000, {}, 413, "the body has no length up to"),
        ({"wait_id": "a", "approved": True}, {"Origin": "http://evil.example"}, 403, "another origin"),
        ({"wait_id": "a", "approved": True}, {"Host": "evil.example"}, 403, "another origin"),
        ({"wait_id": "a", "approved": True}, {"Content_Type": "text/plain"}, 415, "not application/json"),
    ],
)
def test_requests_that_are_rejected_write_nothing(
    bridge: Bridge, tmp_path: Path, body: Any, headers: dict[str, str], status: int, said: str
) -> None:
    ask(tmp_path, question("a"))
    found, content = send(bridge, "POST", "/answers", body, **headers)
    assert (found, said in content["error"]) == (status, True), content
    assert answers(tmp_path) == []


@pytest.mark.parametrize(
    "path", ["/../bridge.py", "/page.js/..", "/decisions.jsonl", "/%2e%2e/agent.py", "/page.css/x"]
)
def test_only_the_files_of_the_page_are_served(bridge: Bridge, path: str) -> None:
    assert send(bridge, "GET", path)[0] == 404
    assert b"<title>Open questions</title>" in send(bridge, "GET", "/")[1]
    assert send(bridge, "GET", "/questions", Host="evil.example")[0] == 403


@pytest.mark.row("K16")
@pytest.mark.flink
def test_the_demo_pays_asks_refuses_and_ends_by_itself(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.refunds.demo"],
        cwd=ROOT,
        env={**os.environ, "REFUNDS_DIR": str(tmp_path / "refunds"), "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 98
    for said in ("paid 12.50 EUR", "paid 129.00 EUR", "the return period is 30", "paid 150.00 EUR"):
        assert said in " ".join(done.stdout.replace("│", " ").split()), done.stdout
    assert done.stderr.count(" answers: Refund ") == 3
