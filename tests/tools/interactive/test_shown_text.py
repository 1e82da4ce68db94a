from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from flink_skills.tools.commands import HIDDEN, HiddenValues
from flink_skills.tools.runs import ShownText
from flink_skills.tools.runs.process_output import START, OutputRing, Position

SECRET = "t0k3n-ABCDEF"


def _hidden() -> HiddenValues:
    hidden = HiddenValues()
    hidden.add("skills.env.report.TOKEN", SECRET)
    hidden.add("skills.env.report.KEY", "tt\u00fctt")
    return hidden


def _shown(data: bytes, cuts: list[int], hidden: HiddenValues) -> list[str]:
    text = ShownText(hidden)
    places = [0, *sorted({min(cut, len(data)) for cut in cuts}), len(data)]
    return [text.add(data[begin:end]) for begin, end in pairwise(places)] + [text.end()]


@given(
    st.lists(
        st.sampled_from([SECRET, "t0k", "t0k3n", "tt\u00fctt", "tt", "ab", "\u20ac", "\r\n", "\x1b[1m", "\n"]),
        max_size=12,
    ),
    st.lists(st.integers(0, 100), max_size=20),
)
def test_no_cut_shows_a_value_or_spoils_the_text(parts: list[str], cuts: list[int]) -> None:
    data = "".join(parts).encode()
    pieces = _shown(data, cuts, _hidden())
    shown = "".join(pieces)
    assert SECRET not in shown
    assert "tt\u00fctt" not in shown
    assert SECRET[2:] not in shown, "of a value no more than two bytes are told"
    assert "\x1b" not in shown
    assert "\ufffd" not in shown


@given(st.text(alphabet="ab\u20ac\U0001f600 \n", max_size=60), st.lists(st.integers(0, 200), max_size=20))
def test_what_holds_nothing_of_it_comes_as_it_is(text: str, cuts: list[int]) -> None:
    assert "".join(_shown(text.encode(), cuts, _hidden())) == text


def test_sign_by_sign_a_value_is_hidden() -> None:
    data = f"token={SECRET};".encode()
    shown = "".join(_shown(data, list(range(len(data))), _hidden()))
    assert shown == f"token={SECRET[:2]}{HIDDEN};"


def test_a_prompt_is_shown_at_once_and_a_begun_value_is_not() -> None:
    text = ShownText(_hidden())
    assert text.add(b"Name: ") == "Name: "
    assert text.add(b"t0k3") == ""
    assert text.add(b"yo ") == "t0k3yo "
    assert text.add(b"t0k3n") == ""
    assert text.end() == HIDDEN


def test_what_terminals_are_told_is_left_out() -> None:
    text = ShownText(HiddenValues())
    pieces = [
        b"\x1b]0;ti",
        b"tle\x07\x1b[1;3",
        b"1mred\x1b[0m\x07 50%\r",
        b"60%\r",
        b"\n\x1b(B\x1b7x\x08\x00\x1b[",
        b"K",
    ]
    assert "".join(text.add(piece) for piece in pieces) + text.end() == "red 50%\n60%\nx"


def test_a_lone_escape_does_not_hold_output_back_for_ever() -> None:
    text = ShownText(HiddenValues())
    assert text.add(b"\x1b]" + b"a" * 2_000) == "]" + "a" * 2_000


def test_broken_utf_8_is_replaced() -> None:
    text = ShownText(HiddenValues())
    assert text.add(b"\xff\xe2\x82") == "\ufffd"
    assert text.add(b"\xac") == "\u20ac"
    assert text.add(b"\xe2") + text.end() == "\ufffd"


KEY = "-----BEGIN KEY-----\nMIIEvAIBADANBgkqhkiG9w0B\nSHORTTAIL==\n-----END KEY-----\n"


@given(st.lists(st.integers(0, 120), max_size=8), st.sampled_from(["\n", "\r\n", "\r\r\n"]))
def test_a_value_of_several_lines_is_hidden_on_a_terminal(cuts: list[int], line_end: str) -> None:
    hidden = HiddenValues()
    hidden.add("skills.env.report.KEY", KEY)
    shown = "".join(_shown(f"it is {KEY}.".replace("\n", line_end).encode(), cuts, hidden))
    for line in KEY.splitlines():
        assert line not in shown
    assert shown.startswith("it is ")
    assert shown.endswith(".")


@given(
    st.lists(
        st.sampled_from(["\x1b[1m", "\x1b[m\x1b[K", "\x1b]0;title\x07", "\x07"]), min_size=len(SECRET), max_size=20
    ),
    st.lists(st.integers(0, len(SECRET)), max_size=4),
    st.lists(st.integers(0, 200), max_size=30),
)
def test_a_value_that_colours_split_is_hidden(marks: list[str], at: list[int], cuts: list[int]) -> None:
    """As ``grep --color`` prints it, however it comes in pieces."""
    value = "".join(sign + (marks[place] if place in at else "") for place, sign in enumerate(SECRET))
    shown = "".join(_shown(f"key={value}; \x1b[Kand {value}\n".encode(), cuts, _hidden()))
    assert SECRET[2:] not in shown
    assert "3n-A" not in shown, "nor a part of it"
    assert shown.startswith("key=")
    assert shown.endswith("\n")
    assert "\x1b" not in shown


def test_a_prompt_in_colours_is_shown_at_once() -> None:
    text = ShownText(_hidden())
    assert text.add(b"\x1b[1mName\x1b[0m: ") == "Name: "
    assert text.add(b"\x1b[1mt0k3\x1b[0") == ""
    assert text.add(b"myo ") == "t0k3yo "
    assert text.add(b"\x1b[1mt0k3\x1b[0mn-AB") == ""
    assert text.end() == HIDDEN


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
