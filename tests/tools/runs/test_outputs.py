"""A run returns output files: output_files, outputs, primary_output, artifact_files.

Examines the internals of tools.runs.prepared_run on purpose.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from flink_skills.artifacts import ArtifactStore
from flink_skills.errors import ExecutionError
from flink_skills.options import SkillConfig
from flink_skills.tools import ToolResult
from tests.tools.conftest import Conversation
from tests.tools.runs.conftest import Talk


async def run(talk: Conversation, command: str, **more: Any) -> ToolResult:
    result: ToolResult = await talk.call("skill_run", **{"skill": "billing", "command": command, **more})
    assert not result.is_error, result.content
    return result


def names(result: ToolResult) -> list[str]:
    return [entry["name"] for entry in result.value.get("output_files", [])]


def metadata(talk: Conversation) -> list[dict[str, Any]]:
    assert talk.workspace is not None
    outputs: list[dict[str, Any]] = json.loads((talk.workspace.root / "metadata.json").read_text())["outputs"]
    return outputs


def stored(tmp_path: Path) -> list[str]:
    return sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "artifacts").rglob("*") if path.is_file())


MAKE = (
    "printf 'a,b\\n' > $OUTPUT_DIR/a.csv; mkdir -p out/deep/er; printf two > out/deep/er/b.txt; "
    "printf '\\0\\1' > out/c.bin; printf w > $WORK_DIR/w.txt; printf r > $RUN_DIR/r.txt"
)


@pytest.mark.row("F6", "F24")
async def test_output_files(talk: Conversation) -> None:
    result = await run(talk, MAKE, output_files=["$OUTPUT_DIR/*", "out/deep/**/*.txt", "${WORK_DIR}/*.txt"])
    assert result.value["output_files"] == [
        {
            "name": "out/a.csv",
            "ref": "workspace://out/a.csv",
            "content": "a,b\n",
            "mime_type": "text/csv",
            "size_bytes": 4,
        },
        {"name": "out/c.bin", "ref": "workspace://out/c.bin", "mime_type": "application/octet-stream", "size_bytes": 2},
        {
            "name": "out/deep/er/b.txt",
            "ref": "workspace://out/deep/er/b.txt",
            "content": "two",
            "mime_type": "text/plain",
            "size_bytes": 3,
        },
        {
            "name": "work/w.txt",
            "ref": "workspace://work/w.txt",
            "content": "w",
            "mime_type": "text/plain",
            "size_bytes": 1,
        },
    ]
    assert "warnings" not in result.value


@pytest.mark.row("F6", "F12")
async def test_patterns(talk: Conversation) -> None:
    assert talk.workspace is not None
    everything = ["out/a.csv", "out/c.bin", "out/deep/er/b.txt"]
    for pattern, found in {
        "out": everything,
        "out/": everything,
        "out/**": everything,
        "**/*.csv": ["out/a.csv"],
        "out/*.{csv,bin}": ["out/a.csv", "out/c.bin"],
        "o*/**/b.*": ["out/deep/er/b.txt"],
        "workspace://out/a.csv": ["out/a.csv"],
        f"{talk.workspace.out_dir}/*.csv": ["out/a.csv"],
        "./out/../out/a.csv": ["out/a.csv"],
    }.items():
        assert names(await run(talk, MAKE, output_files=pattern)) == found, pattern
    assert len(names(await run(talk, MAKE, output_files=["$RUN_DIR/*.txt"]))) == 1


@pytest.mark.row("F26")
async def test_patterns_that_find_nothing(talk: Conversation) -> None:
    for pattern in ("*.txt", "/etc/passwd", "../*", "skills/billing/SKILL.md", "home/**", "~/x"):
        result = await run(talk, MAKE, output_files=[pattern])
        assert "output_files" not in result.value, pattern
        (warning,) = result.value["warnings"]
        assert warning.startswith("output_files are workspace-relative, like out/*.txt or $OUTPUT_DIR/*.txt: ")
        assert pattern in warning
    result = await run(talk, MAKE, output_files=["out/*.pdf"])
    assert result.value["warnings"] == ["the workspace has no file that matches out/*.pdf"]


@pytest.mark.row("F32")
async def test_patterns_that_are_wrong_are_found_before_the_command_runs(talk: Conversation) -> None:
    assert talk.workspace is not None
    for wrong in (
        {"output_files": ["$HOMES/x"]},
        {"outputs": {"globs": ["out/x"] * 100 + [f"out/{n}" for n in range(99)]}},
    ):
        result = await talk.call("skill_run", skill="billing", command="touch $WORK_DIR/ran", **wrong)
        assert result.is_error
    assert not (talk.workspace.work_dir / "ran").exists()


@pytest.mark.row("F6")
async def test_links_lead_to_no_file(talk: Conversation, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("of the machine")
    result = await run(
        talk, f"ln -s {secret} out/a.txt; ln -s {tmp_path} out/b; mkfifo out/c.txt", output_files=["out/**"]
    )
    assert "output_files" not in result.value
    assert "of the machine" not in result.content
    assert any("out/a.txt" in text for text in result.value["warnings"])


@pytest.mark.row("F12")
async def test_the_manifest(talk: Conversation) -> None:
    described = (await run(talk, MAKE, outputs={"globs": ["$OUTPUT_DIR/**"]})).value
    assert [sorted(entry) for entry in described["output_files"]] == [["mime_type", "name", "ref", "size_bytes"]] * 3
    inline = (await run(talk, MAKE, outputs={"globs": ["out/**"], "inline": True})).value
    assert [entry.get("content") for entry in inline["output_files"]] == ["a,b\n", None, "two"]
    both = (await run(talk, MAKE, output_files="out/a.csv", outputs={"Globs": ["out/deep/**"]})).value
    assert [entry.get("content") for entry in both["output_files"]] == ["a,b\n", None]


@pytest.mark.row("F12", "F26")
@pytest.mark.parametrize("style", ["snake", "Pascal", "camel"])
async def test_the_limits_of_the_manifest(talk: Conversation, style: str) -> None:
    def styled(**outputs: Any) -> dict[str, Any]:
        words = {name: name.split("_") for name in outputs}
        if style == "Pascal":
            return {"".join(map(str.title, words[name])): value for name, value in outputs.items()}
        if style == "camel":
            return {words[name][0] + "".join(map(str.title, words[name][1:])): v for name, v in outputs.items()}
        return outputs

    command = "for n in 1 2 3; do printf '%s23456' $n > out/$n.txt; done"
    files = (await run(talk, command, outputs=styled(globs=["out/*"], inline=True, max_files=2))).value
    assert [entry["name"] for entry in files["output_files"]] == ["out/1.txt", "out/2.txt"]
    assert files["warnings"] == ["outputs reached max_files (2)"]
    each = (await run(talk, command, outputs=styled(globs=["out/1*"], inline=True, max_file_bytes=4))).value
    assert each["output_files"] == [
        {
            "name": "out/1.txt",
            "ref": "workspace://out/1.txt",
            "content": "1234",
            "mime_type": "text/plain",
            "size_bytes": 6,
            "truncated": True,
        }
    ]
    assert each["warnings"] == ["outputs reached max_file_bytes (4)"]
    total = (await run(talk, command, outputs=styled(globs=["out/*"], inline=True, max_total_bytes=8))).value
    assert [entry["content"] for entry in total["output_files"]] == ["123456", "22"]
    assert total["warnings"] == ["outputs reached max_total_bytes (8)"]
    assert metadata(talk)[-1]["limits_hit"] == ["max_total_bytes"]


@pytest.mark.row("F12", "F24")
async def test_no_model_asks_for_more_than_the_limits(talk: Conversation) -> None:
    command = "for n in $(seq 120); do echo > out/$n; done; head -c 5000000 /dev/zero | tr '\\0' x > out/large"
    result = await run(talk, command, outputs={"globs": ["out/*"], "max_files": 10_000, "max_file_bytes": 1 << 40})
    assert len(names(result)) == 100
    (large,) = (await run(talk, command, output_files=["out/large"], outputs={"max_files": -1})).value["output_files"]
    assert large["truncated"] is True and large["size_bytes"] == 5_000_000 and len(large["content"]) == 4 << 20


@pytest.mark.row("F24", "F26")
async def test_contents_of_all_files_together_are_limited(talk: Conversation) -> None:
    command = "for n in 1 2 3; do head -c 2000000 /dev/zero | tr '\\0' $n > out/$n; done"
    value = (await run(talk, command, output_files=["out/*"])).value
    assert [len(entry.get("content", "")) for entry in value["output_files"]] == [2_000_000, 2_000_000, 0]
    assert value["output_files"][2]["ref"] == "workspace://out/3"
    assert value["warnings"] == ["the content of out/3 was left out: the result holds 4194304 bytes"]


@pytest.mark.row("F24")
async def test_a_character_that_was_cut_is_left_out(talk: Conversation) -> None:
    outputs = {"globs": ["out/*"], "inline": True, "max_file_bytes": 4}
    (entry,) = (await run(talk, "printf grün > out/a.txt; rm -f out/b", outputs=outputs)).value["output_files"]
    assert entry["content"] == "grü" and entry["truncated"] is True
    (entry,) = (await run(talk, "printf 'gr\\374n' > out/a.txt", output_files="out/*")).value["output_files"]
    assert "content" not in entry


@pytest.mark.row("F23")
async def test_the_primary_output(talk: Conversation) -> None:
    command = (
        "printf '\\0' > out/a.bin; head -c 40000 /dev/zero | tr '\\0' x > out/b.txt; : > out/c.txt; "
        "printf first > out/d.txt; printf second > out/e.txt"
    )
    result = await run(talk, command, output_files=["out/*"])
    assert result.value["primary_output"] == {
        "name": "out/d.txt",
        "ref": "workspace://out/d.txt",
        "content": "first",
        "mime_type": "text/plain",
        "size_bytes": 5,
    }
    assert json.loads(result.content)["primary_output"] == result.value["primary_output"]
    quiet = await run(talk, command, outputs={"globs": ["out/*"]})
    assert json.loads(quiet.content)["primary_output"]["content"] == "first"
    assert "primary_output" not in (await run(talk, command, output_files=["out/a.bin"])).value
    edge = await run(talk, "head -c 32768 /dev/zero | tr '\\0' y > out/b.txt", output_files=["out/b.txt"])
    assert edge.value["primary_output"]["size_bytes"] == 32768
    # A model reads a long one once.
    assert edge.value["primary_output"]["content"]
    assert "content" not in json.loads(edge.content)["primary_output"]


@pytest.mark.row("F28")
async def test_a_run_that_names_no_outputs(talk: Conversation) -> None:
    result = await run(talk, "printf old > out/a.txt")
    assert result.value["primary_output"]["content"] == "old"
    assert "output_files" not in result.value
    # What an earlier run left is not what this one has to say, also when its time is set back.
    later = await run(talk, "printf new > out/b.txt; touch -d 2001-01-01 out/b.txt")
    assert later.value["primary_output"]["name"] == "out/b.txt"
    assert "primary_output" not in (await run(talk, "true")).value
    assert "primary_output" not in (await run(talk, "printf x > out/c.txt", outputs={"globs": ["out/none"]})).value
    elsewhere = await run(talk, "printf y > $OUTPUT_DIR/y.txt", env={"OUTPUT_DIR": "work/own"})
    assert elsewhere.value["primary_output"]["name"] == "work/own/y.txt"


@pytest.mark.row("F25")
@pytest.mark.parametrize("end", ["exit 1", "sleep 60"])
async def test_empty_files_of_a_command_that_failed(talk: Conversation, tmp_path: Path, end: str) -> None:
    command = f": > out/empty.txt; printf x > out/full.txt; {end}"
    result = await run(talk, command, output_files=["out/*"], save_as_artifacts=True, timeout=1)
    assert names(result) == ["out/full.txt"]
    assert [entry["name"] for entry in result.value["artifact_files"]] == ["out/full.txt"]
    assert "empty files left out, as the command failed: out/empty.txt" in result.value["warnings"]
    assert not [path for path in stored(tmp_path) if "empty" in path]
    manifest = await run(talk, command, outputs={"globs": ["out/*"]}, timeout=1)
    assert names(manifest) == ["out/full.txt"]
    fine = await run(talk, ": > out/empty.txt", output_files=["out/empty.txt"])
    assert [entry["size_bytes"] for entry in fine.value["output_files"]] == [0]


@pytest.mark.row("D4", "F14", "F27")
async def test_output_files_as_artifacts(talk: Conversation, tmp_path: Path) -> None:
    result = await run(talk, MAKE, output_files=["out/*.csv"], save_as_artifacts=True, artifact_prefix="may/")
    (saved,) = result.value["artifact_files"]
    assert saved["name"] == "may/out/a.csv"
    assert result.value["output_files"][0]["content"] == "a,b\n"
    store = ArtifactStore.open(SkillConfig({"skills.artifacts.dir": (tmp_path / "artifacts").as_uri()}))
    assert store is not None
    artifact, data = store.load(talk.context.owner, saved["name"], saved["version"])
    assert data == b"a,b\n" and artifact.mime_type == "text/csv"
    assert talk.skill_state.last_saved == {
        "tool_call_id": "call-1",
        "artifacts": [{**saved, "ref": f"artifact://may/out/a.csv@{saved['version']}"}],
    }
    assert metadata(talk)[-1]["saved_as"] == ["may/out/a.csv"]
    assert metadata(talk)[-1]["versions"] == [saved["version"]]
    before = stored(tmp_path)
    again = await run(talk, MAKE, output_files=["out/*.csv"], save_as_artifacts=True, artifact_prefix="may/")
    assert again.value["artifact_files"] == [saved]
    assert stored(tmp_path) == before


@pytest.mark.row("F12", "F27")
async def test_a_manifest_that_saves(talk: Conversation) -> None:
    outputs = {"globs": ["out/**/*.txt"], "save": True, "name_template": "run-1/"}
    result = await run(talk, MAKE, outputs=outputs)
    assert [entry["name"] for entry in result.value["artifact_files"]] == ["run-1/out/deep/er/b.txt"]
    assert "content" not in result.value["output_files"][0]
    assert talk.skill_state.artifacts == {entry["name"]: entry["version"] for entry in result.value["artifact_files"]}
    assert metadata(talk)[-1]["globs"] == outputs["globs"]


@pytest.mark.row("F14", "F26")
async def test_a_job_without_a_place_for_artifacts(talk_with: Talk) -> None:
    talk = await talk_with(artifacts=False)
    result = await run(talk, MAKE, output_files=["out/*.csv"], save_as_artifacts=True)
    assert names(result) == ["out/a.csv"]
    assert "artifact_files" not in result.value
    (warning,) = result.value["warnings"]
    assert "stay in the workspace" in warning and "skills.artifacts.dir" in warning


@pytest.mark.row("F14", "F26")
async def test_what_cannot_be_saved(talk: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = await run(talk, MAKE, outputs={"globs": ["out/a.csv"], "save": True, "max_file_bytes": 2})
    assert "artifact_files" not in cut.value
    assert any("out/a.csv was not saved" in text for text in cut.value["warnings"])
    named = await run(talk, MAKE, output_files=["out/a.csv"], save_as_artifacts=True, artifact_prefix="../../")
    assert "artifact_files" not in named.value
    assert any("out/a.csv was not saved" in text for text in named.value["warnings"])

    def fail(*_: Any) -> Any:
        raise ExecutionError("no answer from the store")

    monkeypatch.setattr(talk.services.artifacts, "save", fail)
    failed = await run(talk, MAKE, output_files=["out/a.csv"], save_as_artifacts=True)
    assert failed.value["warnings"] == ["out/a.csv was not saved: no answer from the store"]
    assert failed.value["output_files"][0]["content"] == "a,b\n"


@pytest.mark.row("F15")
async def test_contents_left_out(talk: Conversation) -> None:
    for more in ({"output_files": ["out/*.csv"]}, {"outputs": {"globs": ["out/*.csv"], "inline": True}}, {}):
        value = (await run(talk, MAKE, omit_inline_content=True, **more)).value
        for entry in (*value.get("output_files", []), value["primary_output"]):
            assert sorted(entry) == ["mime_type", "name", "ref", "size_bytes"]


@pytest.mark.row("F16")
async def test_the_job_leaves_contents_out(talk_with: Talk) -> None:
    talk = await talk_with(run__omit_inline=True)
    value = (await run(talk, MAKE, output_files=["out/*.csv"], omit_inline_content=False)).value
    assert "content" not in value["output_files"][0] and "content" not in value["primary_output"]


@pytest.mark.row("F16", "F17")
async def test_the_job_saves_always(talk_with: Talk) -> None:
    talk = await talk_with(run__save_artifacts=True)
    for more in (
        {"output_files": ["out/*.csv"], "save_as_artifacts": False},
        {"outputs": {"globs": ["out/*.csv"], "save": False}},
    ):
        value = (await run(talk, MAKE, **more)).value
        assert [entry["name"] for entry in value["artifact_files"]] == ["out/a.csv"]
    assert "artifact_files" not in (await run(talk, MAKE)).value


@pytest.mark.row("F17", "F26")
async def test_saving_always_is_best_effort(talk_with: Talk) -> None:
    talk = await talk_with(artifacts=False, run__save_artifacts=True)
    value = (await run(talk, MAKE, output_files=["out/*.csv"])).value
    assert names(await run(talk, MAKE, output_files=["out/*.csv"])) == ["out/a.csv"]
    assert any("skills.artifacts.dir" in text for text in value["warnings"])


@pytest.mark.row("F6")
async def test_the_text_for_an_editor_is_no_output(talk: Conversation) -> None:
    result = await run(talk, '"$EDITOR" $WORK_DIR/e.txt', editor_text="x", output_files=["work/**"])
    assert names(result) == ["work/e.txt"]


async def test_a_workspace_that_breaks_after_the_command(talk: Conversation, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ExecutionError("the disk is gone")

    monkeypatch.setattr(talk.workspace, "collect", fail)
    result = await run(talk, "echo said", output_files=["out/*"])
    assert result.value["stdout"] == "said\n"
    assert result.value["warnings"] == ["outputs out/*: the disk is gone"]


def wait_for(name: str) -> str:
    """Shell text that waits until ``name`` is there, a short while at most."""
    return f"n=0; until [ -e $WORK_DIR/{name} ] || [ $n -gt 1000 ]; do sleep 0.01; n=$((n+1)); done"


@pytest.mark.row("F23", "F28")
async def test_runs_at_the_same_time_have_no_file_of_each_other(talk: Conversation) -> None:
    writes, quiet = await asyncio.gather(
        run(talk, f"printf mine > out/a.txt; touch $WORK_DIR/written; {wait_for('seen')}"),
        run(talk, f"{wait_for('written')}; touch $WORK_DIR/seen; [ -s out/a.txt ] && echo there"),
    )
    assert quiet.value["stdout"] == "there\n", "they did not run at the same time"
    for result in (writes, quiet):
        assert "primary_output" not in result.value
        (warning,) = result.value["warnings"]
        assert warning.startswith("new files were not looked at, as another command ran in this workspace meanwhile")
        assert warning.endswith("New: out/a.txt")
    # Those that are named are handed back, and afterwards all is as before.
    named, _ = await asyncio.gather(
        run(talk, f"printf mine > out/b.txt; touch $WORK_DIR/b; {wait_for('c')}", output_files=["out/b.txt"]),
        run(talk, f"{wait_for('b')}; touch $WORK_DIR/c"),
    )
    assert named.value["primary_output"]["name"] == "out/b.txt" and "warnings" not in named.value
    assert (await run(talk, "printf later > out/d.txt")).value["primary_output"]["name"] == "out/d.txt"


@pytest.mark.row("F28")
async def test_calls_that_start_nothing_are_no_company(talk_with: Talk) -> None:
    talk = await talk_with(shell__allowed_commands=["/usr/bin/touch", "/bin/cp"])
    arguments = {"skill": "billing", "command": "cp SKILL.md ../../out/a.txt"}
    result, *refused = await asyncio.gather(
        talk.call("skill_run", **arguments),
        talk.call("skill_run", skill="billing", command="/bin/ls"),
        talk.call("skill_run", skill="billing", command="/bin/cp a b", cwd="$NOWHERE"),
        talk.call("skill_run", skill="billing", command="/bin/cp a b", env={"LD_PRELOAD": "x"}),
    )
    assert all(one.is_error for one in refused)
    assert result.value["primary_output"]["name"] == "out/a.txt", result.content


@pytest.mark.row("F6", "F12")
async def test_an_argument_that_is_almost_one_is_named(talk: Conversation) -> None:
    assert talk.workspace is not None
    for wrong, near in (
        ({"outputs": {"glob": ["out/*"]}}, "There is no argument 'glob': did you mean globs?"),
        ({"outputs": {"globs": ["out/*"], "maxFile": 3}}, "'maxFile': did you mean max_files?"),
        ({"output_file": "out/*"}, "'output_file': did you mean output_files?"),
        ({"input": ["workspace://out/a"]}, "'input': did you mean inputs?"),
        ({"inputs": [{"from": "workspace://out/a", "dest": "x"}]}, "'dest': did you mean to?"),
        ({"outputs": 3}, "outputs: this has to be an object"),
        ({"inputs": [3]}, "inputs.0: this has to be an object"),
    ):
        result = await talk.call("skill_run", skill="billing", command="touch $WORK_DIR/ran", **wrong)
        assert result.is_error and near in result.content, result.content
        assert "RunOutputs" not in result.content and "RunInput" not in result.content
    assert not (talk.workspace.work_dir / "ran").exists()
    # What resembles nothing is a remark of the model's.
    fine = await run(
        talk, MAKE, comment="why", description="x", outputs={"globs": "out/*.csv", "reason": "it is asked"}
    )
    assert names(fine) == ["out/a.csv"]
    nothing = await run(talk, MAKE, outputs={"patterns": ["out/*"], "inline": True})
    assert nothing.value["warnings"] == ["outputs has no globs, so no file was looked for: name some, like out/*.txt"]


@pytest.mark.row("F6", "F12")
async def test_patterns_in_other_forms(talk: Conversation) -> None:
    for outputs in (["out/a.csv", "out/deep/**"], "out/a.csv, out/deep/**", '["out/a.csv", "out/deep/**"]'):
        value = (await run(talk, MAKE, outputs=outputs)).value
        assert [entry["content"] for entry in value["output_files"]] == ["a,b\n", "two"], outputs
    assert names(await run(talk, MAKE, output_files="out/*.{csv,bin},out/deep/[a,b]*/*.txt,")) == [
        "out/a.csv",
        "out/c.bin",
    ]
    assert names(await run(talk, "printf x > 'out/a,b.txt'", output_files=["out/a,b.txt"])) == ["out/a,b.txt"]
    assert (await run(talk, "printf x > out/new", outputs=[])).value["primary_output"]["name"] == "out/new"


@pytest.mark.row("F26")
async def test_each_pattern_that_finds_nothing_is_named(talk: Conversation) -> None:
    value = (await run(talk, MAKE, output_files=["out/*.csv", "out/*.pdf", "$WORK_DIR/w.txt", "out/deep/*.txt"])).value
    assert [entry["name"] for entry in value["output_files"]] == ["out/a.csv", "work/w.txt"]
    assert value["warnings"] == ["the workspace has no file that matches out/*.pdf, out/deep/*.txt"]
    # A limit may have kept out what a pattern meant.
    cut = (await run(talk, MAKE, outputs={"globs": ["out/*.csv", "out/deep/**"], "max_files": 1})).value
    assert cut["warnings"] == ["outputs reached max_files (1)"]


@pytest.mark.row("F24", "F26")
async def test_many_files_are_one_warning_and_small_ones_come_first(talk: Conversation) -> None:
    command = (
        "mkdir -p out/m; for n in $(seq 10 19); do head -c 700000 /dev/zero | tr '\\0' x > out/m/$n.txt; done; "
        "head -c 4000000 /dev/zero | tr '\\0' y > out/m/00.txt; printf small > out/m/99.txt"
    )
    value = (await run(talk, command, output_files=["out/m/*"])).value
    assert names_of(value) == sorted(names_of(value)) and len(names_of(value)) == 12
    assert [entry["name"] for entry in value["output_files"] if "content" in entry] == [
        *(f"out/m/{n}.txt" for n in range(10, 15)),
        "out/m/99.txt",
    ]
    assert value["warnings"] == [
        "the contents of 6 files were left out: the result holds 4194304 bytes; first: out/m/00.txt"
    ]


def names_of(value: dict[str, Any]) -> list[str]:
    return [entry["name"] for entry in value["output_files"]]


@pytest.mark.row("F26", "F27")
async def test_files_that_are_not_saved_for_one_reason_are_one_warning(talk: Conversation) -> None:
    command = "for n in 1 2 3; do printf 12345 > out/$n.txt; done"
    outputs = {"globs": ["out/*"], "save": True, "name_template": "../x/"}
    (named,) = (await run(talk, command, outputs=outputs)).value["warnings"]
    assert named.startswith("3 files were not saved; out/1.txt: ") and "cannot name an artifact" in named
    limits = {"globs": ["out/*"], "save": True, "max_file_bytes": 2}
    _, large = (await run(talk, command, outputs=limits)).value["warnings"]
    assert large == "3 files were not saved; out/1.txt: the file has 5 bytes, more than the limits of outputs allow"


@pytest.mark.row("F24", "F6")
async def test_no_value_of_the_environment_is_in_what_a_run_left(talk: Conversation) -> None:
    """Not where a limit cuts it, and not as the name of a file."""
    talk.services.shell.hidden.add("skills.env.log-triage.TOKEN", "s3cret-value-of-thirty-letters")
    cut = {"globs": ["out/t"], "inline": True, "max_file_bytes": 29}
    (entry,) = (await run(talk, "printf s3cret-value-of-thirty-letters > out/t", outputs=cut)).value["output_files"]
    assert "s3cret" not in entry["content"]
    named = await run(
        talk,
        "echo x > out/s3cret-value-of-thirty-letters.txt",
        output_files=["out/*.txt"],
        save_as_artifacts=True,
    )
    assert "s3cret" not in named.content + repr(named.value) + repr(named.effects)
    assert "the name contains a value of skills.env" in named.content or "artifact" in named.content
