"""The page of ``flink-skills catalog`` in Chromium: search, keys, colors, narrow screens, and hostile content.

Examines the internals of cli.look.catalog_data and cli.look.page on purpose.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flink_skills.cli.look.catalog_data import Catalog, CatalogSkill, Length, Viewer
from flink_skills.skill import Diagnostic
from tests.browser.conftest import Page, Wait, render_page

pytestmark = pytest.mark.browser

HIT = "window.__hit=(window.__hit||0)+1;alert(1)"
HOSTILE = [
    f"<script>{HIT}</script>",
    f"</title></style></script><script>{HIT}</script>",
    f'"><img src=x onerror="{HIT}">',
    f"'><svg onload='{HIT}'>",
    f'" onmouseover="{HIT}" autofocus onfocus="{HIT}" x="',
    f"javascript:{HIT}",
    f'<a href="javascript:{HIT}">x</a><iframe src="https://example.org/"></iframe>',
    "<link rel=stylesheet href=https://example.org/a.css><style>body{display:none}</style>",
    "<meta http-equiv=refresh content='0;url=https://example.org/'><base href=https://example.org/>",
    "--><!-- ]]> &lt;script&gt; &#60;b&#62; \u202egnp.exe\u202c \u200b \x00 \x1b[31m \ud800",
]


def skill(name: str, description: str = "Does it.", **fields: Any) -> CatalogSkill:
    values: dict[str, Any] = {
        "origin": "skills",
        "digest": "ab" * 32,
        "files": [("SKILL.md", 1200), ("scripts/run.py", 300)],
        "menu": Length(120, 30),
        "body": Length(4000, 1000),
        "scripts": ["scripts/run.py"],
        **fields,
    }
    return CatalogSkill(name, description, **values)


def html_of(catalog: Catalog) -> str:
    return render_page("catalog", catalog.title, catalog.to_page(), alternative="Read the table.")


def said(code: str, severity: Any, message: str, **fields: Any) -> Diagnostic:
    return Diagnostic(code, severity, message, path="skills/x/SKILL.md", line=2, fix="fix it", **fields)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """500 skills and two models."""
    skills = [skill(f"skill-{n:03}", f"Knows about topic {n} and nothing else.", seen_by=[0]) for n in range(497)]
    skills += [
        skill(
            "broken", "Has problems.", diagnostics=[said("F08", "error", "no description"), said("S06", "warning", "a")]
        ),
        skill(
            "checkpoint-help", "Restores savepoints.", seen_by=[0, 1], tools=["restore"], documents=["references/a.md"]
        ),
        skill("warned", "Is odd.", seen_by=[1], diagnostics=[said("F07", "warning", "the name is another")]),
    ]
    viewers = [Viewer("triage", name, "openai:gpt", "core", 4000, 1000) for name in ("main", "expert")]
    file = tmp_path_factory.mktemp("catalog") / "many.html"
    text = html_of(Catalog("job", ["skills"], skills, viewers, [said("D06", "error", "cannot be read")]))
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every text of a catalog attacks the page."""
    skills = [
        CatalogSkill(
            text,
            text,
            text,
            plugin=text,
            digest=text,
            files=[(text, 1)],
            documents=[text],
            scripts=[text],
            tools=[text],
            allowed_tools=[text],
            license=text,
            compatibility=text,
            missing=[text],
            diagnostics=[Diagnostic(text, "warning", text, text, text, 3, text)],
            seen_by=[0],
        )
        for text in HOSTILE
    ]
    viewers = [Viewer(text, text, text, text, 1, 1) for text in HOSTILE]
    file = tmp_path_factory.mktemp("catalog") / "hostile.html"
    diagnostics = [Diagnostic("D06", text, text, path=text) for text in HOSTILE]  # type: ignore[arg-type]
    file.write_text(html_of(Catalog(HOSTILE[1], HOSTILE, skills, viewers, diagnostics)), encoding="utf-8")
    return file


def test_search_finds_names_descriptions_and_problems(page: Page, many: Path) -> None:
    page.open(many)
    assert len(page.shown()) == 500
    page.keys("/")
    page.keys("savepoints")
    assert page.shown() == ["checkpoint-help"]
    assert page.run("return document.getElementById('count').textContent") == "1 of 500 skills"
    rows = page.run("return [...document.querySelectorAll('tbody tr')].filter(r => r.checkVisibility()).length")
    assert rows == 1
    for words, found in (("TOPIC 42 nothing", 15), ("f08", 1), ("skill-00", 10), ("no such thing", 0)):
        page.run("document.getElementById('words').value = ''")
        page.keys(words)
        assert len(page.shown()) == found, words
    assert page.run("return document.getElementById('nothing').checkVisibility()")
    page.keys("\ue00c")  # escape
    assert len(page.shown()) == 500


def test_filters_by_model_and_by_problems(page: Page, many: Path) -> None:
    page.open(many)
    choose = (
        "const s = document.getElementById(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))"
    )
    for field, value, names in (
        ("who", "1", ["checkpoint-help", "warned"]),
        ("who", "none", ["broken"]),
        ("state", "any", ["broken", "warned"]),
        ("state", "warning", ["warned"]),
        ("state", "error", ["broken"]),
    ):
        page.run(choose, field, value)
        assert page.shown() == names
        page.run(choose, field, "")


def test_everything_is_done_by_keys(page: Page, many: Path) -> None:
    page.open(many)
    page.keys("/", "topic 42 nothing", "\ue015")  # arrow down
    name = "return document.activeElement.querySelector('.name').textContent"
    assert page.run(name) == "skill-042"
    page.keys("\ue015")
    assert page.run(name) == "skill-142"
    page.keys("\ue007")  # enter
    assert page.run("return document.activeElement.parentElement.open")
    page.keys("\ue013", "\ue013")  # arrow up, twice
    assert page.run("return document.activeElement.id") == "words"


def test_a_link_to_a_skill_opens_it(page: Page, many: Path) -> None:
    page.open(many, fragment="#skill-warned")
    assert page.run("return document.querySelector('#skill-warned > details').open")
    top = page.run("return document.getElementById('skill-warned').getBoundingClientRect().top")
    assert 0 <= top < 900


def test_the_whole_digest_is_copied(page: Page, many: Path, wait: Wait) -> None:
    page.driver.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
    page.open(many, fragment="#skill-broken")
    # Where a page may not write the clipboard there is another way, so both are tried.
    for prepare in ("", "navigator.clipboard.writeText = () => Promise.reject(new Error('no'));"):
        page.run(
            "window.copied = ''; document.addEventListener('copy', () => "
            "{ window.copied = document.activeElement.value || 'x'; }); window.setTimeout = () => 0;"
            "document.querySelectorAll('button[data-copy]').forEach(b => { b.textContent = 'copy'; });" + prepare
        )
        button = page.driver.find_element("css selector", "#skill-broken button[data-copy]")
        button.click()
        wait(lambda of=button: of.text == "copied")
        if prepare:
            assert page.run("return window.copied") == "ab" * 32
        else:
            read = "const done = arguments[0]; navigator.clipboard.readText().then(done, e => done(String(e)));"
            assert page.driver.execute_async_script(read) == "ab" * 32


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_texts_stand_out(page: Page, many: Path, hostile: Path, dark: bool) -> None:
    backs = set()
    for file in (many, hostile):
        page.open(file, dark=dark)
        page.run("for (const d of [...document.querySelectorAll('details')].slice(-20)) d.open = true")
        ratio, place, count = page.worst_contrast()
        assert count > 100
        assert ratio >= 4.5, (ratio, place)
        backs.add(page.run("return getComputedStyle(document.body).backgroundColor"))
    assert backs == ({"rgb(18, 22, 27)"} if dark else {"rgb(246, 247, 249)"})


@pytest.mark.parametrize("width", [360, 1200, 2400])
def test_nothing_is_wider_than_the_screen(page: Page, many: Path, hostile: Path, width: int) -> None:
    for file in (many, hostile):
        page.open(file, width=width)
        page.run("for (const d of document.querySelectorAll('details')) d.open = true")
        root = page.run("const r = document.scrollingElement; return [r.scrollWidth, r.clientWidth, innerWidth]")
        assert root[0] <= root[1] <= width, (file.name, root)


def test_hostile_texts_are_texts(page: Page, hostile: Path) -> None:
    from selenium.common.exceptions import NoAlertPresentException

    page.driver.get_log("browser")
    page.open(hostile)
    page.run(
        "for (const d of document.querySelectorAll('details')) d.open = true;"
        "for (const e of document.querySelectorAll('body *')) {"
        " e.dispatchEvent(new MouseEvent('mouseover', {bubbles: true})); e.dispatchEvent(new FocusEvent('focus')); }"
    )
    with pytest.raises(NoAlertPresentException):
        _ = page.driver.switch_to.alert
    assert page.run("return window.__hit") is None
    assert page.run("return performance.getEntriesByType('resource').map(e => e.name)") == []
    tags = page.run("return [...new Set([...document.querySelectorAll('*')].map(e => e.tagName))]")
    assert not {"IMG", "IFRAME", "SVG", "OBJECT", "EMBED", "BASE", "FORM"} & set(tags)
    scripts = page.run("return [...document.scripts].map(s => s.type)")
    assert (scripts, page.run("return document.styleSheets.length")) == (["application/json", ""], 1)
    links = page.run("return [...document.querySelectorAll('[href]')].map(e => e.getAttribute('href'))")
    assert all(link.startswith("#") or link == "data:," for link in links)
    handlers = page.run(
        "return [...document.querySelectorAll('*')].flatMap(e => [...e.attributes]).map(a => a.name)"
        ".filter(n => n.startsWith('on') || n === 'style' || n === 'src')"
    )
    assert handlers == []
    # No skill is another than it says: names are there to the letter, and what nobody would see is shown.
    assert [name.partition("\u202e")[0] for name in page.shown()[:-1]] == HOSTILE[:-1]
    marks = page.run("return [...document.querySelectorAll('.entry:last-of-type .name mark')].map(m => m.textContent)")
    assert marks == ["U+202E", "U+202C", "U+200B", "U+0000", "U+001B", "U+D800"]
    assert [entry for entry in page.driver.get_log("browser") if entry["level"] == "SEVERE"] == []
    copied = page.run("return [...document.querySelectorAll('[data-copy]')].map(b => b.dataset.copy)")
    assert copied[:-1] == HOSTILE[:-1]


def test_the_policy_of_the_page_holds_what_was_overlooked(page: Page, hostile: Path, wait: Wait) -> None:
    page.open(hostile)
    page.run(
        "window.refused = []; document.addEventListener('securitypolicyviolation', e =>"
        " refused.push(e.effectiveDirective));"
        "const script = document.createElement('script'); script.textContent = 'window.__hit = 1';"
        "document.body.append(script);"
        "document.body.insertAdjacentHTML('beforeend', arguments[0]);",
        '<img src="https://example.org/x.png" onerror="__hit = 2"><p style="color: red">x</p>',
    )
    wait(lambda: len(page.run("return refused")) >= 4)
    refused = set(page.run("return refused"))
    assert refused == {"script-src-elem", "img-src", "script-src-attr", "style-src-attr"}
    assert page.run("return window.__hit") is None


def test_without_scripts_the_page_names_another_form(page: Page, many: Path) -> None:
    page.open(many, script=False)
    try:
        text = page.driver.find_element("css selector", "body").text
        assert "This page requires JavaScript. Read the table." in text
    finally:
        page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_long_list_ends_with_the_number_of_the_others(page: Page, tmp_path: Path) -> None:
    crowd = skill("crowd", files=[(f"a/{number:04}.dat", 1) for number in range(2_100)])
    (tmp_path / "crowd.html").write_text(html_of(Catalog("Skills", ["skills"], [crowd])), encoding="utf-8")
    page.open(tmp_path / "crowd.html", fragment="#skill-crowd")
    text = page.run("return document.querySelector('.entry').textContent")
    assert "2,100 files, 2.1 KB" in text
    assert text.count(".dat") == 200
    assert "and 1,900 more" in text


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("<b>&\"'", "&lt;b&gt;&amp;\"'"),
        ("a\u202eb\u200b", "a<mark>U+202E</mark>b<mark>U+200B</mark>"),
        ("\x1b\x00\ud800", "<mark>U+001B</mark><mark>U+0000</mark><mark>U+D800</mark>"),
        ("日本語 🎉 é\n", "日本語 🎉 é\n"),
        ("a\u3164\u2800\u034f", "a<mark>U+3164</mark><mark>U+2800</mark><mark>U+034F</mark>"),
        ("\u2764\ufe0f\u200d\U0001f525 1\ufe0f\u20e3", "\u2764\ufe0f\u200d\U0001f525 1\ufe0f\u20e3"),
        ("<U+200B>", "&lt;U+200B&gt;"),
        ("\ue000U+0041\ue001", "<mark>U+E000</mark>U+0041<mark>U+E001</mark>"),
    ],
)
def test_text_is_not_markup(text: str, html: str, page: Page, tmp_path: Path) -> None:
    catalog = Catalog("Skills", ["skills"], [skill("one", text)])
    (tmp_path / "text.html").write_text(html_of(catalog), encoding="utf-8")
    page.open(tmp_path / "text.html")
    assert page.run("return document.querySelector('.about').innerHTML") == html
