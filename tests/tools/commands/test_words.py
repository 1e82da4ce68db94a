"""Command lines without a shell, compared with what a shell makes of them."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flink_skills.errors import ExecutionError
from flink_skills.tools.commands import split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("   \n ", []),
        ("ls", ["ls"]),
        ("ls\n", ["ls"]),
        ("ls  -l\t'a  b'", ["ls", "-l", "a  b"]),
        ("a''b \"\" ''", ["ab", "", ""]),
        ("grep ';|&<>$`()' \"it's; a | & <> ()\"", ["grep", ";|&<>$`()", "it's; a | & <> ()"]),
        ("find . -name *.py -exec cat {} \\;", ["find", ".", "-name", "*.py", "-exec", "cat", "{}", ";"]),
        ('echo "a\\"b\\\\c\\$d\\e" \\"x\\$y', ["echo", 'a"b\\c$d\\e', '"x$y']),
        ("a \\\n  b", ["a", "b"]),
        ('a "b\\\nc"', ["a", "bc"]),
        ("a 'b\\\nc\nd'", ["a", "b\\\nc\nd"]),
        ("ls # all of them", ["ls"]),
        ("ls a#b '#' \\#", ["ls", "a#b", "#", "#"]),
        ("# nothing", []),
        ('grep "x$" "$" "50$ "', ["grep", "x$", "$", "50$ "]),
        ("héllo 'wörld'", ["héllo", "wörld"]),
        ("a\\", ["a\\"]),
        ("a\\ \n", ["a "]),
        ("a\\\n", ["a"]),
        ("~ ~/x {a,b} a=b ! [x] ?", ["~", "~/x", "{a,b}", "a=b", "!", "[x]", "?"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert split_words(text, {}) == words


@pytest.mark.row("F19")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a\nb", "a line break cannot be used. Make one call for each command"),
        ("a\rb", "a line break"),
        ("# first\nls", "a line break"),
        ("a; b", "; cannot be used"),
        ("cd x && b", "& cannot be used. Make one call for each command; a folder to run in goes into cwd"),
        ("a &", "& cannot"),
        ("a | b", "the argument stdin is its input"),
        ("a < b", "the argument stdin"),
        ("a>b", "comes back in the result"),
        ("a 2>&1", "> cannot"),
        ("a <<EOF\nEOF", "< cannot"),
        ("(a)", "( cannot"),
        ("a)", ") cannot"),
        ("a `b`", "Run the inner command first"),
        ('a "`b`"', "Run the inner command first"),
        ("a $(b)", "nothing that begins with $ is replaced"),
        ('a "$(b)"', "nothing that begins with $ is replaced"),
        ("cat $WORK_DIR/x", "WORK_DIR is /w/work. For the sign"),
        ('cat "${WORK_DIR}/x"', "WORK_DIR is /w/work."),
        ("cat $API_TOKEN", "Write the value itself. For the sign"),
        ("a $'b'", "nothing that begins with $"),
        ("a 'b", "without its second one"),
        ('a "b', "without its second one"),
        ('a "b\\"', "without its second one"),
    ],
)
def test_what_only_a_shell_could_do_is_refused(text: str, says: str) -> None:
    with pytest.raises(ExecutionError) as caught:
        split_words(text, {"WORK_DIR": "/w/work"})
    assert says in str(caught.value)


# What a shell would still expand is left out of the signs: patterns, ~, braces, assignments, history.
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(alphabet="ab \t'\"\\#-./,:%@+é\n$;|", max_size=14), min_size=1, max_size=6).map("".join))
def test_accepted_lines_mean_the_same_as_in_a_shell(text: str) -> None:
    try:
        words = split_words(text, {})
    except ExecutionError:
        return
    # The words are arguments of a function, so that none is taken for a program.
    command = 'show() { for word do printf "%s\\0" "$word"; done; }\nshow ' + text.lstrip(" \t\r\n")
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, timeout=20, check=False)
    assert done.returncode == 0, (text, done.stderr)
    assert [part.decode() for part in done.stdout.split(b"\0")[:-1]] == words
