"""The job whose spans are looked at: the front desk with all its tools, in a mini cluster of this process.

It is a program of its own, because workers have the environment of the JVM, and a JVM that other tests started has
that of their time.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from flink_skills import AgentsExecutionEnvironment
from tests.flink.desk_model import NOTES
from tests.flink.running import collect, flink_environment

MODULE = Path(__file__).parents[1] / "flink/front_desk.py"


def main(folder: Path, model: str, options: dict[str, str]) -> None:
    """Run two turns of one key, and print what they gave."""
    env = flink_environment(options)
    env.add_python_file(str(MODULE))
    sys.path.insert(0, str(MODULE.parent))
    desk = importlib.import_module(MODULE.stem)
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env)
    agents_env.add_skills_from_paths(str(folder / "desk"))
    events = [{"k": "a", "case": "arrival", "files": [NOTES]}, {"k": "a", "case": "return"}]
    given = env.from_collection(events)
    stream = agents_env.from_datastream(given, lambda event: event["k"])
    outputs = stream.apply(desk.FrontDesk(model, str(folder / "books")))
    print(json.dumps([len(collect(*(outputs.to_datastream(tag=tag) for tag in ("", "errors"))))]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
