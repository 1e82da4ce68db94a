"""Asks for a topic's configuration, and writes it to $OUTPUT_DIR/topic.json."""

import json
import os
from pathlib import Path

CLEAN_UP = ["delete", "compact"]


def main() -> None:
    name = input("Name of the topic: ")
    for number, policy in enumerate(CLEAN_UP, 1):
        print(f"{number}) {policy}")
    policy = CLEAN_UP[int(input("Choose a number: ")) - 1]
    days = int(input("Days to keep events: "))
    topic = {"name": name, "cleanup.policy": policy, "retention.ms": days * 86_400_000}
    Path(os.environ["OUTPUT_DIR"], "topic.json").write_text(json.dumps(topic))
    print(f"created {name}")


if __name__ == "__main__":
    main()
