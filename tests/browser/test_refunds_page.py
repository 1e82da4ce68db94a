"""The page with questions in Chromium: answers, keys, colors, and hostile content."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.refunds.bridge import Bridge
from tests.browser.conftest import Page, Wait
from tests.examples.refund_questions import answers, ask, bridge_of, question

pytestmark = pytest.mark.browser

HIT = "window.__hit=1"
HOSTILE = f"<script>{HIT}</script><img src=x onerror='{HIT}'>\u202egnp.exe"


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    with bridge_of(tmp_path) as running:
        yield running


@pytest.fixture
def opened(bridge: Bridge, page: Page, wait: Wait, tmp_path: Path) -> Page:
    """The page with an approval and a question of code."""
    ask(
        tmp_path,
        question("a", since=1, question=HOSTILE, payload=f'{{"reason": "{HIT}"}}'),
        question("b", since=2, kind="wait", name="when", question="When?", tool="", arguments=None),
    )
    page.driver.get("about:blank")
    page.driver.get(bridge.url)
    wait(lambda: page.run("return document.querySelectorAll('article').length") == 2)
    return page


def article(page: Page, number: int) -> Any:
    return page.driver.find_elements("css selector", "article")[number]


def click(page: Page, number: int, button: str) -> None:
    article(page, number).find_element("name", button).click()


def test_content_of_models_stays_text(opened: Page) -> None:
    assert opened.run("return document.querySelector('.title').textContent") == HOSTILE
    assert opened.run("return window.__hit") is None
    assert opened.run("return document.querySelectorAll('article script, article img').length") == 0
    opened.run("const s = document.createElement('script'); s.textContent = arguments[0]; document.body.append(s)", HIT)
    assert opened.run("return window.__hit") is None, "the policy of the page allows no inline script"


@pytest.mark.row("K16")
def test_a_person_approves_with_other_arguments(opened: Page, wait: Wait, tmp_path: Path) -> None:
    opened.driver.find_element("id", "by").send_keys("ann")
    box = article(opened, 0).find_element("name", "arguments")
    box.clear()
    box.send_keys("{broken")
    click(opened, 0, "approve")
    wait(lambda: "not JSON" in article(opened, 0).text)
    assert answers(tmp_path) == []
    box.clear()
    box.send_keys('{"order": "A-1", "cents": 7}')
    click(opened, 0, "approve")
    wait(lambda: answers(tmp_path))
    (found,) = answers(tmp_path)
    assert found["answer"] == {"approved": True, "by": "ann", "arguments": {"order": "A-1", "cents": 7}}
    assert (found["key"], found["by"]) == ("key of a", "ann")
    wait(lambda: "Sent." in article(opened, 0).text)
    # The job has the answer.
    ask(tmp_path, question("a", status="answered", by="ann"))
    wait(lambda: len(opened.driver.find_elements("css selector", "article")) == 1)
    assert "answered by ann" in opened.driver.find_element("id", "ended").text


def test_a_person_refuses_with_a_reason_by_keyboard_alone(opened: Page, wait: Wait, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    opened.run("document.getElementById('by').focus()")
    opened.keys("eve", Keys.TAB, "too late", Keys.TAB, Keys.TAB, Keys.TAB, Keys.ENTER)
    wait(lambda: answers(tmp_path))
    (found,) = answers(tmp_path)
    assert found["answer"] == {"approved": False, "by": "eve", "reason": "too late"}


@pytest.mark.parametrize(("text", "value"), [("tomorrow", "tomorrow"), ("[1, 2]", [1, 2])])
def test_a_plain_answer_is_json_or_text(opened: Page, wait: Wait, tmp_path: Path, text: str, value: Any) -> None:
    article(opened, 1).find_element("name", "answer").send_keys(text)
    click(opened, 1, "send")
    wait(lambda: answers(tmp_path))
    assert answers(tmp_path)[0]["answer"] == value


def test_a_question_can_be_cancelled_and_unsent_text_stays(opened: Page, wait: Wait, tmp_path: Path) -> None:
    reason = article(opened, 0).find_element("name", "reason")
    reason.send_keys("because")
    ask(tmp_path, question("c", since=3))
    wait(lambda: len(opened.driver.find_elements("css selector", "article")) == 3)
    assert reason.get_property("value") == "because"
    click(opened, 1, "cancel")
    wait(lambda: answers(tmp_path))
    assert answers(tmp_path)[0] == {"key": "key of b", "wait_id": "b", "answer": None, "cancel": True, "by": ""}


@pytest.mark.parametrize("dark", [False, True])
def test_texts_have_enough_contrast(opened: Page, dark: bool) -> None:
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    opened.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    ratio, place, count = opened.worst_contrast()
    assert ratio >= 4.5, place
    assert count > 10
