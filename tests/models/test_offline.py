from __future__ import annotations

import json
from itertools import permutations

import pytest

from flink_skills.models import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelResponse,
    OfflineModel,
    SkillIndex,
    ToolMessage,
    UserMessage,
)
from flink_skills.models.offline_rules import first_command, first_paragraph, stem
from tests.models.conftest import LOAD, TOOLS, menu

MENU = menu(
    alpha="Convert amounts of money between currencies",
    beta="Diagnose checkpoints that expire or time out",
    gamma="Explain out of memory errors of the heap",
)
BODY = """<skill_content name="beta">
# Checkpoints

Reads the checkpoint history.

```json
{"not": "a command"}
```

```bash
python3 scripts/history.py --all
```

```bash
echo second
```
</skill_content>"""


async def turn(messages: list[Message], system: str = MENU, **fields: object) -> ModelResponse:
    request = ModelRequest(system, messages, fields.pop("tools", TOOLS), **fields)  # type: ignore[arg-type]
    return await OfflineModel().request(request)


def answered(response: ModelResponse, *results: str, failed: bool = False) -> list[Message]:
    calls = response.tool_calls
    return [
        AssistantMessage(response.text, calls),
        *(ToolMessage(c.id, c.name, text, failed) for c, text in zip(calls, results, strict=True)),
    ]


async def test_a_whole_episode() -> None:
    event = '{"job": "billing", "text": "checkpoint 17 expired"}'
    messages: list[Message] = [UserMessage(event)]
    load = await turn(messages)
    assert [(c.name, c.arguments) for c in load.tool_calls] == [("load_skill", {"name": "beta"})]
    messages += answered(load, BODY)
    run = await turn(messages)
    [command] = run.tool_calls
    assert command.name == "execute_shell_command"
    assert command.arguments == {"command": "python3 scripts/history.py --all", "stdin": event}
    assert command.id != load.tool_calls[0].id
    messages += answered(run, 'exit code: 0\nstdout:\n{"cause": "slow"}\nstderr:\n')
    answer = await turn(messages)
    assert (answer.text, answer.tool_calls) == ('{"cause": "slow"}', ())
    assert answer.usage.requests == 1


@pytest.mark.parametrize("system", ["You are a bot.", MENU, ""])
async def test_no_match_loads_nothing(system: str) -> None:
    response = await turn([UserMessage("Bake me a cake, please")], system)
    assert response == await turn([UserMessage("Bake me a cake, please")], system)
    assert response.tool_calls == ()
    assert "No skill fits" in response.text


async def test_the_description_decides_and_not_the_name_or_the_order() -> None:
    misleading = menu(checkpoints="Bake bread and cakes", zzz="Diagnose snapshots that expire")
    response = await turn([UserMessage("my snapshots of checkpoints expire")], misleading)
    assert response.tool_calls[0].arguments == {"name": "zzz"}


async def test_a_session_goes_on_with_the_same_skill_without_loading_it_again() -> None:
    messages: list[Message] = [UserMessage("checkpoint 1 expired")]
    messages += answered(await turn(messages), BODY)
    messages += answered(await turn(messages), "exit code: 0\nstdout:\nfirst\nstderr:\n")
    messages += [AssistantMessage("first"), UserMessage("checkpoint 2 expired")]
    run = await turn(messages)
    assert run.tool_calls[0].name == "execute_shell_command"
    assert run.tool_calls[0].arguments["stdin"] == "checkpoint 2 expired"  # type: ignore[index]


async def test_a_session_can_turn_to_another_skill() -> None:
    messages: list[Message] = [UserMessage("checkpoint 1 expired")]
    messages += answered(await turn(messages), BODY)
    messages += [AssistantMessage("done"), UserMessage("convert 5 EUR of money")]
    assert (await turn(messages)).tool_calls[0].arguments == {"name": "alpha"}


async def test_an_unloaded_skill_is_loaded_again() -> None:
    messages: list[Message] = [UserMessage("checkpoint 1 expired")]
    load = await turn(messages)
    messages += answered(load, BODY)
    unload = ModelResponse("", (type(load.tool_calls[0])("u", "unload_skill", {"name": "beta"}),))
    messages += [*answered(unload, "Unloaded"), AssistantMessage("done"), UserMessage("checkpoint 2 expired")]
    assert (await turn(messages)).tool_calls[0].name == "load_skill"


async def test_a_skill_that_left_the_conversation_is_loaded_again() -> None:
    messages: list[Message] = [UserMessage("checkpoint 1 expired")]
    messages += answered(await turn(messages), "unloaded: beta. This result no longer has the content of the skill.")
    messages += [AssistantMessage("done"), UserMessage("checkpoint 2 expired")]
    assert (await turn(messages)).tool_calls[0].name == "load_skill"


async def test_loading_twice_does_not_lose_the_instructions() -> None:
    messages: list[Message] = [UserMessage("checkpoint 1 expired")]
    load = await turn(messages)
    messages += answered(load, BODY)
    messages += [*answered(load, "Skill beta is loaded already."), UserMessage("checkpoint 2 expired")]
    assert (await turn(messages)).tool_calls[0].name == "execute_shell_command"


async def test_without_a_shell_it_answers_with_the_first_paragraph() -> None:
    messages: list[Message] = [UserMessage("checkpoint 1 expired")]
    messages += answered(await turn(messages, tools=[LOAD]), BODY)
    assert (await turn(messages, tools=[LOAD])).text == "Reads the checkpoint history."


async def test_a_skill_without_a_command_is_read_out() -> None:
    messages: list[Message] = [UserMessage("checkpoint 1 expired")]
    messages += answered(await turn(messages), "# T\n\nJust wait\nfor it.\n\nMore.")
    assert (await turn(messages)).text == "Just wait for it."


@pytest.mark.parametrize(
    ("result", "failed", "answer"),
    [
        ("exit code: 0\nstdout:\nhello\n\nstderr:\nnoise\n", False, "hello"),
        (
            "exit code: 0\nstdout:\nline\nstderr: is a word here\nend\nstderr:\n",
            False,
            "line\nstderr: is a word here\nend",
        ),
        ("exit code: 0\nstdout:\nonly stdout", False, "only stdout"),
        ('{"return_code": 0, "stdout": "from json", "stderr": ""}', False, "from json"),
        (
            "exit code: 3\nstdout:\n\nstderr:\nTraceback\nKeyError: 'x'\n",
            False,
            "The command ended with exit code 3: Traceback\nKeyError: 'x'",
        ),
        ("exit code: 2\nstdout:\nusage\nstderr:\n", False, "The command ended with exit code 2: usage"),
        (
            "exit code: -9\nnote: it ran too long\nstdout:\nstderr:\n",
            False,
            "The command ended with exit code -9: note: it ran too long",
        ),
        (
            "exit code: 0\noutput: empty\nstdout:\nstderr:\n",
            False,
            "The command ended with exit code 0 and wrote nothing.",
        ),
        ("The command may not run here.", True, "The command may not run here."),
    ],
)
async def test_results_of_commands(result: str, failed: bool, answer: str) -> None:
    messages: list[Message] = [UserMessage("checkpoint 1 expired")]
    messages += answered(await turn(messages), BODY)
    messages += answered(await turn(messages), result, failed=failed)
    response = await turn(messages)
    assert response.tool_calls == ()
    assert response.text == answer


async def test_json_on_stdout_is_the_answer_as_it_is() -> None:
    written = json.dumps({"severity": "high", "n": 1.50})
    messages: list[Message] = [UserMessage("checkpoint 1 expired")]
    messages += answered(await turn(messages), BODY)
    messages += answered(await turn(messages), f"exit code: 0\nstdout:\n{written}\nstderr:\n")
    assert (await turn(messages, output_schema={"type": "object"})).text == written


async def test_a_failed_load_is_told() -> None:
    messages: list[Message] = [UserMessage("checkpoint 1 expired")]
    messages += answered(await turn(messages), "There is no skill 'beta'.", failed=True)
    assert (await turn(messages)).text == "There is no skill 'beta'."


async def test_a_conversation_without_an_event() -> None:
    assert "No skill fits" in (await turn([])).text


SKILLS = [
    ("checkpoints", "Diagnose Flink checkpoints that expire, time out or are declined"),
    ("memory", "Diagnose Flink processes that run out of memory: OutOfMemoryError, heap, metaspace"),
    ("triage", "First look at any Flink job that failed: find the exception and its root cause"),
    ("money", "Convert amounts between currencies"),
    ("weather", "Weather forecasts and observations of a city"),
]


@pytest.mark.parametrize(
    ("event", "skill"),
    [
        ("Checkpoint 17 expired before completing", "checkpoints"),
        ("checkpointing keeps timing out", "checkpoints"),
        ("java.lang.OutOfMemoryError: Java heap space", "memory"),
        ('{"lines": ["10:00 ERROR\\njava.lang.OutOfMemoryError"]}', "memory"),
        ("the job failed with an exception", "triage"),
        ("convert this currency", "money"),
        ("the forecast of tomorrow", "weather"),
        ("hello there", None),
        ("what should I do with it, please?", None),
        ("", None),
        ("12345 67 !!", None),
    ],
)
def test_the_best_description_wins(event: str, skill: str | None) -> None:
    assert SkillIndex(SKILLS).best(event) == skill


def test_the_order_of_the_menu_does_not_matter() -> None:
    for order in permutations(SKILLS[:4]):
        assert SkillIndex(order).best("checkpoint exception: declined") == "checkpoints"


def test_ties_go_by_name() -> None:
    same = [("b", "Read logs"), ("c", "Read logs"), ("a", "Read logs")]
    assert SkillIndex(same).best("logs") == "a"


def test_an_empty_menu_has_no_best() -> None:
    assert SkillIndex([]).best("checkpoint") is None


def test_a_long_description_has_no_advantage_by_its_length() -> None:
    rambling = "Weather, climate, rain, wind, snow, storms, ice, maps, charts, and whatever else one may wish"
    assert SkillIndex([("long", rambling), ("short", "Rain")]).best("rain") == "short"


@pytest.mark.parametrize(
    "words",
    [
        ("checkpoint", "checkpoints", "checkpointing", "checkpointed"),
        ("query", "queries"),
        ("diagnose", "diagnosing", "diagnosed", "diagnosis"),
        ("fail", "fails", "failed", "failing"),
    ],
)
def test_forms_of_a_word_have_one_stem(words: tuple[str, ...]) -> None:
    assert len({stem(word) for word in words}) == 1


@pytest.mark.parametrize("word", ["class", "status", "bus", "red", "ring"])
def test_words_that_only_look_like_forms_stay(word: str) -> None:
    assert stem(word) == word


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("```bash\nls -l\n```", "ls -l"),
        ("```sh\na\nb\n```", "a\nb"),
        ("``` shell title=x\nmake\n```", "make"),
        ("~~~bash\nls\n~~~", "ls"),
        ("````bash\necho '```'\n````", "echo '```'"),
        ("```console\n$ python3 x.py\nresult: 5\n$ python3 y.py\n```", "python3 x.py\npython3 y.py"),
        ("```bash\n$ ls\n```", "ls"),
        ("```\npython3 scripts/x.py\n```", "python3 scripts/x.py"),
        ("```\n# first\n./run.sh now\n```", "# first\n./run.sh now"),
        ("```\nFOO=1 BAR=2 python3 x.py\n```", "FOO=1 BAR=2 python3 x.py"),
        ("```\n$SKILLS_DIR/x/run.sh\n```", "$SKILLS_DIR/x/run.sh"),
        ("1. Run:\n\n   ```bash\n   cat <<E\n   x\n   E\n   ```\n", "cat <<E\nx\nE"),
        ("```python\nprint(1)\n```\n\n```bash\nls\n```", "ls"),
        ("```json\n{}\n```\n\n```\nSome sample output.\n```\n\n```sh\nls\n```", "ls"),
        ("```bash\n\n```\n\n```bash\nls\n```", "ls"),
        ("```bash\r\nls\r\n```\r\n", "ls"),
        ("Use `ls` for that.", None),
        ("```python\nprint(1)\n```", None),
        ("```\nThe output looks like this.\n```", None),
        ("```bash\nunclosed", None),
        ("````md\n```bash\nls\n```\n", "ls"),
        ("~~~~\nls\n~~~\n~~~~~\n", "ls\n~~~"),
        ("```sh `x`\n```sh\nls\n```", "ls"),
        ("```{.bash}\nls\n  ```  ", "ls"),
        ("", None),
    ],
)
def test_the_first_command_block(text: str, command: str | None) -> None:
    assert first_command(text) == command


@pytest.mark.parametrize(
    ("text", "paragraph"),
    [
        ("# Title\n\nFirst line\nsecond line.\n\nOther.", "First line second line."),
        ('<skill_content name="x">\n# T\n\nText.\n</skill_content>', "Text."),
        ("```bash\nls\n```\n\nAfter.", "After."),
        ("# Only a title", "# Only a title"),
        ("# T\n```\na\n```\nB.\nC.\n~~~\nd\n~~~", "B. C."),
        ("```\n\nUnclosed.", "Unclosed."),
    ],
)
def test_the_first_paragraph(text: str, paragraph: str) -> None:
    assert first_paragraph(text) == paragraph
