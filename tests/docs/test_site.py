"""The built site: tabs, lists of pages, old addresses, pages as Markdown, and what a phone shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from checks.evidence import guarantees
from docs import gen_index
from docs.navigation import DOCS, Page, Section, first_sentence, read_navigation
from docs.site_hooks import MOVED, address_of, redirect
from tests.browser.conftest import Page as BrowserPage
from tests.browser.conftest import Wait, driver, page, wait  # noqa: F401 - fixtures
from tests.docs.pages import ROOT, links_of

if TYPE_CHECKING:
    from pytest import MonkeyPatch

REPOSITORY = "https://git.example.org/team/flink-skills"
TABS = ["Learn", "Build", "Operate", "Reference", "Contribute"]
PAGES = list(read_navigation().pages())
_TASKLESS = re.compile(r"(At|After|With|On) (the end of )?this page\b|(Use )?[Tt]his page\b|Read here\b|Look up here\b")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "REPOSITORY_URL": REPOSITORY, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def html_of(site: Path, path: str) -> str:
    return (site / address_of(path) / "index.html").read_text(encoding="utf-8")


def test_tabs_are_the_entries_of_the_navigation() -> None:
    tabs = read_navigation().groups()
    assert [tab.title for tab in tabs] == TABS
    for tab in tabs:
        assert tab.own_pages()[0] == tab.entries[0]
        assert tab.own_pages()[0].path.endswith("index.md"), tab.title


@pytest.mark.parametrize("path", ["agents.md", "develop/index.md"])
def test_a_page_has_tabs_neighbors_and_controls(site: Path, path: str) -> None:
    html = html_of(site, path)
    tabs = re.findall(r'<a href="[^"]*" class="md-tabs__link">\s*([^<]*?)\s*</a>', html)
    assert tabs == TABS
    assert 'class="md-footer__link md-footer__link--prev"' in html
    assert 'class="md-footer__link md-footer__link--next"' in html
    assert html.count('name="__palette"') == 3
    assert f'<a href="{REPOSITORY}"' in html
    for feature in ("search.suggest", "navigation.indexes"):
        assert f'"{feature}"' in html


def test_each_page_is_there_as_markdown(site: Path) -> None:
    for entry in PAGES:
        text = (site / entry.path).read_text(encoding="utf-8")
        assert f"# {entry.title}\n" in text
        assert "\n::: " not in text, entry.path
        if "\n::: " not in entry.text and entry.path != "guarantees.md":
            assert text == entry.text


def test_guarantees_are_shown_without_their_tests(site: Path) -> None:
    rows = guarantees(ROOT)
    for text in ((site / "guarantees.md").read_text(encoding="utf-8"), html_of(site, "guarantees.md")):
        assert not re.search(r"test_\w+\.py::|\w+Test#", text)
    shown = re.findall(r"^- (.+)$", (site / "guarantees.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert shown == [row.replace("\\|", "|") for row in rows]


def test_the_markdown_of_the_api_has_signatures_and_docstrings(site: Path) -> None:
    text = (site / "reference/api-agents.md").read_text(encoding="utf-8")
    assert "### `Agent`" in text
    assert re.search(r"```python\nchat\(self, ", text)
    from flink_skills import Agent

    assert Agent.__doc__ is not None
    assert Agent.__doc__.splitlines()[0] in text


def test_llms_txt_lists_every_page(site: Path) -> None:
    lines = (site / "llms.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# flink_skills"
    assert [line.removeprefix("## ") for line in lines if line.startswith("## ")] == TABS
    listed = [re.fullmatch(r"- \[(.+)\]\((.+)\): (.+)", line) for line in lines if line.startswith("- ")]
    assert [match and match.groups() for match in listed] == [(one.title, one.path, one.summary) for one in PAGES]


def test_old_addresses_lead_to_pages(site: Path) -> None:
    assert MOVED
    for old, new in MOVED.items():
        path, _, heading = new.partition("#")
        assert not (DOCS / old).exists(), f"{old} is a page: remove it from docs/moved.yaml"
        assert path not in MOVED, f"{old} leads to {path}, which moved as well"
        (address,) = re.findall(r'url=([^"]+)"', html_of(site, old))
        target, _, found = address.partition("#")
        file = (site / address_of(old) / target / "index.html").resolve()
        assert file == (site / address_of(path) / "index.html").resolve()
        assert found == heading
        assert not heading or f'id="{heading}"' in file.read_text(encoding="utf-8"), f"{old}: no heading {new}"


def test_redirects_are_relative() -> None:
    assert 'url=../models/#strategies"' in redirect("local.md", "models.md#strategies")
    assert 'url=../../"' in redirect("reference/all.md", "index.md")


def test_lists_of_pages_are_current() -> None:
    assert gen_index.main(["--check"]) == 0, "run: python -m docs.gen_index"


def test_lists_that_are_not_current_are_found(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    (tmp_path / "develop").mkdir()
    mark = "<!-- generated: index -->\n<!-- end -->\n"
    texts = {"index.md": "# All\n\nAll.\n\n", "develop/index.md": "# Build\n\nIt.\n\n", "a.md": "# A\n\nRun [a](b)."}
    for path, text in texts.items():
        (tmp_path / path).write_text(text + mark)
    build = Section("Build", [Page("develop/index.md"), Page("a.md")])
    navigation = Section("", [Section("Learn", [Page("index.md")]), build])
    monkeypatch.setattr(gen_index, "DOCS", tmp_path)
    monkeypatch.setattr("docs.navigation.DOCS", tmp_path)
    monkeypatch.setattr(gen_index, "read_navigation", lambda: navigation)
    assert gen_index.main(["--check"]) == 1
    assert gen_index.main([]) == 0
    assert gen_index.main(["--check"]) == 0
    assert "- [A](../a.md): Run a." in (tmp_path / "develop/index.md").read_text()
    assert "| [**Build**](develop/index.md) | [A](a.md) |" in (tmp_path / "index.md").read_text()
    (tmp_path / "a.md").write_text("# Another title\n\nText.")
    assert gen_index.main(["--check"]) == 1


def test_the_start_page_leads_to_all_pages() -> None:
    links = {link.partition("#")[0] for link in links_of(DOCS / "index.md")}
    assert {entry.path for entry in PAGES} - {"index.md"} <= links


def test_the_start_page_begins_with_an_example_and_a_picture() -> None:
    first = (DOCS / "index.md").read_text(encoding="utf-8").partition("\n## ")[0]
    assert "<!-- run -->\n```python\n" in first
    assert re.search(r"!\[[^\]]+\]\(images/turns-light\.png\)", first)


@pytest.mark.parametrize("entry", PAGES, ids=lambda entry: entry.path)
def test_the_first_sentence_names_the_task(entry: Page) -> None:
    assert not _TASKLESS.match(entry.summary), f"docs/{entry.path}: begin with what the reader does: {entry.summary}"


def test_first_sentences_differ() -> None:
    summaries = [entry.summary for entry in PAGES]
    assert len(set(summaries)) == len(summaries)


def test_the_first_sentence_is_read_without_marks_and_links() -> None:
    assert first_sentence("# A\n\n<!-- no -->\n![Picture](a.svg)\n\nRun [it](b.md) with `a.b`\nnow. Then\nmore.") == (
        "Run it with `a.b` now."
    )
    with pytest.raises(ValueError, match="has no prose"):
        first_sentence("# A\n\n- A list.\n")


@pytest.mark.browser
def test_diagrams_can_be_read_on_a_phone(site: Path, page: BrowserPage) -> None:  # noqa: F811
    pages = [entry for entry in PAGES if any(link.endswith(".svg") for link in links_of(DOCS / entry.path))]
    assert len(pages) > 5
    for entry in pages:
        page.open(site / address_of(entry.path) / "index.html", width=390)
        for name, width, natural in page.run(
            "return [...document.querySelectorAll('img[src$=\".svg\"]')].map(image => "
            "[image.src, image.getBoundingClientRect().width, image.naturalWidth])"
        ):
            text = (DOCS / "images" / Path(name).name).read_text(encoding="utf-8")
            view = float(re.findall(r'viewBox="0 0 (\d+)', text)[0])
            smallest = min(map(float, re.findall(r'font-size(?:="|: )(\d+)', text)))
            assert smallest * width / view >= 11, f"{entry.path}: {name} is {width} px wide, and {natural} px by nature"
        # The diagram scrolls instead of the page.
        assert page.run("return document.documentElement.scrollWidth") <= 390, entry.path


@pytest.mark.browser
def test_the_first_screen_has_the_example_and_the_picture(site: Path, page: BrowserPage) -> None:  # noqa: F811
    page.open(site / "index.html", width=1280)
    code, picture = page.run(
        "return ['.start pre', '.start img'].map(one => document.querySelector(one).getBoundingClientRect().toJSON())"
    )
    assert 0 < code["top"] < code["bottom"] < 900
    assert 0 < picture["top"] < picture["bottom"] < 900


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """Address of the site: scripts of pages load nothing from files."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.browser
def test_the_theme_can_be_switched(site: Path, served: str, page: BrowserPage, wait: Wait) -> None:  # noqa: F811
    page.open(site / "404.html", dark=True)
    page.driver.get(served)
    scheme = "return document.body.getAttribute('data-md-color-scheme')"
    assert page.run(scheme) == "slate"

    def light() -> bool:
        # Before the script is loaded, a click has no effect.
        page.run("document.querySelector('label[for=__palette_1]').click()")
        return bool(page.run(scheme) == "default")

    wait(light)


@pytest.mark.browser
def test_the_search_suggests_and_finds(site: Path, served: str, page: BrowserPage, wait: Wait) -> None:  # noqa: F811
    page.open(site / "404.html")
    page.driver.get(f"{served}?q=approva")
    found = "return [...document.querySelectorAll('.md-search-result__link')].map(link => link.getAttribute('href'))"
    wait(lambda: any("approvals/" in link for link in page.run(found)))
