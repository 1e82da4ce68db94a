"""Files of a job for a new skill, as ``flink-skills new --with job`` writes them."""

from __future__ import annotations

import json
from string import Template

__all__ = ["job_files"]

_JOB = Template("""\
# Runs an agent with the skill $name in a Flink job: flink-skills run job.yaml
name: $name
flink:
  execution.checkpointing.interval: 10 s
skills:
  paths: [$path]
agent:
  name: $name
  instructions: Handle each event with the skill that fits.
  model: offline  # For a real model: openai:NAME, with the key in OPENAI_API_KEY.
# Any connector of Flink SQL, for example kafka.
tables: |
  CREATE TABLE events (id STRING, text STRING)
  WITH ('connector' = 'filesystem', 'path' = '$${job:dir}/events.jsonl', 'format' = 'json');
  CREATE TABLE answers (id STRING, answer STRING)
  WITH ('connector' = 'filesystem', 'path' = '$${job:dir}/answers', 'format' = 'json');
  CREATE TABLE failures (id STRING, error STRING, event STRING)
  WITH ('connector' = 'filesystem', 'path' = '$${job:dir}/failures', 'format' = 'json');
input: {table: events, key: id}
output: {table: answers}
errors: {table: failures}
""")


def job_files(name: str, path: str) -> dict[str, str]:
    """Return the content of each file by its name.

    Args:
        name: Name of the skill, the agent and the job.
        path: Directory of the skill, absolute or relative to the job file.
    """
    event = {"id": "1", "text": f"something about {name.replace('-', ' ')}"}
    return {
        "job.yaml": _JOB.substitute(name=name, path=json.dumps(path, ensure_ascii=False)),
        "events.jsonl": f"{json.dumps(event)}\n",
    }
