"""Sources are declared, with secrets by reference.

Examines the internals of sources.secrets on purpose.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flink_skills.errors import ConfigError
from flink_skills.options import SkillConfig
from flink_skills.skill import Limits
from flink_skills.sources import SourceContext, SourceSpec
from flink_skills.sources.secrets import expand, expand_values

PIN = "0123456789abcdef" * 4
OTHER = "f" * 64


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("/opt/skills", SourceSpec("path", "/opt/skills")),
        ("/opt/a#b.zip", SourceSpec("path", "/opt/a#b.zip")),
        ("/opt/a#sha", SourceSpec("path", "/opt/a#sha")),
        (f"/opt/a.zip#sha256={PIN}", SourceSpec("path", "/opt/a.zip", PIN)),
        (f"/opt/a.zip#sha256={PIN.upper()}", SourceSpec("path", "/opt/a.zip", PIN)),
        (f"/opt/a.zip#sha256=sha256:{PIN}", SourceSpec("path", "/opt/a.zip", PIN)),
        ("/opt/notes#format=heading", SourceSpec("path", "/opt/notes", None, "heading")),
        (f"/opt/a#1#format=heading&sha256={PIN}", SourceSpec("path", "/opt/a#1", PIN, "heading")),
        ("/a#format=heading#format=skill", SourceSpec("path", "/a#format=heading")),
        (f"/a#sha256={PIN}#x", SourceSpec("path", f"/a#sha256={PIN}#x")),
        ("", SourceSpec("path", "")),
    ],
)
def test_pins_are_read_and_written(text: str, spec: SourceSpec) -> None:
    assert SourceSpec.parse("path", text) == spec
    assert SourceSpec.parse("path", str(spec)) == spec
    assert SourceSpec.parse("path", spec) is spec


def test_a_pin_that_nobody_would_check_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'sha265' after '#' is unknown \(did you mean 'sha256'\?\)"):
        SourceSpec.parse("url", f"https://me:pw@host/a.zip?t=1#sha265={PIN}")
    assert SourceSpec.parse("url", "https://host/a.zip#part").location == "https://host/a.zip#part"
    assert SourceSpec.parse("path", "/a#b=c").location == "/a#b=c"


@given(
    st.sampled_from(["path", "resource", "url", "shelf"]),
    st.lists(st.sampled_from(["#", "sha256=", "format=", "heading", "skill", "&", PIN, "/a", "?", "\n", "é"])),
    st.sampled_from([None, PIN, OTHER]),
    st.sampled_from(["skill", "heading"]),
)
def test_a_spec_survives_its_text(kind: str, parts: list[str], sha256: str | None, form: str) -> None:
    spec = SourceSpec(kind, "".join(parts), sha256, form)
    assert SourceSpec.parse(kind, str(spec)) == spec


@given(st.text())
def test_any_text_is_a_spec_or_a_config_error(text: str) -> None:
    try:
        spec = SourceSpec.parse("url", text)
    except ConfigError:
        return
    assert SourceSpec.parse("url", str(spec)) == spec


@pytest.mark.parametrize(
    ("given", "spec"),
    [
        ({"path": "/a"}, SourceSpec("path", "/a")),
        ({"location": "/a", "sha256": PIN}, SourceSpec("path", "/a", PIN)),
        ({"path": "/a", "format": "heading", "sha256": None}, SourceSpec("path", "/a", None, "heading")),
        ({"path": f"/a#sha256={PIN}", "format": "heading"}, SourceSpec("path", "/a", PIN, "heading")),
        ({"path": f"/a#sha256={PIN}", "sha256": PIN.upper()}, SourceSpec("path", "/a", PIN)),
    ],
)
def test_mappings(given: dict[str, Any], spec: SourceSpec) -> None:
    assert SourceSpec.parse("path", given) == spec


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("/a#sha256=12", "sha256 needs 64 hexadecimal digits"),
        (f"/a#sha256={PIN}0", "sha256 needs 64 hexadecimal digits"),
        ("/a#format=md", "no format 'md'; use 'skill' or 'heading'"),
        (f"/a#sha256={PIN}&from=x", "'from' after '#' is unknown"),
        (f"/a#sha256={PIN}&fromat=skill", "did you mean 'format'"),
        (f"/a#sha256={PIN}&sha256={PIN}", "'sha256' after '#' is duplicated"),
        ({"path": "/a", "sha265": PIN}, "'sha265' is unknown (did you mean 'sha256'?)"),
        ({"url": "/a"}, "'url' is unknown"),
        ({}, "needs one string 'path'"),
        ({"path": "/a", "location": "/a"}, "needs one string 'path'"),
        ({"path": 7}, "needs one string 'path'"),
        ({"path": "/a", "sha256": 7}, "64 hexadecimal"),
        ({"path": f"/a#sha256={PIN}", "sha256": OTHER}, "pinned twice, and differently"),
        ({"path": "/a#format=heading", "format": "skill"}, "pinned twice, and differently"),
        (7, "a value of type int is not a valid source; give a string or a mapping"),
        (SourceSpec("url", "https://u:pw@h/a?t=1"), "https://h/a: is declared as path, but it is a url"),
    ],
)
def test_what_is_no_declaration(given: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SourceSpec.parse("path", given)
    assert said in str(caught.value)


def test_no_secret_is_in_what_is_printed_of_a_spec() -> None:
    spec = SourceSpec.parse("url", "https://me:s3cret@host/a.zip?sig=s3cret#format=heading")
    assert repr(spec) == "SourceSpec('url', 'https://host/a.zip', sha256=None, format='heading')"
    for wrong in ("https://me:s3cret@host/a?t=s3cret#sha256=1", "https://s3cret@h/a#format=x"):
        with pytest.raises(ConfigError) as caught:
            SourceSpec.parse("url", wrong)
        assert "s3cret" not in str(caught.value)


# Secrets by reference


def test_references_are_replaced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("from a file ${env:TOKEN}\r\n")
    monkeypatch.setenv("TOKEN", "a ${env:HOME} b")
    assert expand("x ${env:TOKEN} y") == "x a ${env:HOME} b y"
    assert expand(f"${{file:{tmp_path}/token}}|") == "from a file ${env:TOKEN}|"
    assert expand("${TOKEN} ${foo:x} $TOKEN ${env:") == "${TOKEN} ${foo:x} $TOKEN ${env:"
    assert expand_values({"a": ["${env:TOKEN}", 1, None], "${env:TOKEN}": True}) == {
        "a": ["a ${env:HOME} b", 1, None],
        "${env:TOKEN}": True,
    }


def test_errors_name_the_reference_and_no_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "s3cret")
    (tmp_path / "binary").write_bytes(b"s3cret\xff")
    (tmp_path / "long").write_text("s3cret" * 20_000)
    os.mkfifo(tmp_path / "fifo")
    for reference, said in (
        ("env:MISSING_ONE", "environment variable 'MISSING_ONE'"),
        ("env:", "environment variable ''"),
        ("file:token", "no absolute path"),
        (f"file:{tmp_path}/none", "does not exist"),
        (f"file:{tmp_path}", "is not a file"),
        (f"file:{tmp_path}/fifo", "is not a file"),
        (f"file:{tmp_path}/binary", "not UTF-8 text"),
        (f"file:{tmp_path}/long", "larger than"),
        ("file:/a\0b", "no absolute path"),
    ):
        with pytest.raises(ConfigError) as caught:
            expand(f"${{env:GIVEN}}${{{reference}}}")
        assert said in str(caught.value)
        assert reference.partition(":")[2] in str(caught.value) or "\0" in reference
        assert "s3cret" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_file_system_options_have_their_secrets_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    options = json.dumps({"s3": {"key": "${env:MY_KEY}", "config": {"a": ["${env:MY_KEY}"]}, "anon": False}})
    context = SourceContext(SkillConfig({"skills.source.options": options}))
    with pytest.raises(ConfigError, match=r"skills\.source\.options, for s3: the environment variable 'MY_KEY'"):
        context.file_system_options("s3")
    assert context.file_system_options("s3", expanded=False)["key"] == "${env:MY_KEY}"
    assert context.file_system_options("gs") == {}
    monkeypatch.setenv("MY_KEY", "s3cret")
    assert context.file_system_options("s3") == {"key": "s3cret", "config": {"a": ["s3cret"]}, "anon": False}
    assert context.without_options().file_system_options("s3") == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"s3": 1}', '"s3cret"'])
def test_options_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match=r"option skills\.source\.options: .*write a JSON object") as caught:
        SourceContext(SkillConfig({"skills.source.options": text})).file_system_options("s3")
    assert "s3cret" not in str(caught.value)


def test_limits_come_from_the_options_unless_they_are_given() -> None:
    config = SkillConfig({"skills.limits.file": 5})
    assert SourceContext(config).limits.file == 5
    assert SourceContext(config, limits=Limits(file=7)).limits.file == 7
