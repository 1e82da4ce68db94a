"""Similar names of arguments are accepted, and others are answered with an error.

Examines the internals of tools.argument_model on purpose.
"""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field, ValidationError

from flink_skills.tools import ArgumentError, Arguments
from flink_skills.tools.argument_model import Also, ArgumentModel


class Read(ArgumentModel):
    path: Annotated[str, Field(min_length=1), Also("file_path", "file")]
    skill_name: Annotated[str | None, Also("skill")] = None
    offset: int = 0


@pytest.mark.parametrize("name", ["path", "Path", "PATH", "file_path", "filePath", "FilePath", "file-path", "file"])
def test_every_spelling(name: str) -> None:
    assert Read.model_validate({name: "a.md"}).path == "a.md"


@pytest.mark.parametrize("first", ["file", "Path", "PATH", "filePath", "pa_th"])
def test_two_names_of_one_argument_are_an_error(first: str) -> None:
    for given in ({first: "b.md", "path": "a.md"}, {"path": "a.md", first: "a.md"}):
        with pytest.raises(ArgumentError, match=f"The argument path is given twice, as .*{first}"):
            Read.model_validate(given)


def test_a_name_that_is_null_or_blank_is_left_out() -> None:
    assert Read.model_validate({"path": "a.md", "skill": " ", "skill_name": "x"}).skill_name == "x"
    assert Read.model_validate({"path": None, "file": "b.md"}).path == "b.md"


def test_what_is_left_out() -> None:
    found = Read.model_validate({"path": "a.md", "skillName": " ", "offset": None})
    assert (found.skill_name, found.offset, found.model_fields_set) == (None, 0, {"path"})
    with pytest.raises(ValidationError):
        Read.model_validate({"path": ""})
    with pytest.raises(ValidationError):
        Read.model_validate({"offset": 1})


@pytest.mark.parametrize(("wrong", "right"), [("pth", "path"), ("offsets", "offset"), ("skil_name", "skill_name")])
def test_near_misses_are_errors(wrong: str, right: str) -> None:
    with pytest.raises(ArgumentError, match=f"There is no argument '{wrong}': did you mean {right}"):
        Read.model_validate({"path": "a.md", wrong: "x"})


@pytest.mark.parametrize("extra", ["reason", "description", "background", "thought", "", "_"])
def test_other_extras_are_ignored(extra: str) -> None:
    assert Read.model_validate({"path": "a.md", extra: "x"}).path == "a.md"


def test_the_schema_shows_one_name() -> None:
    schema = Arguments("read", Read).schema
    assert list(schema["properties"]) == ["path", "skill_name", "offset"]
    assert schema["required"] == ["path"]


def test_an_error_names_the_argument_as_the_schema_does() -> None:
    class Write(ArgumentModel):
        newline: bool = Field(False, alias="submit")

    with pytest.raises(ArgumentError, match="\n- submit: "):
        Arguments("write", Write).read({"submit": "perhaps"})
