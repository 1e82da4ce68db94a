"""``skill_names``: what a model may see is enforced in every tool, not only in its prompt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyflink.common import Types

from flink_skills import AgentsExecutionEnvironment
from flink_skills.testing import Call, Reply, ScriptedModelServer
from tests.flink.agents import Scripted
from tests.flink.running import collect, flink_environment
from tests.flink.skill_files import write_skill

pytestmark = pytest.mark.flink

ASKED = (
    Call("load_skill", {"name": "secret"}),
    Call("load_skill", {"name": "secrex"}),
    Call("load_skill_resource", {"name": "secret", "path": "references/where.txt"}),
    Call("unload_skill", {"name": "secret"}),
    Call("load_skill", {"name": "publik"}),
    Call("load_skill", {"name": "public"}),
    Call("load_skill_resource", {"name": "public", "path": "references/where.txt"}),
    Call("execute_shell_command", {"command": "ls $SKILLS_DIR; cat $SKILLS_DIR/secret/SKILL.md"}),
)


def script(body: dict[str, Any]) -> Reply:
    """One call at a time, then the answer."""
    done = sum(message["role"] == "tool" for message in body["messages"])
    return Reply(tool_calls=(ASKED[done],)) if done < len(ASKED) else Reply("done")


@pytest.mark.row("B12")
def test_a_filtered_skill_does_not_exist_for_the_model(
    serve: Callable[..., ScriptedModelServer], tmp_path: Path
) -> None:
    server = serve(script)
    skills = tmp_path / "skills"
    write_skill(skills, "public", description="For everybody.")
    write_skill(skills, "secret", description="For some.")
    env = flink_environment()
    agents_env = AgentsExecutionEnvironment.get_execution_environment(env).add_skills_from_paths(str(skills))
    events = env.from_collection([("a", "b")], Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.STRING()]))
    narrow = agents_env.from_datastream(events, "k").apply(Scripted(server.url, skill_names=["public"]))
    records = collect(narrow.to_datastream(), narrow.to_datastream(tag="errors"))
    assert [(record["answer"], record["skills"]) for record in records] == [("done", ["public"])]

    last = server.requests[-1]
    assert "secret" not in str(last["messages"][0])
    assert "secret" not in str(last["tools"])
    results = [message["content"] for message in last["messages"] if message["role"] == "tool"]
    hidden, absent, resource, unload, misspelt, loaded, read, listed = results
    # The same words as for a skill that nobody has.
    assert hidden == absent.replace("secrex", "secret")
    assert hidden == resource == unload
    assert "There is no skill 'secret'. Skills: public." in hidden
    assert "There is no skill 'publik'. Did you mean public? Skills: public." in misspelt
    assert "Say hello." in loaded
    assert read == "this is public\n"
    assert "secret" not in listed.partition("stderr:")[0]
    assert "No such file" in listed
