"""The page of ``flink-skills turns`` in Chromium: list, timeline, keys, colors, many turns, and hostile content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Page, Wait, render_page
from tests.browser.test_catalog_page import HIT, HOSTILE

pytestmark = pytest.mark.browser


def turn(number: int, **fields: Any) -> dict[str, Any]:
    values = {"id": f"{number:032x}", "agent": "desk", "key": f"key-{number}", "turn": 1, "at": 1_795_904_173_406}
    numbers = {"seconds": 1.5 + number / 1000, "waited": 0.0, "tokens": 100, "cost": None, "skills": ["refunds"]}
    return {**values, "outcome": "ok", "error": "", **numbers, "parts": [part()], **fields}


def part(kind: str = "chat", **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "name": "model", "start": 0.0, "duration": 500.0, "status": "ok", "depth": 0, **fields}


PARTS = [
    part(tokens=100, cost=0.25, facts=["openai:gpt"], content={"prompt": "Pay back.", "response": "Done."}),
    part("tool", name="pay", start=500.0, duration=500.0),
    part("command", name="python3", start=600.0, duration=300.0, depth=1, status="error", error="exit 1"),
    {"kind": "skill", "name": "refunds", "start": 700.0, "status": "ok", "depth": 1},
]


def page_of(folder: Path, turns: list[dict[str, Any]]) -> Path:
    file = folder / "turns.html"
    file.write_text(render_page("turns", "Turns", {"turns": turns}, alternative="Read the table."), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10,000 turns. The first one failed, and the second one waits."""
    turns = [turn(number) for number in range(9_998)]
    first = [
        turn(99_998, outcome="failed", error="ModelError: no answer", cost=0.25, parts=PARTS),
        turn(99_999, outcome="waiting", agent="clerk", waited=3600.0),
    ]
    return page_of(tmp_path_factory.mktemp("turns"), [*first, *turns])


def test_ten_thousand_turns_are_searched_and_filtered(page: Page, wait: Wait, many: Path) -> None:
    page.open(many)
    statistics = page.run("return [...document.querySelectorAll('.statistics li')].map(s => s.textContent)")
    assert statistics == ["10,000 turns", "1 failed", "1 waiting", "6.50 s median", "1,000,000 tokens", "$0.2500 cost"]
    page.keys("/", "key-9999")
    wait(lambda: page.run("return document.getElementById('count').textContent") == "2 of 10,000 turns")
    page.run("document.getElementById('words').value = ''")
    for state, number in (("failed", 1), ("waiting", 1), ("slow", 500)):
        page.run(
            "const state = document.getElementById('state'); state.value = arguments[0];"
            "state.dispatchEvent(new Event('change'))",
            state,
        )
        assert page.run("return document.getElementById('count').textContent") == f"{number} of 10,000 turns"


def test_a_turn_opens_by_keyboard_as_a_timeline(page: Page, wait: Wait, many: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    page.open(many)
    page.keys("/", Keys.ARROW_DOWN, Keys.ENTER)
    wait(lambda: page.run("return document.querySelectorAll('.timeline li').length") == 4)
    rows = page.run("return [...document.querySelectorAll('.timeline li')].map(r => r.innerText.split('\\n')[0])")
    assert rows[0].startswith("0.000 s")
    bars = page.run(
        "return [...document.querySelectorAll('.timeline .bar')].map(b => {"
        "const [bar, track] = [b.getBoundingClientRect(), b.parentElement.getBoundingClientRect()];"
        "return [Math.round(100 * (bar.left - track.left) / track.width), Math.round(100 * bar.width / track.width)]})"
    )
    assert bars[:3] == [[0, 50], [50, 50], [60, 30]]
    assert page.run("return document.querySelector('.timeline .tag.error').textContent") == "exit 1"
    # Contents are closed at first.
    assert page.run("return document.querySelector('details.content pre').checkVisibility()") is False
    page.run("document.querySelector('details.content').open = true")
    assert page.run("return document.querySelector('details.content pre').textContent") == "Pay back."


@pytest.mark.parametrize("dark", [False, True])
def test_texts_are_readable_in_light_and_dark_and_on_a_phone(page: Page, many: Path, dark: bool) -> None:
    page.open(many, fragment=f"#turn-{99_998:032x}", dark=dark, width=360)
    page.run("document.querySelectorAll('.entry:nth-of-type(n+20)').forEach(each => each.remove())")
    assert page.run("return document.querySelector('details').open")
    ratio, place, count = page.worst_contrast()
    assert ratio >= 4.5, place
    assert count > 40
    assert page.run("return document.documentElement.scrollWidth") <= 360


def test_hostile_texts_stay_texts(page: Page, tmp_path: Path) -> None:
    turns = [
        turn(
            number, key=text, agent=text, error=text, outcome=text, skills=[text],
            parts=[part(text, name=text, error=text, facts=[text], content={text: text})],
        )
        for number, text in enumerate(HOSTILE)
    ]  # fmt: skip
    page.open(page_of(tmp_path, turns))
    page.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert page.run("return window.__hit") is None
    assert page.run("return document.querySelectorAll('main script, main img, main iframe, main link').length") == 0
    assert HIT in page.run("return document.querySelector('main').textContent")
