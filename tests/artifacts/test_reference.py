from __future__ import annotations

import pytest

from flink_skills.artifacts import ArtifactError, Reference, artifact_ref, parse_reference

VERSION = "0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("artifact://a.txt", Reference("artifact", "a.txt")),
        ("artifact://dir/ü b.txt", Reference("artifact", "dir/ü b.txt")),
        (f"artifact://a.txt@{VERSION}", Reference("artifact", "a.txt", VERSION)),
        ("artifact://a.txt@latest", Reference("artifact", "a.txt")),
        ("artifact://me@example.org", Reference("artifact", "me@example.org")),
        (f"artifact://me@example.org@{VERSION}", Reference("artifact", "me@example.org", VERSION)),
        ("artifact://a.txt@3", Reference("artifact", "a.txt@3")),
        ("ARTIFACT://a.txt", Reference("artifact", "a.txt")),
        (" workspace://out/a.txt\n", Reference("workspace", "out/a.txt")),
        ("skill://log-triage/assets/a.csv", Reference("skill", "assets/a.csv", skill="log-triage")),
        ("skill://log-triage", Reference("skill", "", skill="log-triage")),
        ("host:///data/a.csv", Reference("host", "/data/a.csv")),
    ],
)
def test_references(text: str, expected: Reference) -> None:
    assert parse_reference(text) == expected
    assert parse_reference(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a.txt", "not a valid reference"),
        ("", "not a valid reference"),
        ("https://example.org/a", "unsupported input: https://"),
        ("file:///etc/passwd", "unsupported input: file://"),
        ("artifact://", "the name is empty"),
        ("artifact:///etc/passwd", "relative path"),
        ("artifact://../x", "'..'"),
        (f"artifact://@{VERSION}", "empty"),
        ("skill://", "names no skill"),
        ("host://data", "absolute"),
        ("host://", "absolute"),
        ("workspace://", "names nothing"),
    ],
)
def test_what_is_no_reference(text: str, said: str) -> None:
    with pytest.raises(ArtifactError, match=said) as refused:
        parse_reference(text)
    assert refused.value.reason == "invalid"


def test_refs_of_artifacts() -> None:
    assert artifact_ref("a") == "artifact://a"
    assert artifact_ref("a", VERSION) == f"artifact://a@{VERSION}"
