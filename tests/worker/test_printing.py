"""Prints of user code in a worker are whole lines."""

from __future__ import annotations

import io
import threading

from flink_skills.worker import WholeLines


def test_lines_of_threads_do_not_mix() -> None:
    target = io.StringIO()
    stream = WholeLines(target)
    started = threading.Barrier(4)

    def work(name: str) -> None:
        started.wait(30)
        for number in range(200):
            print(name, number, "words", file=stream)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = target.getvalue().splitlines()
    assert sorted(lines) == sorted(f"{name} {number} words" for name in "abcd" for number in range(200))
    # And in the order of each thread.
    assert [line for line in lines if line.startswith("a")] == [f"a {number} words" for number in range(200)]


def test_a_line_without_an_end_is_written_at_the_end_or_when_it_is_long() -> None:
    target = io.StringIO()
    stream = WholeLines(target)
    print("a", end="", file=stream)
    print("b\nc", end="", file=stream, flush=True)
    assert target.getvalue() == "ab\n"
    stream.finish()
    assert target.getvalue() == "ab\nc\n"
    print("x" * 100_000, end="", file=stream)
    assert target.getvalue() == "ab\nc\n" + "x" * 100_000 + "\n"
