"""The documentation says what is: its examples run, its tables are current, its links lead somewhere.

Examines the internals of cli.app on purpose.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import flink_skills
from benchmarks import plots
from checks.evidence import compare, guarantees, missing_tests
from deploy.check.rules.job_files import table_warnings
from docs.navigation import read_navigation
from flink_skills.job import read_job
from flink_skills.telemetry import EVENT_COLUMNS, EVENT_KINDS, MAX_TEXT_LENGTH
from tests.docs.pages import (
    ROOT,
    Block,
    all_pages,
    anchors_of,
    blocks_of,
    links_of,
    name_of,
    yaml_of,
)

SEPARATOR = "---- end of block ----"
SECONDS = 300
# What looks like a key of an option and is none.
NO_OPTIONS = {
    "skills.md",
    "skills.others",
    "skills.html",
    "skills.tar.gz",
    "skills.zip",
    "skills.example.org",
    "skills.turn.timout",
}


def marked_pages(argument: str) -> list[str]:
    return [
        name_of(page)
        for page in all_pages()
        if any(b.kind == "run" and b.argument == argument for b in blocks_of(page))
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a page assumes: a checkout's ``skills`` and the ``flink-skills`` command."""
    (tmp_path / "skills").symlink_to(ROOT / "skills")
    programs = tmp_path / "bin"
    programs.mkdir()
    command = programs / "flink-skills"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m flink_skills.cli "$@"\n')
    command.chmod(0o755)
    return tmp_path


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        # PyFlink leaves some of its own in the environment of a process that has run a job.
        **{name: value for name, value in os.environ.items() if not name.startswith("PYFLINK_")},
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PATH": os.pathsep.join((str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"])),
    }
    return subprocess.run(
        arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def run_shell(block: Block, folder: Path, name: str) -> None:
    """Run the block, and compare what it prints."""
    done = run(["bash", "-eu", "-c", block.text], folder)
    assert done.returncode == 0, f"{name}:\n{block.text}\n{done.stdout}\n{done.stderr}"
    if block.output is not None:
        assert done.stdout.strip() == block.output.strip(), f"{name}: another output of\n{block.text}\n{done.stderr}"


def run_script(blocks: list[Block], folder: Path, name: str) -> None:
    """Run the blocks as one script and compare what each prints."""
    script = folder / "page.py"
    script.write_text("".join(f"{block.text}\nprint({SEPARATOR!r})\n" for block in blocks))
    done = run([sys.executable, str(script)], folder)
    assert done.returncode == 0, f"{name}:\n{done.stdout}\n{done.stderr}"
    printed = done.stdout.split(f"{SEPARATOR}\n")
    for block, text in zip(blocks, printed, strict=False):
        if block.output is not None:
            assert text.strip() == block.output.strip(), f"{name}: another output of\n{block.text}\n{done.stderr}"


def write_files(blocks: list[Block], folder: Path) -> None:
    for block in blocks:
        if block.kind == "file":
            path = folder / block.argument
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)


@pytest.mark.parametrize("name", marked_pages(""))
def test_examples_run(name: str, folder: Path) -> None:
    blocks = blocks_of(ROOT / name)
    write_files(blocks, folder)
    wanted = [block for block in blocks if block.kind == "run" and not block.argument]
    run_script([block for block in wanted if block.language == "python"], folder, name)
    for block in wanted:
        if block.language != "python":
            run_shell(block, folder, name)


@pytest.mark.flink
@pytest.mark.parametrize("name", marked_pages("flink"))
def test_examples_on_flink_run(name: str, folder: Path) -> None:
    blocks = blocks_of(ROOT / name)
    write_files(blocks, folder)
    for block in blocks:
        if block.kind == "run" and block.argument == "flink":
            if block.language == "python":
                run_script([block], folder, name)
            else:
                run_shell(block, folder, name)


def test_there_are_examples_to_run() -> None:
    assert "README.md" in marked_pages("flink")
    assert {"README.md", "docs/agents.md", "docs/models.md"} <= set(marked_pages(""))


@pytest.mark.flink
@pytest.mark.parametrize(("page", "file"), [("README.md", "job.yaml"), ("docs/coming-from.md", "reviews.yaml")])
def test_job_files_to_copy_have_no_warning(page: str, file: str, folder: Path) -> None:
    write_files(blocks_of(ROOT / page), folder)
    done = run(["bash", "-c", f"flink-skills run {file} --check"], folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "the job can be submitted"
    assert "warning" not in done.stdout + done.stderr


@pytest.mark.parametrize("name", ["README.md", "docs/quickstart.md", "docs/installation.md"])
def test_environment_is_activated_before_it_is_used(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"^```bash\n(.*?)^```$", text, re.M | re.S) for line in block.splitlines()]
    used = [number for number, line in enumerate(lines) if re.match(r"(flink-skills|python|pip) ", line)]
    activated = [number for number, line in enumerate(lines) if re.match(r"\. \.?venv/bin/activate", line)]
    assert used and activated and activated[0] < used[0]
    # A program that is saved from the page.
    program = re.search(r"`python \w+\.py`", text)
    assert program is None or text.index("venv/bin/activate") < program.start()


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200


def test_readme_has_the_two_commands_and_their_prerequisites_on_the_first_screen() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = text.index("```")
    assert "make demo" in text[first : text.index("```", first + 3)]
    assert "make test" in text[first : text.index("```", first + 3)]
    for needed in ("Linux", "Python 3.10", "JDK 17", "Maven"):
        assert needed in text[: text.index("<!-- generated: demo -->")], needed
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for page in all_pages():
        for target in re.findall(r"(?:^|`)make ([a-z0-9-]+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert target in targets, f"{name_of(page)}: there is no 'make {target}'"


def generator(name: str) -> ModuleType:
    return importlib.import_module(f"docs.{name}")


@pytest.mark.parametrize("name", ["gen_options", "gen_diagnostics", "gen_cli", "gen_tools", "gen_demo"])
def test_generated_page_is_current(name: str) -> None:
    assert generator(name).main(["--check"]) == 0, f"run: python -m docs.{name}"


@pytest.mark.parametrize("name", ["gen_options", "gen_diagnostics", "gen_cli", "gen_tools"])
def test_page_that_is_not_current_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = generator(name)
    page = tmp_path / "page.md"
    monkeypatch.setattr(module, "PAGE", page)
    assert module.main(["--check"]) == 1
    assert module.main([]) == 0
    assert module.main(["--check"]) == 0
    page.write_text(page.read_text().replace("| ", "|  ", 1))
    assert module.main(["--check"]) == 1
    assert module.main(["--chek"]) == 2


def test_every_option_that_is_mentioned_exists() -> None:
    known = {option.key for option in flink_skills.SkillOptions.all()}
    families = tuple(family.prefix for family in flink_skills.SkillOptions.families())
    mentioned = set()
    for page in all_pages():
        for key in re.findall(r"(?<![\w/])skills\.[a-z]+(?:[.-][a-z]+)*", page.read_text(encoding="utf-8")):
            mentioned.add(key)
            whole = key in known or any(option.startswith(f"{key}.") for option in known)
            of_family = f"{key}.".startswith(families)
            assert whole or of_family or key in NO_OPTIONS, f"{name_of(page)}: there is no option {key}"
    assert known <= mentioned


def test_api_reference_has_every_public_name() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs/reference").glob("api-*.md")]
    found = re.findall(r"^::: (\S+)$", "\n".join(pages), re.MULTILINE)
    assert len(set(found)) == len(found)
    listed = {name.removeprefix("flink_skills.") for name in found if name.count(".") == 1}
    # The errors are one entry: their module, whose docstring is the tree.
    errors = {name for name in flink_skills.__all__ if name.endswith("Error")}
    assert listed == {*flink_skills.__all__, "errors"} - errors - {"__version__"}


def test_command_line_reference_keeps_what_people_wrote() -> None:
    module = generator("gen_cli")
    page = f"{module._HEAD}\n## list\n\n<!-- generated: list -->\nold\n<!-- end -->\n\nBy hand.\n"
    text = module.render(page)
    assert "By hand." in text
    assert "\nold\n" not in text
    assert "| `--format text\\|json` | `text` |" in text
    assert text.count("<!-- generated: validate -->") == 1
    assert module.render(text) == text
    with pytest.raises(ValueError, match="nothing to generate for 'lst'"):
        module.render(page.replace("generated: list", "generated: lst"))


def test_command_line_reference_has_exit_codes_and_examples_of_every_command() -> None:
    from flink_skills.cli.app import COMMANDS

    text = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    parts = dict(re.findall(r"<!-- generated: ([\w-]+) -->\n(.*?)<!-- end -->", text, re.DOTALL))
    assert set(COMMANDS) == set(parts) - {"commands"}
    for name in COMMANDS:
        assert "\n| 0 | " in parts[name], f"{name}: no exit codes"
        assert "\nExamples:\n" in parts[name], f"{name}: no examples"


def test_tools_reference_has_every_tool() -> None:
    from flink_skills.tools import TOOL_NAMES

    text = (ROOT / "docs/reference/tools.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## (\w+)$", text, re.MULTILINE)) == TOOL_NAMES


def test_diagnostics_reference_has_every_code() -> None:
    from flink_skills.skill import CODES

    text = (ROOT / "docs/reference/diagnostics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w\d\d) \| (.+?) \| (\w+) \| (\w+) \| (.+) \|$", text, re.MULTILINE)
    decided = {True: " | yes", False: " | no"}
    assert sorted(rows) == sorted(
        (
            name,
            code.meaning.replace("|", "\\|"),
            code.lenient,
            code.strict,
            code.fix.replace("|", "\\|") + (decided[code.unsupported] if name[0] == "U" else ""),
        )
        for name, code in CODES.items()
    )


def test_skills_readme_has_every_skill() -> None:
    text = (ROOT / "skills/README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE))
    assert listed == {path.parent.name for path in (ROOT / "skills").glob("*/SKILL.md")}


@pytest.mark.parametrize("name", [name_of(page) for page in all_pages()])
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for link in links_of(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name}: {link} leads nowhere"
        if name.startswith("docs/"):
            assert target.is_relative_to(ROOT / "docs"), f"{name}: {link} is not part of the built site"
        if anchor:
            assert anchor in anchors_of(target), f"{name}: {link}: there is no such heading"


def test_navigation_has_every_page() -> None:
    there = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")} - {"features.md"}
    assert sorted(page.path for page in read_navigation().pages()) == sorted(there)


def jobs_with_errors() -> dict[str, str]:
    """Return the text of each job file of the repository and of its pages that has a table of errors."""
    files = [*ROOT.glob("examples/**/*.yaml"), *ROOT.glob("deploy/overlays/*/*.yaml")]
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}
    for page in all_pages():
        texts |= {f"{name_of(page)}, block {number}": text for number, text in enumerate(yaml_of(page))}
    return {name: text for name, text in texts.items() if re.search(r"^errors:.*table", text, re.M | re.S)}


JOBS_WITH_ERRORS = jobs_with_errors()


@pytest.mark.parametrize("name", JOBS_WITH_ERRORS)
def test_job_files_keep_failed_events(name: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOBS_WITH_ERRORS[name], encoding="utf-8")
    read = read_job(file, lenient=True)
    assert read.stages
    assert [message for stage in read.stages for message in table_warnings(read, stage)] == []


def test_there_are_job_files_with_errors() -> None:
    assert {"README.md, block 0", "deploy/overlays/production/job.yaml"} <= JOBS_WITH_ERRORS.keys()


MAX_WORDS = 1_500
# Lists: one entry for each guarantee, feature, attack or message.
LISTS = {"guarantees.md", "features.md", "attacks.md", "troubleshooting.md"}
_BLOCK = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
_ADDRESS = re.compile(r"\]\([^)]*\)|https?://\S+")


def guides() -> list[str]:
    """Return the pages of all tabs except the reference."""
    tabs = [tab for tab in read_navigation().groups() if tab.title != "Reference"]
    return sorted({page.path for tab in tabs for page in tab.pages()} - LISTS)


def words_in(text: str) -> int:
    """Return the number of words outside blocks of code, addresses and generated tables. Code in a line is one word."""
    for pattern in (_GENERATED, _BLOCK, _ADDRESS):
        text = pattern.sub(" ", text)
    text = _CODE.sub("X", text)
    return len(re.findall(r"[A-Za-z']+", text))


@pytest.mark.parametrize("name", guides())
def test_a_guide_is_short(name: str) -> None:
    words = words_in((ROOT / "docs" / name).read_text(encoding="utf-8"))
    assert words <= MAX_WORDS, f"docs/{name} has {words} words: split it, or move its tables to docs/reference"


def test_words_of_prose_are_counted() -> None:
    assert "sources.md" in guides()
    assert not {"attacks.md", "reference/options.md"} & set(guides())
    assert words_in("# A page\n\nRun `the command` of [this page](other-page.md):\n\n```bash\nls all\n```\n") == 7
    assert words_in("one\n<!-- generated: x -->\n| two |\n<!-- end -->\nthree\n") == 2


ROWS = guarantees(ROOT)


@pytest.mark.parametrize("guarantee", ROWS, ids=[str(number) for number in range(len(ROWS))])
def test_its_tests_exist(guarantee: str) -> None:
    cell = ROWS[guarantee]
    assert "`" in cell or re.search(r"\]\(attacks\.md#", cell), f"{guarantee}: no test"
    assert missing_tests(ROOT, cell) == set(), guarantee


def test_there_are_guarantees() -> None:
    assert len(ROWS) > 30


def test_tests_that_do_not_exist_are_missing() -> None:
    cell = "`docs/test_docs.py::test_there_are_guarantees`, `no/test_file.py::test_a`, `NoTest#runs`"
    assert missing_tests(ROOT, cell) == {"no/test_file.py::test_a", "NoTest#runs"}


def test_rows_without_their_evidence_are_reported() -> None:
    before = {"A1": {"tests/a"}, "A2": {"tests/b"}, "A3": set[str](), "A4": {"tests/c"}}
    after = {"A1": {"tests/other"}, "A2": set[str](), "A3": set[str]()}
    assert compare(before, after) == [
        "row 'A2' has no test. Before, it had: tests/b",
        "row 'A4' is missing. It had 1 tests.",
    ]


PAGE = ROOT / "docs" / "events.md"
REFERENCE = ROOT / "docs" / "reference" / "telemetry.md"


def test_the_tables_are_current() -> None:
    assert generator("gen_events").main(["--check"]) == 0, "run: python -m docs.gen_events"


def test_a_table_that_is_not_current_is_found() -> None:
    module = generator("gen_events")
    text = REFERENCE.read_text(encoding="utf-8")
    assert module.render(text.replace("| `turn_id` |", "| `turn_number` |")) == text
    with pytest.raises(ValueError, match="there is no place for columns"):
        module.render(text.replace("<!-- generated: columns -->", ""))


def test_every_kind_has_its_detail() -> None:
    section = REFERENCE.read_text(encoding="utf-8").partition("## Event detail")[2].partition("\n## ")[0]
    described = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert {*described, "step"} == set(EVENT_KINDS), "a step has no detail"


def test_the_maximum_length_of_a_string_is_the_limit() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Choose the content")[2].partition("\n## ")[0]
    assert f"{MAX_TEXT_LENGTH:,}" in section


def test_columns_in_sql_exist() -> None:
    names = {column.name for column in EVENT_COLUMNS}
    (select,) = re.findall(r"SELECT (.*?) FROM events", PAGE.read_text(encoding="utf-8"))
    assert {name.strip(" `") for name in select.split(",")} <= names


def test_plots_are_those_of_the_tables() -> None:
    page = plots.PAGE.read_text(encoding="utf-8")
    rendered, drawn = plots.render(page)
    assert rendered == page, "run: python -m benchmarks.plots"
    assert {file.stem: file.read_text(encoding="utf-8") for file in plots.FOLDER.iterdir()} == drawn
    assert set(drawn) == {plot.name for plot in plots.PLOTS}


def test_bars_of_a_plot_have_the_lengths_of_their_values() -> None:
    head = "| client | CPU ms per request | requests/s |\n|---|---|---|\n"
    rows = "| flink_skills | 1,000.5 | 1 |\n| other & <co> | 2,001 | 2 |\n| failed |  | 3 |\n"
    table, drawn = plots.with_plots("models", f"| turns | CPU ms per request |\n|---|---|\n| a | 7 |\n\n{head}{rows}")
    assert table.endswith("\n\n![CPU time of a model request, ms](plots/clients.svg)")
    svg = drawn["clients"]
    bars = re.findall(r'class="(own|bar)" x="330" y="\d+" width="([\d.]+)"', svg)
    assert [(kind, float(width)) for kind, width in bars] == [("own", 215.0), ("bar", 430.0)]
    assert "other &amp; &lt;co&gt;" in svg
    assert plots.plots_of("models", "| another table |\n|---|\n| 1 |\n") == {}
