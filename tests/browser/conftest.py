"""A headless Chromium for the pages that people look at; tests are skipped, with the reason, where there is none."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flink_skills.cli.look.catalog_command import render_page  # noqa: F401 - for the tests of pages

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

CONTRASTS = """
const channel = (value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
const rgba = (text) => [...text.match(/[\\d.]+/g).map(Number), 1].slice(0, 4);
const light = (c) => 0.2126 * channel(c[0] / 255) + 0.7152 * channel(c[1] / 255) + 0.0722 * channel(c[2] / 255);
const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
const back = (element) => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) {
    const color = rgba(getComputedStyle(at).backgroundColor);
    if (color[3] > 0) layers.push(color);
    if (color[3] === 1) break;
  }
  return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]);
};
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const element = node.parentElement;
  if (!node.textContent.trim() || ["SCRIPT", "STYLE"].includes(element.tagName)) continue;
  if (!element.checkVisibility() || element.closest(".unseen, .skip")) continue;
  const under = back(element);
  const [a, b] = [light(over(rgba(getComputedStyle(element).color), under)), light(under)];
  found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.tagName + "." + element.className]);
}
return found.sort((one, other) => one[0] - other[0]).slice(0, 5).concat([[found.length, "texts"]]);
"""


class Page:
    """A page of a file in the browser."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(
        self, file: Path, *, fragment: str = "", dark: bool = False, width: int = 1200, script: bool = True
    ) -> None:
        """Load it anew."""
        cdp = self.driver.execute_cdp_cmd
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        cdp("Emulation.setEmulatedMedia", {"features": [scheme]})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        cdp("Emulation.setDeviceMetricsOverride", size)
        cdp("Emulation.setScriptExecutionDisabled", {"value": not script})
        self.driver.get("about:blank")
        self.driver.get(file.as_uri() + fragment)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page."""
        return self.driver.execute_script(script, *arguments)

    def keys(self, *keys: str) -> None:
        """Type on whatever has the focus."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver, duration=0).send_keys(*keys).perform()

    def shown(self) -> list[str]:
        """Names of the skills that are not filtered out."""
        names: list[str] = self.run(
            "return [...document.querySelectorAll('.entry')].filter(s => s.checkVisibility())"
            ".map(s => s.querySelector('.name').textContent)"
        )
        return names

    def worst_contrast(self) -> tuple[float, str, int]:
        """The smallest ratio of text to what is behind it, where, and the number of texts."""
        *worst, (count, _) = self.run(CONTRASTS)
        ratio, place = worst[0]
        return ratio, place, count


@pytest.fixture(scope="session")
def driver() -> Iterator[WebDriver]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    browser, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or chromedriver is None:
        pytest.skip("there is no Chromium: apt install chromium chromium-driver")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        running = webdriver.Chrome(options=options, service=Service(chromedriver))
        running.set_page_load_timeout(60)
        try:
            yield running
        finally:
            running.quit()


@pytest.fixture
def page(driver: WebDriver) -> Page:
    return Page(driver)


Wait = Callable[[Callable[[], Any]], None]


@pytest.fixture
def wait(driver: WebDriver) -> Wait:
    """Wait until a condition holds."""
    from selenium.webdriver.support.ui import WebDriverWait

    return lambda condition: WebDriverWait(driver, 20, poll_frequency=0.05).until(lambda _: condition())
