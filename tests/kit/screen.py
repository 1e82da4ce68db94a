"""Terminal screen: what a person sees after the bytes that a program wrote to a terminal."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"\x1b\[(?P<arguments>[0-9;?]*)(?P<kind>[A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|(?P<char>.)", re.DOTALL
)


def screen_lines(written: bytes, width: int = 120) -> list[str]:
    """Return the lines on a terminal and above it, without colors and spaces at the end.

    It knows the sequences that progress bars and spinners use.

    >>> screen_lines(b"12 %\\r\\x1b[2Kdone\\r\\nnext")
    ['done', 'next']
    """
    rows: list[list[str]] = [[]]
    row = column = 0
    for token in _TOKEN.finditer(written.decode(errors="replace")):
        count = int(re.sub(r"\D", "", token["arguments"] or "") or 0)
        char = token["char"]
        if token["kind"] in ("A", "F"):
            row = max(0, row - max(1, count))
            column = 0 if token["kind"] == "F" else column
        elif token["kind"] == "B":
            row += max(1, count)
        elif token["kind"] == "J":
            del rows[row + 1 :], rows[row][column:]
        elif token["kind"] == "K":
            rows[row][0 if count == 2 else column :] = []
        elif char == "\r":
            column = 0
        elif char == "\n":
            row += 1
        elif char is not None and char.isprintable():
            if column == width:
                row, column = row + 1, 0
            rows += [[] for _ in range(row + 1 - len(rows))]
            rows[row] += [" "] * (column + 1 - len(rows[row]))
            rows[row][column] = char
            column += 1
        rows += [[] for _ in range(row + 1 - len(rows))]
    return ["".join(cells).rstrip() for cells in rows]
