"""Names the class, connector or module that is missing or doubled, and where it should come from."""

from __future__ import annotations

import difflib
import json
import re
import sys
from pathlib import Path

# Nothing may be written into a skill's folder while it is in use.
sys.dont_write_bytecode = True

from flink_log import advice, chain, entries, read_event, report

_MISSING = re.compile(
    r"(?:NoClassDefFoundError|ClassNotFoundException|TypeNotPresentException): "
    r"(?P<init>Could not initialize class )?(?P<name>[\w$./]+)"
)
_FACTORY = re.compile(r"Could not find any (?:format )?factor(?:y|ies) for identifier '(?P<name>[^']+)'")
_CHANGED = re.compile(
    r"(?:NoSuchMethodError|NoSuchFieldError|AbstractMethodError|IncompatibleClassChangeError): (?P<name>.+)"
)
_VERSION = re.compile(
    r"UnsupportedClassVersionError: (?P<name>[\w/$.]+)"
    r".*?class file version (?P<has>\d+).*?up to (?P<most>\d+)"
)
_CAST = re.compile(r"class (?P<name>[\w.$]+) cannot be cast to class (?P<other>[\w.$]+)")
_MODULE = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '?(?P<name>[\w.]+)")
_IDENTIFIER = re.compile(r"[\w-]+$")
# Class file version 45 was Java 1.
_JAVA_OFFSET = 44


def available(lines: list[str], start: int) -> list[str]:
    """The identifiers that Flink lists below "Available factory identifiers are:"."""
    at = next((n for n in range(start, len(lines)) if "identifiers are:" in lines[n]), len(lines))
    names: list[str] = []
    for line in (line.strip() for line in lines[at + 1 :]):
        if line and not _IDENTIFIER.match(line):
            break
        names += [line] if line else []
    return names


def origins(table: str) -> dict[str, str]:
    """Where connectors or packages come from."""
    text = (Path(__file__).parent.parent / "assets" / "origins.json").read_text(encoding="utf-8")
    found: dict[str, str] = json.loads(text)[table]
    return found


def missing_class(match: re.Match[str]) -> tuple[str, str, list[str]]:
    """Diagnosis, name and steps for a class that was not found."""
    name = match["name"].replace("/", ".")
    short = name.rsplit(".", 1)[-1]
    if match["init"]:
        return f"Class {name} cannot be initialized", name, advice("initializer")
    origin = next((jar for package, jar in origins("packages").items() if name.startswith(package)), None)
    steps = advice("known", origin=origin, short=short) if origin else advice("own", short=short)
    return f"Class {name} is missing at run time", name, steps


def judge(line: str, known: list[str]) -> tuple[str, str, list[str]] | None:
    """Diagnosis, the thing it is about, and steps for one line; None when it is not about the class path."""
    if match := _FACTORY.search(line):
        name = match["name"]
        near = difflib.get_close_matches(name, known, n=2, cutoff=0.75)
        jar = origins("connectors").get(name, f"the jar of the connector or format '{name}'")
        steps = advice("near", near=", ".join(near)) if near else []
        what = f"No factory for '{name}': its jar is not on the class path of the client that compiles the job"
        return what, name, steps + advice("factory", jar=jar)
    if match := _MISSING.search(line):
        return missing_class(match)
    if match := _VERSION.search(line):
        has, most = int(match["has"]) - _JAVA_OFFSET, int(match["most"]) - _JAVA_OFFSET
        what = f"{match['name']} was compiled for Java {has}, the process runs Java {most}"
        return what, match["name"], advice("version", has=has, most=most)
    if (match := _CAST.search(line)) and match["name"] == match["other"]:
        return f"{match['name']} is loaded twice, by two class loaders", match["name"], advice("twice")
    if match := _CHANGED.search(line):
        name = match["name"].strip()
        return f"Two versions of a library are mixed: {name}", name, advice("mixed")
    if match := _MODULE.search(line):
        what = f"Python module {match['name']} is missing where the Python workers run"
        return what, match["name"], advice("module")
    return None


def main() -> None:
    event = read_event()
    lines = event["lines"]
    chains = [(entry, chain(entry)) for entry in entries(lines)]
    # Inside a chain the innermost exception names the class as a class loader was asked for it.
    innermost_first = [failure.line for _, failures in chains for failure in reversed(failures)]
    stripped = [line.strip() for line in lines]
    for line in [*innermost_first, *stripped]:
        known = available(lines, stripped.index(line)) if _FACTORY.search(line) else []
        verdict = judge(line, known)
        if verdict is None:
            continue
        diagnosis, name, steps = verdict
        entry, failures = next(((e, f) for e, f in chains if any(x.line == line for x in f)), (None, []))
        where = next((frame for failure in reversed(failures) if (frame := failure.user_frame())), None)
        report(
            diagnosis + (f"; needed at {where}" if where else ""),
            line,
            "class path",
            "critical",
            steps,
            missing=name,
            place=where,
            known=known,
            first_seen=entry.time.isoformat(sep=" ") if entry and entry.time else None,
        )
        return
    report("No class path problem in this log.", lines[-1], "none", "none", advice("none"))


if __name__ == "__main__":
    main()
