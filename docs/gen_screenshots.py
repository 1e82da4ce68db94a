"""Takes the pictures of docs/images/ in headless Chromium: ``python -m docs.gen_screenshots``.

Needs the packages ``chromium`` and ``chromium-driver`` of the system, and selenium (the dependency group ``browser``).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from flink_skills import Agent, AgentContext, AgentsExecutionEnvironment

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


LOGS = {
    "billing": "Checkpoint 7 expired before completing",
    "payments": "NoResourceAvailableException: Could not acquire the minimum required resources.",
    "orders": "",
}


class Triage(Agent):
    """An agent whose turns have requests, tools, commands, a pause, and a failure."""

    name = "triage"
    model = "offline"

    async def on_event(self, event: Any, ctx: AgentContext) -> str:
        """Triage one log."""
        await ctx.step("parse", self.parse, event["log"])
        await ctx.sleep(0.05)
        return await ctx.chat(event["log"])

    @staticmethod
    def parse(log: str) -> list[str]:
        """Return the lines of a log that is not empty."""
        if not log:
            raise ValueError("the log is empty")
        return log.splitlines()


def write_events(file: Path) -> str:
    """Write the events of three turns, and return the ID of the first."""
    agents_env = AgentsExecutionEnvironment.get_execution_environment()
    agents_env.add_skills_from_paths([str(ROOT / "skills")])
    agents_env.get_config().set("skills.events.content", "full")
    incidents = [{"job": job, "log": log} for job, log in LOGS.items()]
    events = agents_env.from_list(incidents, "job").apply(Triage).to_event_list()
    file.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    return next(str(event["turn_id"]) for event in events if event["key"] == "billing")


def main() -> int:
    """Take the pictures; returns the exit code."""
    driver_path, browser = shutil.which("chromedriver"), shutil.which("chromium")
    if driver_path is None or browser is None:
        sys.stderr.write("chromium and chromium-driver are needed: apt install chromium chromium-driver\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="flink-skills-pictures-", ignore_cleanup_errors=True) as folder:
        agent, events = Path(folder) / "agent.yaml", Path(folder) / "events.jsonl"
        agent.write_text(AGENT, encoding="utf-8")
        turn = write_events(events)
        pages = {
            "catalog": (["catalog", "skills", "--agent", str(agent)], "skill-checkpoint-diagnosis"),
            "turns": (["turns", str(events)], f"turn-{turn}"),
        }
        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for flag in (*FLAGS, f"--user-data-dir={folder}/profile"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(driver_path))
        try:
            metrics = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            for name, (words, fragment) in pages.items():
                page = Path(folder) / f"{name}.html"
                command = [sys.executable, "-m", "flink_skills.cli", *words, "--html", str(page)]
                subprocess.run(command, cwd=ROOT, check=True)
                driver.get(f"{page.as_uri()}#{fragment}")
                for scheme in ("light", "dark"):
                    feature = {"name": "prefers-color-scheme", "value": scheme}
                    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
                    driver.execute_script("window.scrollTo(0, 0)")
                    target = IMAGES / f"{name}-{scheme}.png"
                    if not driver.save_screenshot(str(target)):
                        sys.stderr.write(f"{target} could not be written\n")
                        return 1
                    sys.stdout.write(f"{target.relative_to(ROOT)}\n")
        finally:
            driver.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
