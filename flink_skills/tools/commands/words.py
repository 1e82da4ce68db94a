"""A command line as the words that a shell would make of it, where there is no shell to run it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from flink_skills.tools.arguments import ArgumentError

__all__ = ["split_words"]

_BLANKS = " \t"
_ADVICE = {
    "\n": "Make one call for each command.",
    "\r": "Make one call for each command.",
    ";": "Make one call for each command.",
    "&": "Make one call for each command; a folder to run in goes into cwd.",
    "|": "Make one call for each program; the argument stdin is its input.",
    "<": "The text for its input goes into the argument stdin.",
    ">": "What it prints comes back in the result; to write a file, use an option of the program.",
    "(": "Make one call for each command.",
    ")": "Make one call for each command.",
    "`": "Run the inner command first and write what it printed.",
}
_AROUND = " \t\r\n"
# A run of characters that mean nothing to a shell.
_PLAIN = re.compile(r"[^ \t\r\n;&|<>()`$'\"\\#]+")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_EXPANDED_IN_QUOTES = re.compile(r"\$[\w{(@*#?$!-]")


def split_words(text: str, shown: Mapping[str, str]) -> list[str]:
    """The words of ``text``, with quotes, backslashes and comments as in a POSIX shell and nothing expanded.

    ``shown`` are variables whose values the model may be told. Raises :class:`ArgumentError`, which says what to
    write instead, for what only a shell could do: a character outside quotes that means something to it, or a
    variable or a command to be replaced inside of double quotes.

    >>> split_words("grep -c 'a b' \\"x y\\".txt", {})
    ['grep', '-c', 'a b', 'x y.txt']
    """
    text = _stripped(text)
    words: list[str] = []
    word: list[str] | None = None
    at = 0
    while at < len(text):
        sign = text[at]
        if sign in _BLANKS:
            if word is not None:
                words.append("".join(word))
            word = None
            at += 1
        elif sign == "#" and word is None:
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif sign == "$":
            raise ArgumentError(_no_variables(text, at, shown))
        elif sign in _ADVICE:
            raise ArgumentError(_no_shell(sign))
        elif sign in "'\"":
            part, at = (_single if sign == "'" else _double)(text, at, shown)
            word = word or []
            word.append(part)
        elif sign == "\\":
            # At the very end a shell keeps it; before a line break it joins the lines.
            if text[at + 1 : at + 2] != "\n":
                word = word or []
                word.append(text[at + 1 : at + 2] or sign)
            at += 2
        else:
            plain = _PLAIN.match(text, at)
            part = plain.group() if plain else sign
            word = word or []
            word.append(part)
            at += len(part)
    return words if word is None else [*words, "".join(word)]


def _stripped(text: str) -> str:
    """``text`` without the blanks around it, but with the one that a backslash at its end belongs to."""
    text = text.lstrip(_AROUND)
    bare = text.rstrip(_AROUND)
    return text[: len(bare) + 1] if bare.endswith("\\") else bare


def _single(text: str, at: int, shown: Mapping[str, str]) -> tuple[str, int]:
    end = text.find("'", at + 1)
    if end < 0:
        raise ArgumentError("The command has a ' without its second one: close it, or write \\' for the sign itself.")
    return text[at + 1 : end], end + 1


def _double(text: str, at: int, shown: Mapping[str, str]) -> tuple[str, int]:
    part: list[str] = []
    at += 1
    while at < len(text):
        sign, after = text[at], text[at + 1 : at + 2]
        if sign == '"':
            return "".join(part), at + 1
        if sign == "`":
            raise ArgumentError(_no_shell(sign))
        if sign == "$" and _EXPANDED_IN_QUOTES.match(text, at):
            raise ArgumentError(_no_variables(text, at, shown))
        if sign == "\\" and after and after in '"\\$`\n':
            part.append("" if after == "\n" else after)
            at += 2
        else:
            part.append(sign)
            at += 1
    raise ArgumentError('The command has a " without its second one: close it, or write \\" for the sign itself.')


def _no_shell(sign: str) -> str:
    name = {"\n": "a line break", "\r": "a line break"}.get(sign, sign)
    return (
        f"There is no shell here: a command is one program with its arguments, so {name} cannot be used. "
        f"{_ADVICE[sign]} For the sign itself, put it in single quotes."
    )


def _no_variables(text: str, at: int, shown: Mapping[str, str]) -> str:
    found = _VARIABLE.match(text, at)
    name = (found[1] or found[2]) if found else ""
    value = f" {name} is {shown[name]}" if name in shown else ""
    return (
        "There is no shell here: nothing that begins with $ is replaced. Write the value itself."
        f"{value}{'.' if value else ''} For the sign itself, put it in single quotes."
    )
