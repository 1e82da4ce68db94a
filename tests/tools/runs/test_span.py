"""The time spans of commands. The module is private: the effect of an overlap is tested in test_outputs."""

from __future__ import annotations

import time
from pathlib import Path

from flink_skills.tools.runs.prepared_run import RunSpan


def test_the_time_of_a_command() -> None:
    one, elsewhere = RunSpan(Path("/ws_1")), RunSpan(Path("/ws_2"))
    one.start()
    elsewhere.start()
    assert one.alone and elsewhere.alone
    one.since = time.time_ns()
    other = RunSpan(Path("/ws_1"))
    other.start()
    other.end()
    assert not one.alone and not other.alone and elsewhere.alone
    one.end()
    one.end()
    assert one.covers(one.since) and one.covers(one.until)
    assert not one.covers(one.since - 1) and not one.covers(one.until + 1)
    after = RunSpan(Path("/ws_1"))
    assert after.alone
    after.end()
    # A span that is deleted without an end does not count for later ones.
    del elsewhere
    assert RunSpan(Path("/ws_2")).alone


def test_a_command_meets_only_what_starts_between_its_preparation_and_its_end() -> None:
    root = Path("/ws_3")
    refused, one = RunSpan(root), RunSpan(root)
    one.start()
    one.end()
    # The refusal may come after the end of the other command.
    refused.end()
    assert one.alone and not refused.alone
    late, whole = RunSpan(root), RunSpan(root)
    whole.start()
    whole.end()
    late.start()
    assert not late.alone, "files that the other command wrote during the preparation are as new"
    assert whole.alone
    late.end()
