"""The page with questions in Chromium: decisions, keys, colors, many questions, and hostile content."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.refunds.bridge import Bridge
from tests.browser.conftest import Page, Wait
from tests.examples.refund_questions import answers, ask, bridge_of, fail, many, question, raw

pytestmark = pytest.mark.browser

HIT = "window.__hit=1"
HOSTILE = f"<script>{HIT}</script><img src=x onerror='{HIT}'>\u202egnp.exe"
SCHEMA = {
    "properties": {
        "order": {"type": "string", "description": HOSTILE},
        "cents": {"type": "integer"},
        "currency": {"enum": ["EUR", "USD", HOSTILE]},
        "fast": {"type": "boolean"},
        "share": {"type": "number"},
        "extra": {"type": "object"},
        "note": {"type": "string"},
    },
    "required": ["order", "cents", "currency", "fast", "share", "extra"],
}
CALL = {"order": "A-1", "cents": 100, "currency": "EUR", "fast": False, "share": 0.5, "extra": {"a": [1]}}


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    with bridge_of(tmp_path, schemas={"typed": SCHEMA}) as running:
        yield running


@pytest.fixture
def load(bridge: Bridge, page: Page, wait: Wait) -> Callable[[int], Page]:
    """Load the page, and wait for a number of questions."""

    def loaded(number: int) -> Page:
        page.driver.get("about:blank")
        page.driver.get(bridge.url)
        wait(lambda: count(page) == number)
        # The pointer of an earlier test is over no question.
        page.run("document.getElementById('by').focus()")
        return page

    return loaded


@pytest.fixture
def opened(load: Callable[[int], Page], tmp_path: Path) -> Page:
    """The page with an approval and a question of code."""
    ask(
        tmp_path,
        question("a", since=1, question=HOSTILE, payload=f'{{"reason": "{HIT}"}}'),
        question("b", since=2, kind="wait", name="when", question="When?", tool="", arguments=None),
    )
    return load(2)


def count(page: Page) -> int:
    return int(page.run("return document.querySelectorAll('article').length"))


def article(page: Page, number: int) -> Any:
    return page.driver.find_elements("css selector", "article")[number]


def click(page: Page, number: int, button: str) -> None:
    article(page, number).find_element("name", button).click()


def control(page: Page, number: int, argument: str) -> Any:
    return article(page, number).find_element("css selector", f"[data-argument={argument}]")


def state(page: Page, number: int) -> str:
    return str(article(page, number).get_attribute("data-state"))


def test_content_of_models_stays_text(opened: Page) -> None:
    assert opened.run("return document.querySelector('.title').textContent") == HOSTILE
    assert opened.run("return window.__hit") is None
    assert opened.run("return document.querySelectorAll('article script, article img').length") == 0
    opened.run("const s = document.createElement('script'); s.textContent = arguments[0]; document.body.append(s)", HIT)
    assert opened.run("return window.__hit") is None, "the policy of the page allows no inline script"


def test_hostile_content_of_every_field_stays_text(load: Callable[[int], Page], wait: Wait, tmp_path: Path) -> None:
    texts = dict.fromkeys(("agent", "key", "name", "question"), HOSTILE)
    call = json.dumps({"order": HOSTILE, HOSTILE: HOSTILE, "cents": 1})
    payload = json.dumps({"on_timeout": HOSTILE, "payload": {HOSTILE: [HOSTILE], "constructor": HOSTILE}})
    ask(
        tmp_path,
        question(HOSTILE, **texts, since=1, tool=HOSTILE, arguments=call, payload=payload),
        question("b", **texts, since=2, tool="typed", arguments=json.dumps(CALL | {"note": HOSTILE})),
        question("c", **texts, status="answered", by=HOSTILE, answer=json.dumps(HOSTILE)),
    )
    raw(tmp_path, json.dumps({"wait_id": HOSTILE, "status": HOSTILE}).encode() + b"\n" + HOSTILE.encode())
    fail(tmp_path, f"TurnError: an answer to wait 'x' (b) is not usable: {HOSTILE}")
    page = load(2)
    wait(lambda: HIT in page.run("return document.getElementById('problems').textContent"))
    assert page.run("return window.__hit") is None
    elements = "body script:not([src]), body img, article style, article iframe, section script"
    assert page.run("return document.querySelectorAll(arguments[0]).length", elements) == 0
    assert HIT in article(page, 1).find_element("class name", "notice").text
    assert HIT in page.driver.find_element("id", "ended").text
    # A character that reorders the others is visible, and its effect ends with it.
    mark = "const m = document.querySelector('.title .mark'); return [m.dataset.code, getComputedStyle(m).unicodeBidi]"
    assert page.run(mark) == ["U+202E", "isolate"]
    # The order is JSON in which the character is written out.
    assert "\\u202e" in control(page, 0, "order").get_property("value")
    click(page, 0, "refuse")
    wait(lambda: answers(tmp_path))
    assert answers(tmp_path)[0]["wait_id"] == HOSTILE


@pytest.mark.row("K16")
def test_a_person_approves_with_other_arguments(opened: Page, wait: Wait, tmp_path: Path) -> None:
    opened.driver.find_element("id", "by").send_keys("ann")
    box = control(opened, 0, "cents")
    for wrong in ("{broken", "1.5", "12 900", "", "0x1f", "1e3"):
        box.clear()
        box.send_keys(wrong)
        click(opened, 0, "approve")
        wait(lambda: "Nothing was sent" in article(opened, 0).text)
        assert box.get_attribute("aria-invalid") == "true"
        assert opened.run("return document.activeElement.dataset.argument") == "cents"
    assert answers(tmp_path) == []
    box.clear()
    box.send_keys("7")
    assert "The agent's value: 100" in article(opened, 0).text
    assert article(opened, 0).find_element("name", "approve").text == "Approve with your changes"
    click(opened, 0, "approve")
    wait(lambda: answers(tmp_path))
    (found,) = answers(tmp_path)
    assert found["answer"] == {"approved": True, "by": "ann", "arguments": {"order": "A-1", "cents": 7}}
    assert (found["key"], found["by"]) == ("key of a", "ann")
    wait(lambda: 'Approved with other arguments (order: "A-1", cents: 7), by ann' in article(opened, 0).text)
    assert "Waiting for the job to confirm it" in article(opened, 0).text
    # The job has the answer.
    ask(tmp_path, question("a", status="answered", by="ann", answer='{"approved": true}'))
    wait(lambda: state(opened, 0) == "ended")
    assert "Approved, by ann" in article(opened, 0).text
    opened.driver.find_element("id", "clear").click()
    wait(lambda: count(opened) == 1)
    assert "(answered, by ann)" in opened.driver.find_element("id", "ended").text


def test_an_unchanged_call_is_approved_without_arguments(opened: Page, wait: Wait, tmp_path: Path) -> None:
    box = control(opened, 0, "cents")
    box.send_keys("5")
    box.clear()
    box.send_keys("100")
    click(opened, 0, "approve")
    wait(lambda: answers(tmp_path))
    assert answers(tmp_path)[0]["answer"] == {"approved": True, "by": None}


def test_each_type_has_a_control_and_a_check(load: Callable[[int], Page], wait: Wait, tmp_path: Path) -> None:
    from selenium.webdriver.support.ui import Select

    ask(tmp_path, question("a", tool="typed", arguments=json.dumps(CALL)))
    page = load(1)
    kinds = "return [...document.querySelectorAll('[data-argument]')].map(c => [c.dataset.argument, c.type])"
    assert page.run(kinds) == [
        ["order", "text"],
        ["cents", "text"],
        ["currency", "select-one"],
        ["fast", "checkbox"],
        ["share", "text"],
        ["extra", "textarea"],
        ["note", "text"],
    ]
    for name, wrong, right in (
        ("share", "half", "-.25"),
        ("extra", "{'a': 1}", '{"a": 12345678901234567890}'),
        ("cents", "1.0", "9007199254740993"),
        ("order", "", "A-2"),
    ):
        control(page, 0, name).clear()
        control(page, 0, name).send_keys(wrong)
        click(page, 0, "approve")
        wait(lambda name=name: control(page, 0, name).get_attribute("aria-invalid") == "true")
        control(page, 0, name).clear()
        control(page, 0, name).send_keys(right)
    assert answers(tmp_path) == []
    Select(control(page, 0, "currency")).select_by_index(1)
    control(page, 0, "fast").click()
    click(page, 0, "approve")
    wait(lambda: answers(tmp_path))
    assert answers(tmp_path)[0]["answer"]["arguments"] == {
        "order": "A-2",
        "cents": 9007199254740993,
        "currency": "USD",
        "fast": True,
        "share": -0.25,
        "extra": {"a": 12345678901234567890},
    }


def test_a_person_refuses_with_a_reason_by_keyboard_alone(opened: Page, wait: Wait, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    opened.run("document.getElementById('by').focus()")
    opened.keys("eve", *[Keys.TAB] * 4, "too late", Keys.ENTER)
    # Enter in a field decides nothing.
    opened.keys(Keys.TAB, Keys.TAB)
    assert answers(tmp_path) == []
    assert opened.run("return document.activeElement.name") == "refuse"
    opened.keys(Keys.ENTER)
    wait(lambda: answers(tmp_path))
    (found,) = answers(tmp_path)
    assert found["answer"] == {"approved": False, "by": "eve", "reason": "too late"}
    # The focus stays with the question, and the next one is one key away.
    wait(lambda: "Refused: too late, by eve" in article(opened, 0).text)
    assert opened.run("return document.activeElement.className") == "outcome"
    opened.keys(Keys.TAB)
    assert opened.run("return document.activeElement.name") == "answer"


@pytest.mark.parametrize(
    ("text", "value", "said"), [("tomorrow", "tomorrow", "as text"), ("[1, 2]", [1, 2], "as JSON")]
)
def test_a_plain_answer_is_json_or_text(
    opened: Page, wait: Wait, tmp_path: Path, text: str, value: Any, said: str
) -> None:
    click(opened, 1, "send")
    wait(lambda: "Write an answer first" in article(opened, 1).text)
    article(opened, 1).find_element("name", "answer").send_keys(text)
    assert f"is sent {said}" in article(opened, 1).text
    click(opened, 1, "send")
    wait(lambda: answers(tmp_path))
    assert answers(tmp_path)[0]["answer"] == value


def test_a_question_can_be_cancelled_and_unsent_text_stays(opened: Page, wait: Wait, tmp_path: Path) -> None:
    reason = article(opened, 0).find_element("name", "reason")
    reason.send_keys("because")
    ask(tmp_path, question("c", since=3))
    wait(lambda: count(opened) == 3)
    assert reason.get_property("value") == "because"
    assert "Cancel: the agent gets no answer." in article(opened, 1).text
    assert "Cancel: the tool does not run." in article(opened, 0).text
    click(opened, 1, "cancel")
    wait(lambda: answers(tmp_path))
    (found,) = answers(tmp_path)
    found.pop("at")
    assert found == {"key": "key of b", "wait_id": "b", "answer": None, "cancel": True, "by": ""}


def test_a_second_decision_is_not_possible_in_another_tab_or_after_a_reload(
    opened: Page, bridge: Bridge, wait: Wait, tmp_path: Path
) -> None:
    first = opened.driver.current_window_handle
    opened.driver.find_element("id", "by").send_keys("ann")
    # The polls of the other tab get no response.
    opened.driver.switch_to.new_window("tab")
    try:
        opened.driver.get(bridge.url)
        wait(lambda: count(opened) == 2)
        opened.run(
            "window.fetch = ((real) => (path, more) => path === 'questions' && !window.__on"
            " ? new Promise(() => {}) : real(path, more))(window.fetch)"
        )
        opened.driver.switch_to.window(first)
        click(opened, 0, "approve")
        wait(lambda: len(answers(tmp_path)) == 1)
        buttons = article(opened, 0).find_elements("tag name", "button")
        assert [button.is_enabled() for button in buttons] == [False] * 3
        opened.driver.switch_to.window(next(of for of in opened.driver.window_handles if of != first))
        opened.run("window.__on = true")
        click(opened, 0, "refuse")
        wait(lambda: "the question has a decision: Approved, by ann at" in article(opened, 0).text)
        wait(lambda: state(opened, 0) == "sent")
    finally:
        opened.driver.close()
        opened.driver.switch_to.window(first)
    opened.driver.refresh()
    wait(lambda: count(opened) == 2)
    assert not article(opened, 0).find_element("name", "approve").is_enabled()
    assert "Approved, by ann" in article(opened, 0).text
    assert len(answers(tmp_path)) == 1


def test_a_rejected_answer_is_shown_and_the_person_can_answer_again(opened: Page, wait: Wait, tmp_path: Path) -> None:
    opened.driver.find_element("id", "by").send_keys("ann")
    control(opened, 0, "order").send_keys("7")
    click(opened, 0, "approve")
    wait(lambda: state(opened, 0) == "sent")
    fail(tmp_path, "TurnError: an answer to wait 'approval' (a) is not usable: there is no order A-17")
    wait(lambda: state(opened, 0) == "open")
    notice = article(opened, 0).find_element("class name", "notice").text
    assert "by ann" in notice
    assert "there is no order A-17" in notice
    assert control(opened, 0, "order").get_property("value") == "A-17", "what the person has written stays"
    control(opened, 0, "order").send_keys("8")
    click(opened, 0, "approve")
    wait(lambda: len(answers(tmp_path)) == 2)


def test_a_question_that_changes_is_shown_anew(opened: Page, wait: Wait, tmp_path: Path) -> None:
    control(opened, 0, "cents").send_keys("0")
    ask(tmp_path, question("a", since=1, arguments='{"order": "A-1", "cents": 900000}'))
    value = "return document.querySelector('[data-argument=cents]').value"
    wait(lambda: opened.run(value) == "900000")
    assert "has changed since it was shown" in article(opened, 0).text
    assert article(opened, 0).find_element("name", "approve").text == "Approve"


def test_a_page_continues_after_a_restart_of_the_bridge(
    opened: Page, bridge: Bridge, wait: Wait, tmp_path: Path
) -> None:
    article(opened, 0).find_element("name", "reason").send_keys("late")
    bridge.token = "another" * 6
    click(opened, 0, "refuse")
    wait(lambda: answers(tmp_path))
    assert answers(tmp_path)[0]["answer"]["reason"] == "late"


def test_the_page_shows_the_state_of_the_job_and_of_the_bridge(page: Page, wait: Wait, tmp_path: Path) -> None:
    job = ["starting", ""]

    def text(place: str) -> str:
        return page.run("return document.getElementById(arguments[0]).textContent", place) or ""

    with bridge_of(tmp_path, job=lambda: tuple(job)) as bridge:
        page.driver.get(bridge.url)
        wait(lambda: text("job") == "The job is starting")
        wait(lambda: text("state").startswith("The job is starting."))
        job[0] = "running"
        wait(lambda: text("state") == "There is no open question.")
        job[:] = ["failed", "Its exit code is 1."]
        wait(lambda: text("job") == "The job has failed")
        assert "Its exit code is 1." in text("alarm")
    wait(lambda: "The bridge has not responded since" in text("alarm"))
    assert "The job has failed. Its exit code is 1." in text("alarm")


def test_bad_records_are_shown_beside_the_questions(opened: Page, wait: Wait, tmp_path: Path) -> None:
    raw(tmp_path, b'{"wait_id": "x", "status": "open", "key": "k", "kind": "wait"}\n{broken\n')
    wait(lambda: "2 records need attention" in opened.driver.find_element("id", "state").text)
    text = opened.driver.find_element("id", "problems").text
    assert "questions: part-1, line 1: since is missing" in text
    assert "questions: part-1, line 2: it is not JSON" in text
    assert count(opened) == 2


def test_200_questions_have_pages_and_a_filter(load: Callable[[int], Page], wait: Wait, tmp_path: Path) -> None:
    many(tmp_path)
    page = load(20)

    def place() -> str:
        return page.run("return document.getElementById('place').textContent") or ""

    def title(number: int) -> str:
        return page.run("return document.querySelectorAll('.title')[arguments[0]].textContent", number) or ""

    assert (place(), title(0)) == ("1\u201320 of 200", "Refund order A-0?")
    assert page.run("return document.querySelectorAll('*').length") < 1500, "the page contains what it shows"
    control(page, 3, "cents").send_keys("7")
    for number in range(1, 10):
        page.driver.find_element("id", "next").click()
        assert (place(), title(0)) == (
            f"{20 * number + 1}\u2013{20 * number + 20} of 200",
            f"Refund order A-{20 * number}?",
        )
        assert count(page) == 20
    assert not page.driver.find_element("id", "next").is_enabled()
    for _ in range(9):
        page.driver.find_element("id", "previous").click()
    assert (place(), title(0)) == ("1\u201320 of 200", "Refund order A-0?")
    assert not page.driver.find_element("id", "previous").is_enabled()
    assert control(page, 3, "cents").get_property("value") == "1037", "unsent text stays on another page"
    page.driver.find_element("id", "filter").send_keys("a-137 277")
    wait(lambda: count(page) == 0)
    assert "none matches the filter" in page.driver.find_element("id", "state").text
    page.driver.find_element("id", "filter").clear()
    page.driver.find_element("id", "filter").send_keys("a-137 pay_refund")
    wait(lambda: count(page) == 1)
    assert place() == "1\u20131 of 1 that match, of 200"
    click(page, 0, "approve")
    wait(lambda: answers(tmp_path))
    assert answers(tmp_path)[0]["key"] == "A-137"


def test_ended_questions_do_not_skip_others_on_the_next_page(
    load: Callable[[int], Page], wait: Wait, tmp_path: Path
) -> None:
    many(tmp_path, 45)
    page = load(20)
    page.run("document.getElementById('open').focus()")
    ask(tmp_path, *[question(f"{i:032x}", status="answered", answer="true") for i in range(20)])
    wait(lambda: all(state(page, number) == "ended" for number in range(20)))
    page.driver.find_element("id", "next").click()
    titles = "return [...document.querySelectorAll('article .title')].map(of => of.textContent)"
    assert page.run(titles) == [f"Refund order A-{number}?" for number in range(20, 40)]


def test_a_poll_moves_no_question_during_input(load: Callable[[int], Page], wait: Wait, tmp_path: Path) -> None:
    many(tmp_path)
    page = load(20)
    box = control(page, 10, "cents")
    box.clear()
    box.send_keys("4")
    # Count each change of the card's place, of the focus and of the caret.
    page.run(
        """
        window.__moves = [];
        const card = document.activeElement.closest("article");
        const top = card.getBoundingClientRect().top;
        const look = () => [document.activeElement.dataset.argument, document.activeElement.selectionStart].join();
        const start = look();
        window.__watch = setInterval(() => {
          const shift = card.getBoundingClientRect().top - top;
          if (look() !== start || Math.abs(shift) >= 2) window.__moves.push([look(), shift]);
        }, 20);
        window.__removed = 0;
        new MutationObserver((found) => { for (const one of found) window.__removed += one.removedNodes.length; })
          .observe(document.getElementById("open"), { childList: true });
        """
    )
    ends = [question(f"{i:032x}", status="timed_out") for i in (2, 5, 12)]
    now = time.time_ns() // 1_000_000
    ask(tmp_path, *ends, question("old", since=1), question("new", since=now))
    fail(tmp_path, f"TurnError: an answer to wait 'approval' ({7:032x}) is not usable: {'long ' * 200}")
    raw(tmp_path, b"{broken\n")
    wait(lambda: [state(page, number) for number in (2, 5, 12)] == ["ended"] * 3)
    wait(lambda: "long long" in article(page, 7).text)
    assert page.run("return [window.__moves, window.__removed]") == [[], 0]
    page.run("clearInterval(window.__watch)")
    assert box.get_property("value") == "4"
    # When the person leaves the list, the ended ones leave it, and the new ones come.
    page.run("document.getElementById('by').focus()")
    page.driver.find_element("id", "by").click()
    wait(lambda: "Pay old?" in article(page, 0).text)
    assert count(page) == 20


def test_a_poll_without_news_changes_nothing_in_the_page(
    load: Callable[[int], Page], wait: Wait, tmp_path: Path
) -> None:
    many(tmp_path)
    page = load(20)
    page.run(
        """
        window.__changes = 0; window.__statuses = [];
        new MutationObserver((found) => { window.__changes += found.length; })
          .observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
        window.fetch = ((real) => async (...given) => {
          const response = await real(...given);
          window.__statuses.push(response.status);
          return response;
        })(window.fetch);
        """
    )
    wait(lambda: len(page.run("return window.__statuses")) >= 3)
    assert page.run("return [window.__changes, [...new Set(window.__statuses)]]") == [0, [304]]


@pytest.mark.parametrize("dark", [False, True])
def test_texts_have_enough_contrast(load: Callable[[int], Page], wait: Wait, tmp_path: Path, dark: bool) -> None:
    soon = time.time_ns() // 1_000_000 + 60_000
    ask(
        tmp_path,
        question("a", since=1, question=HOSTILE, deadline=soon),
        question("b", since=2, kind="wait", name="when", question="When?", tool="", arguments=None),
        question("c", since=3),
        question("d", since=4),
        question("e", status="answered"),
    )
    raw(tmp_path, b"{broken\n")
    page = load(4)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    control(page, 0, "cents").clear()
    control(page, 0, "cents").send_keys("x")
    click(page, 0, "approve")
    click(page, 2, "approve")
    click(page, 3, "approve")
    wait(lambda: state(page, 3) == "sent")
    ask(tmp_path, question("c", status="answered"))
    fail(tmp_path, "TurnError: an answer to wait 'approval' (d) is not usable: no")
    wait(lambda: (state(page, 2), state(page, 3)) == ("ended", "open"))
    page.run("document.getElementById('alarm').textContent = 'The job has failed.'")
    for job in ("starting", "running", "failed"):
        show = "const job = document.getElementById('job'); job.hidden = false; job.textContent = 'The job'"
        page.run(f"{show}; job.dataset.state = arguments[0]", job)
        ratio, place, number = page.worst_contrast()
        assert ratio >= 4.5, (place, job)
        assert number > 60
