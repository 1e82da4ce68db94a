"""Two events of one shop: a file to summarize, then a question about the summary.

python -m examples.data_analysis [FOLDER]     FOLDER stores the artifacts; default: a temporary directory
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from examples.data_analysis.agent import Analyst
from examples.data_analysis.model import use_script
from flink_skills import AgentsExecutionEnvironment, ConfigError, SkillConfig, SkillOptions
from flink_skills.agents import key_to_text
from flink_skills.artifacts import ArtifactStore, owner_of

HERE = Path(__file__).resolve().parent
SHOP = "ulm"
EVENTS: list[dict[str, Any]] = [
    {
        "shop": SHOP,
        "question": "What did we sell in each region?",
        "files": [{"name": "sales.csv", "text": (HERE / "sales.csv").read_text()}],
    },
    {"shop": SHOP, "question": "Which share has each of them?"},
]


def main(folder: str) -> int:
    use_script()
    env = AgentsExecutionEnvironment.get_execution_environment()
    env.add_skills_from_paths([str(HERE / "skills")])
    env.get_config().set(SkillOptions.TOOLS, ["full"]).set(SkillOptions.ARTIFACTS_DIR, folder)
    output = env.from_list(EVENTS, "shop").apply(Analyst)
    answers, errors = output.to_list(), output.to_list("errors")
    if errors:
        print(f"data_analysis: {errors[0]['error']}", file=sys.stderr)
        return 1
    for event, answer in zip(EVENTS, answers, strict=True):
        print(f"{event['question']}\n{answer}\n")
    Console().print(saved(env.get_config().effective()))
    return 0


def saved(config: SkillConfig) -> Table:
    """What the agent left for the shop: anyone who has the folder reads it so."""
    store = ArtifactStore.open(config)
    if store is None:
        raise ConfigError(f"{SkillOptions.ARTIFACTS_DIR.key} is not set")
    table = Table("artifact", "version", "type", box=box.ROUNDED)
    table.add_column("bytes", justify="right")
    for name in ("out/regions.csv", "out/regions.svg"):
        artifact, _ = store.load(owner_of(Analyst.name, key_to_text(SHOP)), name)
        table.add_row(artifact.name, artifact.version, artifact.mime_type, str(artifact.size_bytes))
    return table


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(str(Path(sys.argv[1]).absolute())))
    with tempfile.TemporaryDirectory(prefix="artifacts-") as scratch:
        sys.exit(main(scratch))
