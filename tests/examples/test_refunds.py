"""The example with refunds: the bridge, and the complete demo."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from examples.refunds.agent import Refunds
from examples.refunds.bridge import Bridge, schemas_of
from examples.refunds.demo import state_of
from tests.examples.refund_questions import answers, ask, bridge_of, fail, question
from tests.kit.local import local_environment
from tests.kit.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    with bridge_of(tmp_path) as running:
        yield running


def send(bridge: Bridge, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Send a request as the page does, and return the status and the content. ``Origin=""`` sends no origin."""
    connection = http.client.HTTPConnection("127.0.0.1", bridge.server_address[1], timeout=30)
    data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
    given = {name.replace("_", "-"): of for name, of in headers.items()}
    sent = {**JSON, "Origin": bridge.url[:-1], **given}
    connection.request(method, path, data, {name: of for name, of in sent.items() if of})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    is_json = content and response.headers.get_content_type() == "application/json"
    return response.status, json.loads(content) if is_json else content


def test_open_questions_are_those_without_an_end(bridge: Bridge, tmp_path: Path) -> None:
    status, found = send(bridge, "GET", "/questions")
    assert (status, found["open"], found["ended"], found["problems"]) == (200, [], [], [])
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
        ({"approved": True, "arguments": {"cents": 1}}, {"approved": True, "by": None, "arguments": {"cents": 1}}, {}),
        ({"cancel": True, "by": "ann"}, None, {"cancel": True, "by": "ann"}),
    ],
)
def test_an_answer_is_one_record_with_the_key_of_its_question(
    bridge: Bridge, tmp_path: Path, given: dict[str, Any], decision: dict[str, Any] | None, rest: dict[str, Any]
) -> None:
    ask(tmp_path, question("a"))
    assert send(bridge, "POST", "/answers", {"wait_id": "a", **given}) == (200, {"ok": True})
    empty = {"key": "key of a", "wait_id": "a", "cancel": None, "by": ""}
    (written,) = answers(tmp_path)
    assert abs(written.pop("at") / 1000 - time.time()) < 600
    assert written == {**empty, "answer": decision, **rest}


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
        ({"wait_id": "a", "approved": 1}, {}, 400, "approved is missing"),
        ({"wait_id": "a", "approved": True, "answer": 1}, {}, 400, "unknown field 'answer'"),
        ({"wait_id": "a", "approved": True, "cancel": True}, {}, 400, "unknown field 'approved'"),
        ({"wait_id": "a", "cancel": "yes"}, {}, 400, "cancel is not true or false"),
        ({"wait_id": "a", "approved": False, "arguments": {"cents": 1}}, {}, 400, "remove them to refuse"),
        ({"wait_id": "a", "approved": True, "arguments": {"cents": "abc"}}, {}, 400, "cents: expected an integer"),
        ({"wait_id": "a", "approved": True, "arguments": {"cents": 1.5}}, {}, 400, "cents: expected an integer"),
        ({"wait_id": "a", "approved": True, "arguments": {"cents": True}}, {}, 400, "cents: expected an integer"),
        ({"wait_id": ["a"], "approved": True}, {}, 400, "is not open"),
        ({"wait_id": "approval", "approved": True}, {}, 400, "question 'approval' is not open"),
        ({"wait_id": "a", "approved": True, "by": "x" * 201}, {}, 400, "by is not a string of at most"),
        ('{"wait_id": "a", "approved": false, "approved": true}', {}, 400, "'approved' occurs twice"),
        ('{"wait_id": "a", "approved": true, "arguments": {"cents": NaN}}', {}, 400, "NaN is not JSON"),
        ({"wait_id": "a", "approved": True, "version": "0"}, {}, 409, "the question has changed"),
        ("[1]", {}, 400, "the body is not an object"),
        ("{", {}, 400, "the body is not JSON"),
        (b"x" * 70_000, {}, 413, "the body has no length up to"),
        ({"wait_id": "a", "approved": True}, {"Origin": "http://evil.example"}, 403, "another origin"),
        ({"wait_id": "a", "approved": True}, {"Host": "evil.example"}, 403, "another origin"),
        ({"wait_id": "a", "approved": True}, {"Origin": "null"}, 403, "another origin"),
        ({"wait_id": "a", "approved": True}, {"Sec_Fetch_Site": "cross-site"}, 403, "another origin"),
        ({"wait_id": "a", "approved": True}, {"Origin": ""}, 403, "neither an Origin nor the page's token"),
        (
            {"wait_id": "a", "approved": True},
            {"Origin": "", "X_Bridge_Token": "guess"},
            403,
            "is not that of this bridge",
        ),
        ({"wait_id": "a", "approved": True}, {"X_Bridge_Token": "guess"}, 403, "is not that of this bridge"),
        (
            "wait_id=a&approved=true",
            {"Origin": "", "Content_Type": "application/x-www-form-urlencoded"},
            403,
            "neither",
        ),
        ({"wait_id": "a", "approved": True}, {"Content_Length": "1e3"}, 413, "the body has no length"),
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


def test_the_token_is_in_the_page_only_and_stands_for_an_origin(
    bridge: Bridge, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ask(tmp_path, question("a"))
    page = send(bridge, "GET", "/")[1].decode()
    (token,) = re.findall(r'<meta name="token" content="([\w-]{43})">', page)
    assert "TOKEN_OF_THE_PAGE" not in page
    assert (
        send(bridge, "POST", "/answers", {"wait_id": "a", "approved": True}, Origin="", X_Bridge_Token=token)[0] == 200
    )
    assert token not in json.dumps(send(bridge, "GET", "/questions")[1])
    assert token not in bridge.url
    assert token not in "".join(capfd.readouterr())
    with bridge_of(tmp_path) as other:
        assert other.token != token


def test_a_proxy_has_its_own_origin_and_names_the_person(tmp_path: Path) -> None:
    ask(tmp_path, question("a"))
    answer = {"wait_id": "a", "approved": True, "by": "somebody else"}
    with bridge_of(tmp_path, origins=["https://approvals.example"], user_header="X-Forwarded-User") as bridge:
        proxy = {"Host": "approvals.example", "Origin": "https://approvals.example"}
        assert send(bridge, "GET", "/questions", **proxy)[1]["asks_name"] is False
        status, content = send(bridge, "POST", "/answers", answer, **proxy)
        assert (status, "passes no name in X-Forwarded-User" in content["error"]) == (400, True)
        assert send(bridge, "POST", "/answers", answer, **proxy, X_Forwarded_User="ann")[0] == 200
        assert send(bridge, "POST", "/answers", answer, Host="other.example", Origin="https://other.example")[0] == 403
    assert answers(tmp_path)[0]["by"] == "ann"


def test_a_poll_without_news_has_no_content(bridge: Bridge, tmp_path: Path) -> None:
    ask(tmp_path, *[question(f"{number}") for number in range(200)])
    connection = http.client.HTTPConnection("127.0.0.1", bridge.server_address[1], timeout=30)
    connection.request("GET", "/questions")
    response = connection.getresponse()
    assert len(json.loads(response.read())["open"]) == 200
    tag = response.headers["ETag"]
    assert send(bridge, "GET", "/questions", If_None_Match=tag) == (304, b"")
    ask(tmp_path, question("0", status="answered"))
    assert send(bridge, "GET", "/questions", If_None_Match=tag)[0] == 200


@pytest.mark.parametrize("first", [{"approved": True}, {"approved": False}, {"cancel": True}])
def test_a_second_decision_is_refused_also_by_another_bridge(tmp_path: Path, first: dict[str, Any]) -> None:
    ask(tmp_path, question("a"))
    second = {"wait_id": "a", "approved": True, "by": "eve"}
    with bridge_of(tmp_path) as bridge:
        assert send(bridge, "POST", "/answers", {"wait_id": "a", **first, "by": "ann"})[0] == 200
        status, content = send(bridge, "POST", "/answers", second)
        assert (status, "by ann at " in content["error"]) == (409, True), content
    with bridge_of(tmp_path) as bridge:
        assert send(bridge, "POST", "/answers", second)[0] == 409
        (shown,) = send(bridge, "GET", "/questions")[1]["open"]
        assert shown["decision"]["by"] == "ann"
        ask(tmp_path, question("a", status="answered", by="ann", answer='{"approved": true}'))
        status, content = send(bridge, "POST", "/answers", second)
        assert (status, "the question has ended" in content["error"]) == (409, True), content
    assert [answer["by"] for answer in answers(tmp_path)] == ["ann"]


def test_one_of_simultaneous_decisions_is_stored(tmp_path: Path) -> None:
    ask(tmp_path, question("a"))
    with bridge_of(tmp_path) as one, bridge_of(tmp_path) as other, ThreadPoolExecutor(8) as people:
        bodies = [{"wait_id": "a", "approved": True, "by": f"person {number}"} for number in range(8)]
        found = list(
            people.map(lambda body: send((one, other)[int(body["by"][-1]) % 2], "POST", "/answers", body), bodies)
        )
    assert sorted(status for status, _ in found) == [200, *[409] * 7]
    assert len(answers(tmp_path)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "TurnError: an answer to wait 'approval' (a) is not usable: cents: Input should be a valid integer",
        "TurnError: the answer to wait 'a' is not used. cents: Input should be a valid integer",
    ],
)
def test_a_rejected_answer_is_shown_with_its_reason_and_the_question_is_open_again(
    bridge: Bridge, tmp_path: Path, text: str
) -> None:
    ask(tmp_path, question("a"), question("b"))
    first = {"wait_id": "a", "approved": True, "by": "ann"}
    assert send(bridge, "POST", "/answers", first)[0] == 200
    fail(tmp_path, "RuntimeError: the model does not respond", text)
    found = {of["wait_id"]: of for of in send(bridge, "GET", "/questions")[1]["open"]}
    assert (found["a"]["decision"], found["b"]["rejected"]) == (None, None)
    rejected = found["a"]["rejected"]
    assert (rejected["reason"], rejected["by"]) == ("cents: Input should be a valid integer", "ann")
    assert send(bridge, "POST", "/answers", {**first, "by": "bob"})[0] == 200
    assert send(bridge, "POST", "/answers", {**first, "by": "eve"})[0] == 409
    (shown,) = [of for of in send(bridge, "GET", "/questions")[1]["open"] if of["wait_id"] == "a"]
    assert (shown["decision"]["by"], shown["rejected"]) == ("bob", None)


def test_records_of_the_job_have_the_form_that_the_bridge_reads(bridge: Bridge, tmp_path: Path) -> None:
    order = {"order": "A-2", "customer": "bob", "cents": 12900, "reason": "never arrived"}
    orders = local_environment().from_list([order], "order")
    asked, _ = orders.apply(Refunds).to_wait_list()
    # Tables have JSON in these columns.
    ask(tmp_path, {**asked, "payload": json.dumps(asked["payload"]), "arguments": json.dumps(asked["arguments"])})
    (shown,) = send(bridge, "GET", "/questions")[1]["open"]
    assert shown["background"] == [["reason", "never arrived"]]
    assert [(of["name"], of["value"]) for of in shown["fields"]] == [("order", "A-2"), ("cents", "12900")]
    wrong = {"order": "A-2", "wait_id": asked["wait_id"], "answer": {"approved": "perhaps"}, "by": "ann"}
    (error, *_) = orders.apply(Refunds).answers([wrong], "order").to_list("errors")
    fail(tmp_path, error["error"])
    (shown,) = send(bridge, "GET", "/questions")[1]["open"]
    assert shown["rejected"]["reason"].startswith("approved: ")


def test_an_unused_answer_without_an_open_question_is_shown(bridge: Bridge, tmp_path: Path) -> None:
    ask(tmp_path, question("a"), question("a", status="answered"))
    late, unknown = (f"TurnError: the answer to wait {wait!r} is not used. It is late" for wait in "az")
    fail(tmp_path, late, unknown)
    found = send(bridge, "GET", "/questions")[1]
    assert {late, unknown} == {of["problem"] for of in found["problems"]}
    assert found["problem_count"] == 2


def test_a_question_that_is_asked_again_with_other_arguments_has_another_version(
    bridge: Bridge, tmp_path: Path
) -> None:
    ask(tmp_path, question("a"))
    (first,) = send(bridge, "GET", "/questions")[1]["open"]
    ask(tmp_path, question("a", arguments='{"order": "A-1", "cents": 900000}'))
    body = {"wait_id": "a", "approved": True, "version": first["version"]}
    assert send(bridge, "POST", "/answers", body)[0] == 409
    (second,) = send(bridge, "GET", "/questions")[1]["open"]
    assert send(bridge, "POST", "/answers", {**body, "version": second["version"]})[0] == 200


def test_the_arguments_have_the_types_of_the_tool(tmp_path: Path) -> None:
    ask(tmp_path, question("a"))
    with bridge_of(tmp_path, schemas=schemas_of("examples.refunds.agent:Refunds")) as bridge:
        (shown,) = send(bridge, "GET", "/questions")[1]["open"]
        assert [(of["name"], of["kind"], of["help"]) for of in shown["fields"]] == [
            ("order", "text", "The order."),
            ("cents", "integer", "The amount in cents."),
        ]
        body = {"wait_id": "a", "approved": True, "arguments": {"cents": "abc", "more": 1}}
        status, content = send(bridge, "POST", "/answers", body)
        assert (status, sorted(content["fields"])) == (400, ["cents", "more", "order"])
    assert answers(tmp_path) == []


@pytest.mark.parametrize(
    ("code", "file", "state"),
    [
        (None, "", "starting"),
        (None, "questions/.part-0.inprogress", "running"),
        (None, "refunds/part-0", "running"),
        (0, "refunds/part-0", "ended"),
        (-2, "refunds/part-0", "ended"),
        (1, "", "failed"),
    ],
)
def test_the_demo_knows_the_state_of_its_job(tmp_path: Path, code: int | None, file: str, state: str) -> None:
    (tmp_path / "job.log").touch()
    if file:
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).touch()
    job = cast("subprocess.Popen[bytes]", SimpleNamespace(poll=lambda: code))
    assert state_of(job, tmp_path)[0] == state


def test_the_state_of_the_job_is_part_of_what_the_page_reads(tmp_path: Path) -> None:
    state = ["starting", ""]
    with bridge_of(tmp_path, job=lambda: tuple(state)) as bridge:
        assert send(bridge, "GET", "/questions")[1]["job"] == {"state": "starting", "detail": ""}
        state[:] = ["failed", "Its exit code is 1."]
        assert send(bridge, "GET", "/questions")[1]["job"] == {"state": "failed", "detail": "Its exit code is 1."}
        wait_until(lambda: bridge.shown[0] == "failed", "the last state of the job", within=30)


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
    assert len(answers(tmp_path / "refunds")) == 3
    for said in ("paid 12.50 EUR", "paid 129.00 EUR", "the return period is 30", "paid 150.00 EUR"):
        assert said in " ".join(done.stdout.replace("│", " ").split()), done.stdout
    assert done.stderr.count(" answers: Refund ") == 3
