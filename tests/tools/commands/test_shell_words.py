"""Command lines without a shell, and the programs that they may start."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flink_skills.errors import ConfigError, ExecutionError
from flink_skills.options import SkillConfig
from flink_skills.tools.commands import CommandPlace, CommandPolicy, HiddenValues, split_words


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


def program(path: Path, text: str = "#!/bin/sh\necho $0\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@dataclass
class Machine:
    """A machine with programs in ``bin`` and ``sbin``, and a workspace with the skills ``report`` and ``other``."""

    root: Path

    def __post_init__(self) -> None:
        for name in ("bin/git", "bin/tool", "sbin/tool", "skills/report/scripts/run.sh", "skills/other/scripts/run.sh"):
            program(self.root / name)
        (self.root / "bin" / "git-2").symlink_to("git")
        (self.root / "bin" / "git-latest").symlink_to(self.root / "bin" / "git-2")
        (self.root / "usr").symlink_to(".")
        (self.root / "work").mkdir()
        (self.root / "skills" / "report" / "work").symlink_to("../../work")

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def place(self, skill: str | None = "report", cwd: str = "") -> CommandPlace:
        writable = (str(self.root / "work"), str(self.root / "skills/report/.venv"))
        folder = self.root / (cwd or (f"skills/{skill}" if skill else "work"))
        env = {"PATH": f"{self.root}/bin:{self.root}/sbin", "WORK_DIR": f"{self.root}/work", "API_TOKEN": "t0k3n"}
        return CommandPlace(skill, folder, env, lambda name: self.root / "skills" / name, writable)

    def starts(self, policy: CommandPolicy, command: str | Sequence[str], place: CommandPlace | None = None) -> str:
        """The program that starts, relative to the machine's root."""
        found = Path(policy.resolve(command, place or self.place())[0])
        return str(found.relative_to(self.root))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(Path(os.path.realpath(tmp_path)))


def refusal(policy: CommandPolicy, command: str | Sequence[str], place: CommandPlace) -> str:
    with pytest.raises(ExecutionError) as caught:
        policy.resolve(command, place)
    return str(caught.value)


def test_without_lists_there_is_no_policy() -> None:
    assert not CommandPolicy.of(SkillConfig())
    assert CommandPolicy.of(SkillConfig({"skills.shell.denied-commands": "/bin/a"}))
    assert CommandPolicy.of(SkillConfig({"skills.shell.allowed-commands": "/bin/a;x=b"})).permitted == ("/bin/a", "x=b")


@pytest.mark.row("F19")
def test_a_program_by_name_and_by_path(machine: Machine) -> None:
    policy = CommandPolicy([str(machine / "bin/git")])
    assert policy.resolve("git log 'a b'", machine.place()) == (str(machine / "bin/git"), "log", "a b")
    assert policy.resolve(("git", "a b", "$X;"), machine.place()) == (str(machine / "bin/git"), "a b", "$X;")
    for command in (str(machine / "bin/git"), "../../bin/git", "../../usr/bin/git", str(machine / "usr/usr/bin/git")):
        assert machine.starts(policy, command) == "bin/git"


@pytest.mark.row("F19")
def test_the_same_name_elsewhere_is_another_program(machine: Machine) -> None:
    policy = CommandPolicy([str(machine / "bin/git")])
    program(machine / "work/git")
    program(machine / "bin/sub/git")
    for command in ("./git", "../work/git", str(machine / "bin/sub/git")):
        text = refusal(policy, command, machine.place(cwd="work"))
        assert text.startswith(f"This job does not permit {command!r}")
        assert f"Programs for skill report: {machine / 'bin/git'}." in text
    # A folder that commands write may be first on the PATH: what they put there hides nothing.
    place = machine.place()
    place = replace(place, env={**place.env, "PATH": f"{machine / 'work'}:{place.env['PATH']}"})
    assert machine.starts(policy, "git", place) == "bin/git"


def test_links_are_followed_to_the_permitted_path_and_it_is_what_starts(machine: Machine) -> None:
    for entry in ("bin/git", "bin/git-2", "usr/bin/git-2"):
        started = entry.removeprefix("usr/")
        for command in ("git-latest", "git-2"):
            assert machine.starts(CommandPolicy([str(machine / entry)]), command) == started
    (machine / "work/mine").symlink_to(machine / "bin/git-2")
    assert machine.starts(CommandPolicy([str(machine / "bin/git")]), "work/mine") == "bin/git"


def test_one_name_of_a_program_with_many_permits_no_other(machine: Machine) -> None:
    # Such as busybox: what it does depends on the name that it is started by.
    for name in ("list", "fetch"):
        (machine / "bin" / name).symlink_to(program(machine / "bin/many").name)
    policy = CommandPolicy([str(machine / "bin/list")])
    assert machine.starts(policy, "list") == "bin/list"
    for command in ("fetch", "many", "many fetch"):
        refusal(policy, command, machine.place())
    (machine / "work/fetch").symlink_to(machine / "bin/list")
    assert machine.starts(policy, "work/fetch") == "bin/list"
    assert machine.starts(CommandPolicy([str(machine / "bin/many")]), "fetch") == "bin/many"


def test_a_link_to_itself_is_no_program(machine: Machine) -> None:
    (machine / "work/loop").symlink_to("loop")
    assert "no program" in refusal(CommandPolicy([str(machine / "work/loop")]), "work/loop", machine.place())


@pytest.mark.row("F19")
def test_files_of_a_skill(machine: Machine) -> None:
    policy = CommandPolicy(["report=scripts/run.sh", f"other={machine / 'bin/git'}"])
    for command in ("scripts/run.sh", "./scripts//run.sh", str(machine / "skills/report/scripts/run.sh")):
        assert machine.starts(policy, command) == "skills/report/scripts/run.sh"
    assert machine.starts(policy, "../skills/report/scripts/run.sh", machine.place(cwd="work")) == (
        "skills/report/scripts/run.sh"
    )
    assert machine.starts(policy, "git", machine.place("other")) == "bin/git"
    text = refusal(policy, "scripts/run.sh", machine.place("other"))
    assert f"Programs for skill other: {machine / 'bin/git'}." in text
    text = refusal(policy, "../report/scripts/run.sh", machine.place("other"))
    assert "Skill report may: load it again first." in text
    assert "Programs without a skill: none." in refusal(policy, "git", machine.place(None))


def test_what_commands_can_write_is_no_file_of_a_skill(machine: Machine) -> None:
    planted = program(machine / "work/run.sh")
    policy = CommandPolicy(["report=work/run.sh", "report=scripts/linked"])
    refusal(policy, "work/run.sh", machine.place())
    refusal(policy, str(planted), machine.place())
    (machine / "skills/report/scripts/linked").symlink_to(planted)
    refusal(policy, "scripts/linked", machine.place())
    program(machine / "skills/report/.venv/bin/tool")
    refusal(CommandPolicy(["report=.venv/bin/tool"]), ".venv/bin/tool", machine.place())


def test_a_skill_cannot_lend_its_name_to_a_program_of_the_machine(machine: Machine) -> None:
    (machine / "skills/report/scripts/git").symlink_to(machine / "bin/git")
    policy = CommandPolicy(["report=scripts/git"])
    for command in ("scripts/git", "git"):
        refusal(policy, command, machine.place())


@pytest.mark.row("F20")
def test_denied_wins(machine: Machine) -> None:
    git = str(machine / "bin/git")
    policy = CommandPolicy([git, str(machine / "bin/tool")], [git])
    assert machine.starts(policy, "tool") == "bin/tool"
    for command in ("git", "git-2", "git-latest", git, "../../usr/bin/git"):
        assert "does not permit" in refusal(policy, command, machine.place())


@pytest.mark.row("F20")
def test_what_is_denied_is_not_among_the_permitted(machine: Machine) -> None:
    git, tool = str(machine / "bin/git"), str(machine / "bin/tool")
    policy = CommandPolicy(
        [git, str(machine / "bin/git-2"), tool, "report=scripts/run.sh"], [git, "report=scripts/run.sh"]
    )
    assert refusal(policy, "git", machine.place()).endswith(f"Programs for skill report: {tool}.")
    assert refusal(policy, "", machine.place()).endswith(f"Programs for skill report: {tool}.")
    assert policy.permitted == (tool,)
    for_one = CommandPolicy([git, tool], [f"report={git}"])
    assert refusal(for_one, "git", machine.place()).endswith(f": {tool}.")
    assert refusal(for_one, "nothing", machine.place("other")).endswith(f": {git}, {tool}.")
    assert for_one.permitted == (git, tool)


@pytest.mark.row("F20")
def test_a_denied_file_is_denied_under_all_its_names(machine: Machine) -> None:
    (machine / "work/hard").hardlink_to(machine / "bin/git")
    policy = CommandPolicy(denied=[str(machine / "bin/git-latest")])
    for command in ("git", "git-2", "work/hard"):
        assert "Use another program." in refusal(policy, command, machine.place())
    assert machine.starts(policy, "tool") == "bin/tool"
    # A name stands for the first file on the PATH, also where that one is denied.
    only_first = CommandPolicy(denied=[str(machine / "bin/tool")])
    refusal(only_first, "tool", machine.place())
    assert machine.starts(only_first, "../../sbin/tool") == "sbin/tool"


def test_denied_for_one_skill(machine: Machine) -> None:
    policy = CommandPolicy(denied=[f"report={machine / 'bin/git'}", "report=scripts/run.sh"])
    refusal(policy, "git", machine.place())
    assert machine.starts(policy, "git", machine.place("other")) == "bin/git"
    assert machine.starts(policy, "scripts/run.sh", machine.place("other")) == "skills/other/scripts/run.sh"
    # A file of a skill is denied to all.
    refusal(policy, "../report/scripts/run.sh", machine.place("other"))
    refusal(policy, "../skills/report/scripts/run.sh", machine.place(None))


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("nothing", "There is no program 'nothing' on the PATH."),
        ("./nothing", "There is no program './nothing' (cwd is "),
        ("scripts", "There is no program 'scripts' on the PATH."),
        ("./scripts", "There is no program './scripts' (cwd"),
        ("./notes.txt", "'./notes.txt' is not executable"),
        ("cd work", "'cd' is a command of shells, and there is no shell here. Give the folder as cwd."),
        ("A=b git", "'A=b' is not a program: no shell sets variables here."),
        ("", "The command names no program."),
        ("'' a", "The command names no program."),
        ("git; ls", "There is no shell here"),
        ("git $WORK_DIR", "WORK_DIR is /"),
    ],
)
def test_refusals_help(machine: Machine, command: str, says: str) -> None:
    (machine / "skills/report/notes.txt").write_text("x")
    policy = CommandPolicy([str(machine / "bin/git")])
    assert says in refusal(policy, command, machine.place())


def test_a_refusal_shows_no_other_variable(machine: Machine) -> None:
    policy = CommandPolicy([str(machine / "bin/git")])
    assert "t0k3n" not in refusal(policy, "git $API_TOKEN", machine.place())


def test_many_entries_are_not_all_shown(machine: Machine) -> None:
    policy = CommandPolicy([f"/opt/bin/p{number}" for number in range(50)])
    text = refusal(policy, "git", machine.place())
    assert "/opt/bin/p19 and 30 more." in text and "p20" not in text


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("git", "'git' is not a path. Another file may have the same name, so write its path: "),
        ("scripts/run.sh", "'SKILL=scripts/run.sh' for a file of a skill"),
        ("=scripts/run.sh", "has no skill name before '='"),
        ("report=", "is not a valid path of a program"),
        ("/", "is not a valid path of a program"),
        ("/opt/tools/", "is not a valid path of a program"),
        ("report=../other/run.sh", "without '..'"),
        ("/opt/../bin/ls", "without '..'"),
    ],
)
def test_entries_that_are_no_paths_are_refused(entry: str, says: str) -> None:
    for option, lists in (("allowed", ([entry], [])), ("denied", ([], [entry]))):
        with pytest.raises(ConfigError) as caught:
            CommandPolicy(*lists)
        assert f"option skills.shell.{option}-commands: " in str(caught.value)
        assert says in str(caught.value)


def test_a_path_may_hold_an_equals_sign(machine: Machine) -> None:
    program(machine / "bin/a=b")
    assert machine.starts(CommandPolicy([str(machine / "bin/a=b")]), "a=b") == "bin/a=b"


def test_remarks_for_operators(machine: Machine) -> None:
    git = str(machine / "bin/git")
    assert CommandPolicy([git, "report=scripts/x"], ["/nowhere/x"]).remarks() == []
    (missing,) = CommandPolicy([git, "/nowhere/x"]).remarks()
    assert missing == "option skills.shell.allowed-commands: /nowhere/x is not an executable program on this machine"
    (open_end,) = CommandPolicy(denied=[git]).remarks()
    assert "skills.shell.denied-commands alone does not stop a program that another program starts" in open_end


def test_what_a_policy_cannot_do(machine: Machine) -> None:
    """A program that starts others starts them: the lists are about command lines, the sandbox is the boundary."""
    runner = program(machine / "bin/runner", f'#!/bin/sh\nexec {machine / "bin/git"} "$@"\n')
    policy = CommandPolicy([str(runner)], [str(machine / "bin/git")])
    refusal(policy, "git", machine.place())
    done = subprocess.run(policy.resolve("runner", machine.place()), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(machine / "bin/git")


def test_an_empty_list_permits_nothing_and_no_list_permits_all(machine: Machine) -> None:
    config = SkillConfig({"skills.shell.allowed-commands": []})
    none = CommandPolicy.of(config)
    assert none and none.permits_none
    with pytest.raises(ExecutionError, match=r"its option skills\.shell\.allowed-commands is empty"):
        machine.starts(none, "git")
    assert "no command can run" in none.remarks()[0]
    assert CommandPolicy.of(SkillConfig({"skills.shell.allowed-commands": ""})).permits_none
    everything = CommandPolicy.of(SkillConfig())
    assert not everything and not everything.permits_none


def test_nothing_to_hide_changes_nothing() -> None:
    hidden = HiddenValues()
    assert hidden.in_text("abcd") == "abcd"
    assert hidden.in_bytes(b"\xff\0abcd") == b"\xff\0abcd"


def test_values_are_hidden_in_text_and_bytes() -> None:
    hidden = HiddenValues()
    hidden.add("a", "s3cr.t+")
    hidden.add("b", "grün-geheim")
    assert hidden.in_text("x=s3cr.t+&y=grün-geheim s3crxt+") == "x=[hidden]&y=[hidden] s3crxt+"
    assert hidden.in_bytes(b"\xff" + "grün-geheim\0".encode() + b"s3cr.t+") == b"\xff[hidden]\0[hidden]"


def test_a_value_that_begins_another_one_leaves_no_rest() -> None:
    hidden = HiddenValues()
    hidden.add("a", "token")
    hidden.add("b", "token-and-more")
    assert hidden.in_text("token-and-more token") == "[hidden] [hidden]"


def test_lines_of_a_key_and_what_json_makes_of_it() -> None:
    key = "-----BEGIN KEY-----\nMIIEvAIBADANBgkqhkiG9w0B\n}\n-----END KEY-----\n"
    hidden = HiddenValues()
    hidden.add("key", key)
    assert hidden.in_text(key) == "[hidden]"
    assert hidden.in_text(key.strip() + "!") == "[hidden]!"
    assert hidden.in_text("second: MIIEvAIBADANBgkqhkiG9w0B\r\n}") == "second: [hidden]\r\n}"
    assert hidden.in_text(json.dumps({"key": key})) == '{"key": "[hidden]"}'
    hidden.add("quoted", 'pa"ss\\wörd')
    for ascii_only in (True, False):
        assert hidden.in_text(json.dumps('pa"ss\\wörd', ensure_ascii=ascii_only)) == '"[hidden]"'


def test_short_values_stay() -> None:
    hidden = HiddenValues()
    for value in ("", "a", "abc", "  a  "):
        hidden.add(value, value)
    hidden.add("blanks", "     ")
    assert hidden.in_text("abc a") == "abc a"


def test_the_latest_values_of_each_name() -> None:
    hidden = HiddenValues()
    hidden.add("other", "stays-hidden")
    for number in range(20):
        hidden.add("token", f"value-{number:02}")
        hidden.add("token", f"value-{number:02}")
    assert hidden.in_text("value-11 value-12 value-19 stays-hidden") == "value-11 [hidden] [hidden] [hidden]"


def test_a_value_that_was_cut_in_two_is_hidden_as_well() -> None:
    hidden = HiddenValues()
    hidden.add("skills.env.report.TOKEN", "t0k3n-of-the-report")
    gap = b"\n[... 9 bytes left out ...]\n"
    assert hidden.in_bytes(b"it is t0k3n-of" + gap + b"-report and more", gap) == (
        b"it is [hidden]" + gap + b"[hidden] and more"
    )
    assert hidden.in_bytes(b"a t0k3n-of-the-report t0" + gap + b"t!", gap) == b"a [hidden] t0" + gap + b"t!"
    assert hidden.in_bytes(b"ends with t0k3n", gap) == b"ends with t0k3n"


def test_other_line_ends_hide_nothing_less() -> None:
    for key in ("long line of a key\nshort\n}", "long line of a key\r\nshort\r\n}\r\n"):
        hidden = HiddenValues()
        hidden.add("key", key)
        plain = key.replace("\r\n", "\n")
        for printed in (key, plain, plain.replace("\n", "\r\n"), key.replace("\n", "\r\n")):
            assert hidden.in_text(f"<{printed}>") == "<[hidden]>", repr(printed)
            assert hidden.in_bytes(printed.strip().encode()) == b"[hidden]", repr(printed)


def test_a_key_that_was_cut_in_two_is_hidden_with_its_short_lines() -> None:
    key = "-----BEGIN KEY-----\nMIIEvAIBADANBgkqhkiG9w0B\nSHORT==\n-----END KEY-----\n"
    hidden = HiddenValues()
    hidden.add("key", key)
    gap = b"...\n"
    for place in range(3, len(key) - 3):
        begin, end = key[:place].encode(), key[place:].encode()
        assert hidden.in_bytes(b"a " + begin + gap + end + b" b", gap) == b"a [hidden]" + gap + b"[hidden] b", place


def test_what_may_be_the_beginning_of_a_value() -> None:
    hidden = HiddenValues()
    hidden.add("a", "abcabc")
    hidden.add("b", "token")
    hidden.add("c", "token-and-more")
    for data, begun in {
        b"": 0,
        b"x ab": 0,
        b"x abc": 3,
        b"abcab": 5,
        b"abcabc": 0,
        b"abcabcabc": 3,
        b"a token": 5,
        b"a token-and-mor": 13,
        b"a token-and-more": 0,
        b"token!": 0,
    }.items():
        assert hidden.begun(data) == begun, data
