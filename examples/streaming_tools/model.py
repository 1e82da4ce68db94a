"""Stands for the chat model: a server on loopback that streams by script, so the example needs no network."""

from __future__ import annotations

from flink_skills.testing import Call, Reply, Rule, ScriptedModelServer

REPORT = {
    "title": "Job orders",
    "sections": [
        {"heading": "What happened", "text": "Checkpoints time out since 10:02."},
        {"heading": "Why", "text": "One subtask is slow, and barriers wait for it."},
        {"heading": "What to do", "text": "Turn on unaligned checkpoints."},
    ],
}


def model_server() -> ScriptedModelServer:
    """The server, to be entered. The first stream of the report breaks off."""
    report = Reply("Here it is:", tool_calls=(Call("publish_report", REPORT),))
    cut = Reply("Here it is:", tool_calls=(Call("publish_report", REPORT),), break_after=20, piece_latency=0.01)
    return ScriptedModelServer(
        [
            Rule(Reply(tool_calls=(Call("job_state", {"job": "orders"}),)), last_role="user"),
            Rule(cut, tool_results=1, times=1),
            Rule(report, tool_results=1),
            Rule(Reply("The report is out.")),
        ]
    )
