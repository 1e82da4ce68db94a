"""The agent of the demo: it triages one incident of a Flink job with the skills it is given."""

from __future__ import annotations

from flink_skills import Agent, prompt


class LogTriageAgent(Agent):
    """Reads an incident, picks the skill that fits, runs its script and answers with the script's finding."""

    @prompt
    @staticmethod
    def instructions() -> str:
        return (
            "You are on call for Apache Flink jobs. Each message is one incident: a JSON object with the job's name "
            "and lines of its log. Load the one skill whose description fits what went wrong, follow its "
            "instructions with the whole incident as standard input, and answer with the JSON object that its "
            "script prints, and nothing else. If no skill fits, say so in one sentence."
        )
