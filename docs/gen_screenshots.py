"""Takes the pictures of docs/images/ in headless Chromium: ``python -m docs.gen_screenshots``.

Needs the packages ``chromium`` and ``chromium-driver`` of the system, and selenium (the dependency group ``browser``).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
SIZE = (1200, 1120)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
# Two models, so that the picture shows that they do not see the same.
AGENT = """\
name: log-triage
chat_model_setups:
  first-look: {clazz: offline.setup, skill_names: [log-triage, slot-shortage]}
  expert: {clazz: offline.setup}
"""


def main() -> int:
    """Take the pictures; returns the exit code."""
    driver_path, browser = shutil.which("chromedriver"), shutil.which("chromium")
    if driver_path is None or browser is None:
        sys.stderr.write("chromium and chromium-driver are needed: apt install chromium chromium-driver\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="flink-skills-pictures-", ignore_cleanup_errors=True) as folder:
        page, agent = Path(folder) / "skills.html", Path(folder) / "agent.yaml"
        agent.write_text(AGENT, encoding="utf-8")
        command = ["catalog", "skills", "--agent", str(agent), "--html", str(page)]
        subprocess.run([sys.executable, "-m", "flink_skills.cli", *command], cwd=ROOT, check=True)
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for flag in (*FLAGS, f"--user-data-dir={folder}/profile"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(driver_path))
        try:
            metrics = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            driver.get(f"{page.as_uri()}#skill-checkpoint-diagnosis")
            for scheme in ("light", "dark"):
                feature = {"name": "prefers-color-scheme", "value": scheme}
                driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
                driver.execute_script("window.scrollTo(0, 0)")
                target = IMAGES / f"catalog-{scheme}.png"
                if not driver.save_screenshot(str(target)):
                    sys.stderr.write(f"{target} could not be written\n")
                    return 1
                sys.stdout.write(f"{target.relative_to(ROOT)}\n")
        finally:
            driver.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
