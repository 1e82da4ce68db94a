"""Examines the internals of tools.runs.process_output on purpose."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flink_skills.tools.runs.process_output import START, OutputRing, Position

_PRINTED = st.lists(st.text(alphabet="ab\n", max_size=30), max_size=30)


def test_an_open_line_is_given_and_goes_on() -> None:
    ring = OutputRing()
    ring.add("Name: ")
    first = ring.read(START)
    assert (first.text, first.begin.line, first.end.line, first.left) == ("Name: ", 0, 0, 0)
    ring.add("Ada\nhi")
    rest = ring.read(first.end)
    assert (rest.text, rest.begin.line, rest.end.line) == ("Ada\nhi", 0, 1)


def test_lines_beyond_the_limit_are_lost_and_counted() -> None:
    ring = OutputRing(most_lines=3)
    for number in range(10):
        ring.add(f"{number}\n" + "x" * 5_000 + "\n")
    piece = ring.read(START)
    assert piece.text.count("\n") == 3
    assert (piece.begin.line, piece.lost, piece.end.line) == (17, 17, 20)
    assert ring.read(piece.end).text == ""


def test_few_long_lines_do_not_take_all_memory() -> None:
    ring = OutputRing(most_chars=10_000)
    for _ in range(50):
        ring.add("y" * 1_000)
    piece = ring.read(START)
    assert piece.text == "y" * 10_000
    assert piece.end == Position(0, 50_000)


@given(_PRINTED, st.integers(1, 5), st.integers(1, 40))
def test_pieces_put_together_are_what_was_printed(printed: list[str], lines: int, chars: int) -> None:
    ring, place, read = OutputRing(), START, ""
    for text in printed:
        ring.add(text)
        piece = ring.read(place, lines=lines, chars=chars)
        assert piece.begin == place
        assert len(piece.text) <= chars
        assert piece.text.count("\n") <= lines
        assert piece.lost == 0
        place, read = piece.end, read + piece.text
    while ring.end != place:
        piece = ring.read(place, lines=lines, chars=chars)
        assert piece.text
        place, read = piece.end, read + piece.text
    assert read == "".join(printed)
    assert place.line == read.count("\n")


@given(_PRINTED, st.integers(1, 6))
def test_what_is_kept_is_the_end(printed: list[str], most: int) -> None:
    ring = OutputRing(most_lines=most)
    for text in printed:
        ring.add(text)
    whole = "".join(printed)
    piece = ring.read(START)
    assert whole.endswith(piece.text)
    assert piece.text.count("\n") == min(most, whole.count("\n"))
    assert ring.tail(START, 7) == whole[-7:] or len(whole) > 4_000


@given(_PRINTED)
def test_how_much_is_left_is_known(printed: list[str]) -> None:
    ring = OutputRing()
    for text in printed:
        ring.add(text)
    whole = "".join(printed)
    piece = ring.read(START, lines=1)
    rest = whole[len(piece.text) :]
    assert piece.left == len(rest.split("\n")) - (rest.endswith("\n") or not rest)
