"""Keys of Flink's options, read from its jars, and values that these options reject."""

from __future__ import annotations

import difflib
import functools
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyflink.find_flink_home import _find_flink_home
from pyflink.java_gateway import get_gateway

from flink_skills.flink.bridge import configuration_with
from flink_skills.flink.flink_failures import job_failure

# A string constant of a class file that is a key: its tag, its length and its characters.
_CONSTANT = re.compile(rb"\x01(..)([a-z][a-z0-9-]*(?:\.[a-z0-9-]+)+)", re.DOTALL)
_CLASS = re.compile(r"org/apache/flink/(?!.*shaded).*Options\.class")
# Plugins and connectors have options with these prefixes, which Flink's own classes do not declare.
_FREE = (
    "metrics.",
    "s3.",
    "s3a.",
    "fs.",
    "env.",
    "kubernetes.",
    "high-availability.",
    "containerized.",
    "python.",
    "security.",
    "user.",
    "yarn.",
)
# One or two letters of a key differ.
_SIMILARITY = 0.93


def misspelled_options(keys: Iterable[str]) -> dict[str, str]:
    """Return the keys that Flink does not have and that are very similar to one of its keys, with this key."""
    found: dict[str, str] = {}
    for key in keys:
        # Flink's jars are not read if there is no key to compare.
        if not key.startswith(_FREE) and key not in _classes():
            near = difflib.get_close_matches(key, _classes(), n=1, cutoff=_SIMILARITY)
            if near and not near[0].startswith(_FREE):
                found[key] = near[0]
    return found


def refused_values(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options whose value has another type, with the message of Flink. This starts Flink's JVM."""
    configuration = configuration_with(options)
    found = {}
    for key in options:
        name = _classes().get(key)
        option = _options_of(name).get(key) if name is not None else None
        if option is None:
            continue
        try:
            configuration._j_configuration.get(option)
        except Py4JJavaError as error:
            found[key] = job_failure(error) or f"the value of {key} cannot be used"
    return found


@functools.cache
def _classes() -> Mapping[str, str]:
    """Return the class that declares an option, by the option's key."""
    found: dict[str, str] = {}
    for jar in sorted(Path(_find_flink_home(), "lib").glob("flink-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if _CLASS.fullmatch(name):
                    for length, key in _CONSTANT.findall(archive.read(name)):
                        if int.from_bytes(length, "big") == len(key):
                            found.setdefault(key.decode(), name.removesuffix(".class").replace("/", "."))
    return found


@functools.cache
def _options_of(name: str) -> Mapping[str, Any]:
    """Return the options of a class, by key."""
    gateway = get_gateway()
    try:
        of = gateway.jvm.java.lang.Class.forName(name)
        wanted = gateway.jvm.java.lang.Class.forName("org.apache.flink.configuration.ConfigOption")
        options = [field.get(None) for field in of.getFields() if field.getType().equals(wanted)]
        return {str(option.key()): option for option in options}
    except Py4JError:
        return {}  # the class is not on the JVM's class path, so its options are not checked
