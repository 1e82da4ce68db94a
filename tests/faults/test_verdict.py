"""The verdict itself: each break of a promise is seen, and each allowed repeat has its reason."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.faults.chaos import PAUSE, Kill
from tests.faults.ledger import Attempt, steps
from tests.faults.people import unreported, wrong_questions
from tests.faults.restores import Restore, restores
from tests.faults.topics import Row, orders
from tests.faults.verdict import NOT_IN_CHECKPOINT, ON_THE_WAY, OPEN, Verdict, judge

SENT = [order for order, _ in orders("r1", 6, 1)]


def rows() -> list[Row]:
    """What a run without faults commits."""
    found = []
    for number, order in enumerate(SENT, 1):
        answer = f"{order} is in stock" if "command" in steps(order) else f"reserved {order}"
        value = {"id": order, "customer": "r1-c0", "turn": number, "number": number, "answer": answer}
        found.append(Row(0, number, value))
    return found


def attempts() -> list[Attempt]:
    """What a run without faults asks: a step in 10 s."""
    moments = iter(range(0, 10_000, 10))
    return [
        Attempt(order, step, at := next(moments), at + 2.0, "" if step.startswith("model") else f"{order} {step}")
        for order in SENT
        for step in steps(order)
    ]


def verdict(
    rows: list[Row], attempts: list[Attempt], *cuts: Kill | Restore, sent: list[str] = SENT, upsert: bool = False
) -> Verdict:
    kills = [cut for cut in cuts if isinstance(cut, Kill)]
    found = [cut for cut in cuts if isinstance(cut, Restore)]
    return judge(sent, rows, sorted(attempts, key=lambda a: a.received), kills, found, upsert=upsert)


def test_a_run_without_faults_breaks_nothing() -> None:
    for upsert in (False, True):
        found = verdict(rows(), attempts(), upsert=upsert)
        assert found.broken == []
        assert (found.counts["turns"], found.counts["model calls"], found.counts["repeated calls"]) == (6, 14, 0)


def test_an_order_without_output_is_lost() -> None:
    assert f"order {SENT[-1]} has no output" in verdict(rows()[:-1], attempts()).broken


def test_in_a_run_that_was_given_up_nothing_is_lost_but_much_can_be_wrong() -> None:
    asked = [attempt for attempt in attempts() if attempt.order != SENT[-1]]
    found = judge(SENT, [*rows()[:-1], rows()[0]], asked, [], [], upsert=False, ended=False)
    assert (found.counts["not committed yet"], "lost" in found.counts) == (1, False)
    assert any(f"order {SENT[0]} has 2 outputs" in line for line in found.broken)
    assert not any(SENT[-1] in line for line in found.broken)


def test_an_order_with_two_outputs_is_twice_unless_it_is_an_upsert() -> None:
    again = [*rows(), *(replace(row, offset=row.offset + 10) for row in rows()[2:])]
    assert f"order {SENT[3]} has 2 outputs" in verdict(again, attempts()).broken
    assert verdict(again, attempts(), upsert=True).broken == []
    # The last row of the key is not that of its last order.
    assert verdict(again[:-1], attempts(), upsert=True).broken


def test_outputs_that_change_places_are_out_of_order() -> None:
    changed = rows()
    changed[1], changed[2] = replace(changed[1], offset=3), replace(changed[2], offset=2)
    for upsert in (False, True):
        assert verdict(changed, attempts(), upsert=upsert).counts["keys out of order"] == 1


def test_a_state_that_counted_an_order_twice_is_seen() -> None:
    wrong = [replace(row, value={**row.value, "number": row.value["number"] + (row.offset > 3)}) for row in rows()]
    assert len(verdict(wrong, attempts()).broken) == 3


def again(step: str, *, after: float, answered: bool = True) -> list[Attempt]:
    """The attempts, with one of the first order made again ``after`` seconds; all that follows is as before."""
    made = attempts()
    first = next(attempt for attempt in made if attempt.step == step)
    made.append(replace(first, received=first.received + after, answered=first.received + after + 0.5))
    if not answered:
        first.answered = None
    return made


def test_a_repeat_needs_a_reason() -> None:
    repeat = again("model 0", after=8)  # asked at 0, answered at 2, asked again at 8
    (broken,) = verdict(rows(), repeat).broken
    assert "step model 0 of order r1-c0-1 again" in broken
    assert "between: nothing" in broken
    # What was there when the checkpoint was triggered is in it.
    repeat = again("model 0", after=28)  # the next step was asked for at 10
    assert verdict(rows(), repeat, Kill(15, "TaskManager", "0"), Restore(16, 1, 14)).broken
    found = verdict(rows(), repeat, Kill(15, "TaskManager", "0"), Restore(16, 1, 5))
    assert (found.broken, found.repeats) == ([], {("model", NOT_IN_CHECKPOINT): 1})
    # A worker alone takes nothing with it but what was on its way.
    assert verdict(rows(), repeat, Kill(15, "worker", "7")).broken
    assert verdict(rows(), repeat, Kill(2.5, "worker", "7")).repeats == {("model", ON_THE_WAY): 1}


def test_a_call_that_was_open_may_be_made_again_after_a_kill_and_not_without_one() -> None:
    repeat = again("model 0", after=8, answered=False)
    assert verdict(rows(), repeat).broken
    assert verdict(rows(), repeat, Kill(1, "worker", "7")).repeats == {("model", OPEN): 1}


def test_a_tool_has_ended_when_the_next_request_comes() -> None:
    # Made at 10; the next request came at 20.
    assert verdict(rows(), again("reserve", after=5), Kill(12, "worker", "7")).repeats == {("reserve", OPEN): 1}
    assert verdict(rows(), again("reserve", after=15), Kill(24, "worker", "7")).broken
    assert verdict(rows(), again("reserve", after=15), Kill(20.5, "worker", "7")).repeats == {
        ("reserve", ON_THE_WAY): 1
    }


def test_an_answer_waits_in_a_stopped_worker_until_it_continues_or_ends() -> None:
    stopped = Kill(2.5, PAUSE, "7")
    repeated = again("model 0", after=40)
    assert verdict(rows(), repeated, stopped, Kill(30, "worker", "7")).repeats == {("model", ON_THE_WAY): 1}
    assert verdict(rows(), repeated, stopped).broken != []
    assert verdict(rows(), repeated, Kill(30, "worker", "7")).broken != []


def test_a_retry_with_another_call_id_is_seen() -> None:
    made = again("reserve", after=5)
    made[-1].call_id = "other"
    assert any("had call ids" in line for line in verdict(rows(), made, Kill(12, "worker", "7")).broken)


def test_a_restore_needs_the_death_of_a_process_that_the_job_runs_in() -> None:
    restore = Restore(100, 1, 95, "java.io.IOException: taskmanager-7 is gone", failed=90)
    found = verdict(rows(), attempts(), Kill(88, "TaskManager", "0", back=103), restore)
    assert found.broken == []
    assert (found.counts["restores from a checkpoint"], found.counts["restores without a kill"]) == (1, 0)
    assert found.causes == {"java.io.IOException: taskmanager-# is gone": 1}
    assert "a TaskManager killed, until the job ran again: 15.0 s median, 15.0 s at worst, of 1" in str(found)
    # Nothing was killed, something long before, or after it; a worker's death is no reason.
    for kill in ([], [Kill(10, "JobManager", "")], [Kill(95, "TaskManager", "0")], [Kill(88, "worker", "7")]):
        found = verdict(rows(), attempts(), *kill, restore)
        (broken,) = found.broken
        assert "taskmanager-7 is gone" in broken
        assert found.counts["restores without a kill"] == 1


def test_a_fault_of_the_operator_is_never_excused() -> None:
    restore = Restore(100, 1, 95, "org.flinkskills.bridge.AgentWorkerException: it died", failed=90)
    assert verdict(rows(), attempts(), Kill(88, "TaskManager", "0"), restore).broken


def test_workers_that_were_killed_while_they_started_fail_the_job() -> None:
    cause = (
        "org.flinkskills.bridge.AgentWorkerException: The agent worker process exited 3 times in a row before it was "
    )
    restore = Restore(100, 1, 95, cause + "ready: exit code 137 (signal 9).", failed=90)
    kills = [Kill(at, "worker", "7") for at in (86, 87, 88)]
    assert verdict(rows(), attempts(), *kills, restore).broken == []
    # Fewer than it speaks of: something else ended one of them. So did another exit code.
    assert verdict(rows(), attempts(), *kills[1:], restore).broken
    other = Restore(100, 1, 95, cause + "ready: exit code 1.", failed=90)
    assert verdict(rows(), attempts(), *kills, other).broken


def test_the_first_starts_need_no_reason() -> None:
    begun, rescaled = Restore(1, 0, 0.0, planned=True), Restore(50, 7, 49, planned=True)
    found = verdict(rows(), attempts(), begun, rescaled)
    assert (found.broken, found.causes) == ([], {})


def test_verdicts_add_up() -> None:
    total = Verdict()
    for _ in range(2):
        total.add(verdict(rows()[:-1], attempts(), Kill(88, "TaskManager", "0", back=98)))
    assert (total.counts["turns"], total.counts["lost"], len(total.broken)) == (12, 2, 2)
    assert total.outages == {"TaskManager": [10, 10]}


def test_the_log_says_what_had_failed_before_a_restore() -> None:
    job, later = "a" * 32, "b" * 32
    stamp = "2026-02-03 10:00:0"
    log = f"""\
{stamp}0,000 INFO  x [] - No checkpoint found during restore.
{stamp}1,000 INFO  x [] - Triggering checkpoint 1 (type=C) @ 1770112801000 for job {job}.
{stamp}2,000 INFO  x [] - agent orders (1/4) (c_0_0) switched from RUNNING to FAILED on taskmanager-1 @ localhost.
java.lang.RuntimeException: all is lost
	at a.B.c(B.java:1)
Caused by: java.io.IOException: Connection reset
	... 4 more
{stamp}2,500 INFO  x [] - agent orders (2/4) (c_1_0) switched from CANCELING to FAILED on taskmanager-0 @ localhost.
another
{stamp}3,000 INFO  x [] - Restoring job {job} from Checkpoint 1 @ 1770112801000 for {job} located at file:/x.
{stamp}4,000 INFO  x [] - Triggering stop-with-savepoint 2 (type=S) @ 1770112804000 for job {job}.
{stamp}5,000 INFO  x [] - Restoring job {later} from Savepoint 2 @ 0 for {later} located at file:/x.
{stamp}6,000 INFO  x [] - Restoring job {later} from Savepoint 2 @ 0 for {later} located at file:/x.
"""
    first, second, third, fourth = restores(log, {job, later})
    assert [found.planned for found in (first, second, third, fourth)] == [True, False, True, False]
    assert second.cause == "java.io.IOException: Connection reset"
    assert second.at - second.failed == 1
    assert (third.cause, fourth.cause) == ("", "")


def test_a_restart_from_nothing_is_one_only_before_the_first_checkpoint() -> None:
    job, other = "a" * 32, "b" * 32
    stamp = "2026-02-03 10:00:0"
    log = f"""\
{stamp}0,000 INFO  x [] - No checkpoint found during restore.
{stamp}1,000 INFO  x [] - Triggering checkpoint 1 (type=C) @ 1770112801000 for job {job}.
{stamp}1,500 INFO  x [] - Completed checkpoint 1 for job {job} (1 bytes, checkpointDuration=9 ms).
{stamp}2,000 INFO  x [] - Triggering checkpoint 9 (type=C) @ 1770112802000 for job {other}.
{stamp}3,000 INFO  x [] - No checkpoint found during restore.
{stamp}4,000 INFO  x [] - Restoring job {job} from Checkpoint 1 @ 1770112801000 for {job} located at file:/x.
"""
    found = restores(log, {job})
    assert [(restore.number, restore.triggered) for restore in found] == [(0, 0.0), (1, 1770112801.0)]
    assert found[1].at - found[0].at == 4


def questions(*orders: str) -> list[Row]:
    """Return the records of the questions of these orders."""
    found = []
    for order in orders:
        for kind in ("approval", "wait"):
            data = json.dumps({"order": order})
            asked = {"arguments": data} if kind == "approval" else {"payload": data}
            for status in ("open", "answered"):
                value = {"wait_id": f"{order}/{kind}", "kind": kind, "status": status, "key": "c0", **asked}
                found.append(Row(0, len(found), value))
    return found


def test_each_question_is_asked_and_answered_once() -> None:
    assert wrong_questions(SENT, questions(*SENT)) == []
    assert wrong_questions(SENT[:1], questions(*SENT[:2])) == [
        f"question {SENT[1]}/{kind} is about order {SENT[1]}, an unknown one" for kind in ("approval", "wait")
    ]
    assert f"order {SENT[1]} has the questions []" in wrong_questions(SENT[:2], questions(SENT[0]))
    twice = [*questions(SENT[0]), questions(SENT[0])[0]]
    assert f"question {SENT[0]}/approval has the records ['open', 'answered', 'open']" in wrong_questions(
        SENT[:1], twice
    )
    assert wrong_questions(SENT[:1], questions(SENT[0])[:-1]) == [f"question {SENT[0]}/wait has the records ['open']"]


def test_each_answer_that_is_not_used_has_an_error_record() -> None:
    failures = [
        Row(0, 0, {"id": None, "error": "AnswerError: the answer to wait 'w1' is not used. It has an answer already."}),
        Row(0, 1, {"id": SENT[0], "error": "TurnError: the turn failed because of w2"}),
    ]
    assert unreported({"w1": "doubled"}, failures) == []
    assert unreported({"w2": "late"}, failures) == ["the late answer to wait w2 has no error record"]
