"""Episodes of a small model: load a skill, read its reference, run its script, answer.

    python -m benchmarks.small_model BASE_URL MODEL [--strategy json] [--skills held-out] [--limit 20] [--write]

Each episode is one event of ``flink-skills run --local``. The answer must contain the number that the script prints
with the right arguments, or with the whole event (``--skills whole-event``).
``--write`` stores the shares of right answers in ``benchmarks/results/small_model.json``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.small_model_skills import SETS, Episode, episodes, write_skills

_INSTRUCTIONS = "You answer questions of customers. Use the skill that fits, and answer in one sentence."
#: Seconds for one turn: a small model on busy CPUs is slow.
_TURN = 1200
#: The exit code of a run in which turns failed.
_SOME_ERRORS = 3


def main() -> int:
    """Measure, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base_url", help="an OpenAI-compatible server, such as http://127.0.0.1:8089/v1")
    parser.add_argument("model", help="the name of its model")
    parser.add_argument("--strategy", action="append", choices=["json", "native"], help="default: both")
    parser.add_argument("--skills", choices=list(SETS), default="held-out")
    parser.add_argument("--limit", type=int, default=20, help="episodes, evenly from all skills")
    parser.add_argument("--write", action="store_true", help="store the result")
    options = parser.parse_args()
    machine = report.machine(model=options.model)
    shares = {
        strategy: measure(options.base_url, options.model, strategy, options.skills, options.limit)
        for strategy in options.strategy or ["json", "native"]
    }
    print(json.dumps(shares, indent=1, ensure_ascii=False))
    if options.write:
        _write(machine, options.skills, shares)
    return 0


def measure(base_url: str, model: str, strategy: str, skills: str, limit: int) -> dict[str, Any]:
    """Return the share of episodes that end right, and for each other one the step that went wrong."""
    with tempfile.TemporaryDirectory(prefix="small-model-") as folder:
        home = Path(folder)
        write_skills(SETS[skills], home / "skills")
        chosen = _spread(episodes(SETS[skills], home / "skills"), limit)
        (home / "agent.yaml").write_text(_agent(base_url, model, strategy), "utf-8")
        events = [json.dumps({"id": str(one.number), **one.event}) for one in chosen]
        (home / "events.jsonl").write_text("\n".join(events) + "\n", "utf-8")
        began = time.monotonic()
        by_id = {str(episode.number): episode for episode in chosen}
        records = {}
        for record in _records(home):
            records[record["key"]] = record
            print(strategy, json.dumps(_judged(by_id[record["key"]], record)), file=sys.stderr, flush=True)
        seconds = time.monotonic() - began
    found = [_judged(episode, records.get(id_, {})) for id_, episode in by_id.items()]
    wrong = [one for one in found if one["step"] != "right"]
    tokens = sum(int(record.get("usage", {}).get("input_tokens", 0)) for record in records.values())
    return {
        "episodes": len(chosen),
        "right": len(chosen) - len(wrong),
        "wrong_at": dict(Counter(one["step"] for one in wrong)),
        "seconds_per_episode": round(seconds / len(chosen), 1),
        "input_tokens_per_episode": round(tokens / len(chosen)),
        "wrong": wrong,
    }


def _spread(all_: Sequence[Episode], limit: int) -> list[Episode]:
    """Return ``limit`` episodes, a question of each skill before the next question of one."""
    ranks: Counter[str] = Counter()
    ranked = []
    for episode in all_:
        ranked.append((ranks[episode.skill.name], episode.number, episode))
        ranks[episode.skill.name] += 1
    return [episode for *_, episode in sorted(ranked, key=lambda one: one[:2])[:limit]]


def _agent(base_url: str, model: str, strategy: str) -> str:
    setup = {
        "clazz": "openai-compatible.setup",
        "base_url": base_url,
        "model": model,
        "strategy": strategy,
        "temperature": 0,
        "max_tokens": 300,
    }
    # JSON is YAML.
    return json.dumps({"name": "desk", "instructions": _INSTRUCTIONS, "chat_model_setups": {"small": setup}})


def _records(home: Path) -> Iterator[dict[str, Any]]:
    """Run the events, and return the record of each turn when it ends."""
    options = {
        # One at a time: a server with one slot keeps the prompt of one conversation.
        "skills.worker.max-in-flight": "1",
        "skills.model.timeout": f"{_TURN} s",
        "skills.turn.timeout": f"{_TURN} s",
    }
    command = [sys.executable, "-m", "flink_skills.cli", "run", str(home / "agent.yaml")]
    command += ["--input", str(home / "events.jsonl"), "--key", "id", "--skills", str(home / "skills"), "--local"]
    command += [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
    with (
        (home / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        yield from (json.loads(line) for line in process.stdout if line.startswith("{"))
    if process.returncode not in (0, _SOME_ERRORS):
        raise SystemExit(f"the run failed:\n{(home / 'log').read_text()[-4000:]}")


def _judged(episode: Episode, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the step at which an episode went wrong, or ``right``, and what the model did."""
    output = str(record.get("output") or "")
    calls = record.get("tool_calls") or []
    done = [(call["name"], call.get("arguments") or {}) for call in calls if not call.get("error")]
    loaded = [str(of.get("name")) for name, of in done if name == "load_skill"]
    commands = [str(of.get("command")) for name, of in done if name == "execute_shell_command"]
    read = any(name == "load_skill_resource" for name, _ in done) or any(
        episode.skill.reference in command
        for command in commands  # a skill without one has nothing to read
    )
    words = [set(command.replace("=", " ").split()) for command in commands]
    ran = any(set(episode.arguments) <= of for of in words)
    if episode.answer in output.replace(",", ""):
        step = "right"
    elif episode.skill.name not in loaded:
        step = "load"
    elif ran:
        step = "answer"
    elif not read:
        step = "read"
    else:
        step = "run"
    return {
        "step": step,
        "question": episode.question,
        "expected": f"{' '.join(episode.arguments)} -> {episode.answer}",
        "calls": [f"{call['name']} {json.dumps(call.get('arguments'))}"[:300] for call in calls],
        "output": output[:300],
        "error": record.get("error"),
    }


def _write(machine: Mapping[str, Any], skills: str, shares: Mapping[str, Mapping[str, Any]]) -> None:
    path = report.RESULTS / "small_model.json"
    stored = json.loads(path.read_text("utf-8")) if path.exists() else {"suite": "small_model", "results": {}}
    stored["machine"] = dict(machine)
    stored["results"].setdefault(skills, {}).update(shares)
    path.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
