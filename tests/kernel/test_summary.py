"""Summary of a run of the escape suite."""

from __future__ import annotations

from .summary import summary

_FACTS = {"kernel": "6.1.0-56-amd64", "landlock_abi": "2", "uid": "9999", "user_namespaces": "yes"}


def case(name: str, inside: str = "", **noted: str) -> str:
    properties = "".join(f'<property name="{key}" value="{value}"/>' for key, value in noted.items())
    about = 'file="tests/escape/test_a.py" classname="tests.escape.test_a"'
    return f'<testcase {about} name="{name}"><properties>{properties}</properties>{inside}</testcase>'


def test_counts_are_of_backends() -> None:
    report = "".join(
        [
            case("test_level[landlock-same]", level="LANDLOCK_PARTIAL", **_FACTS),
            case("test_row[exit-landlock-switched]"),
            case("test_row[landlock-same-row03]", '<failure message="no">ESCAPED</failure>'),
            case("test_row[row02-none-same]"),
            case("test_level[bwrap-same]", '<skipped message="cannot be started here"/>'),
            case("test_row[row02-bwrap-same]", '<skipped message="cannot be started here"/>'),
            case("test_every_row_has_a_test"),
        ]
    )
    found = summary(f"<testsuites><testsuite>{report}</testsuite></testsuites>".encode())
    assert found == {
        **_FACTS,
        "backends": {
            "all": {"level": None, "passed": 1, "failed": 0, "skipped": {}},
            "bwrap": {"level": None, "passed": 0, "failed": 0, "skipped": {"cannot be started here": 2}},
            "landlock": {"level": "LANDLOCK_PARTIAL", "passed": 2, "failed": 1, "skipped": {}},
            "none": {"level": None, "passed": 1, "failed": 0, "skipped": {}},
        },
        "failed": ["tests/escape/test_a.py::test_row[landlock-same-row03]"],
    }
