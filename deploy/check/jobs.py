"""The jobs of an overlay: their files, and the configuration in effect when all that they say is put together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import yaml

from deploy.check.arguments import Arguments, read_arguments
from deploy.check.finding import Manifests, Object
from deploy.check.mounts import Environment, environment, files_of, mount_around
from deploy.check.pods import Cluster, clusters, flat
from flink_skills.errors import SkillsError
from flink_skills.options import SkillConfig

__all__ = ["REFERENCE", "Job", "Setting", "jobs", "resolved"]

DRIVER = "org.apache.flink.client.python.PythonDriver"
REFERENCE = re.compile(r"(?<!\$)\$\{(?P<kind>env|file):(?P<name>[^{}]*?)(?P<default>:-(?:[^{}]|\$\{[^{}]*\})*)?\}")
# A running cluster does not take these from a job.
OF_THE_CLUSTER = ("taskmanager.", "jobmanager.", "kubernetes.", "high-availability", "rest.", "env.", "metrics.")
_ENTRIES = ("path", "resource", "url")


class Setting(NamedTuple):
    """A value, and where it stands: empty for the FlinkDeployment's flinkConfiguration."""

    value: str
    place: str = ""

    @property
    def is_known(self) -> bool:
        """Whether the value is there to be looked at: what a Secret has is not."""
        return not REFERENCE.search(self.value)


@dataclass(frozen=True)
class Job:
    """A job on its cluster; without ``spec`` a session cluster whose jobs are not in the overlay."""

    cluster: Cluster
    spec: Object | None
    place: str
    own: Mapping[str, Any]

    @cached_property
    def arguments(self) -> Arguments | None:
        """None where the main is not ``flink_skills.job``, so that nothing is known of what it does."""
        if self.spec is None or self.spec.get("entryClass") != DRIVER:
            return None
        return read_arguments(self.spec.get("args") or [])

    @cached_property
    def files(self) -> dict[str, str]:
        """The texts beside the job's file, by name; empty where it is not in a ConfigMap of the overlay."""
        if self.arguments is None or not self.arguments.config:
            return {}
        mount = mount_around(self.cluster, "jobmanager", self.arguments.config)
        found = None if mount is None else files_of(self.cluster, "jobmanager", mount)
        folder = PurePosixPath(self.arguments.config).parent
        return {
            str(PurePosixPath(path).relative_to(folder)): text
            for path, text in (found.texts if found else {}).items()
            if text is not None and PurePosixPath(path).is_relative_to(folder) and ".." not in PurePosixPath(path).parts
        }

    @property
    def file(self) -> str:
        """The name of the job's file."""
        return PurePosixPath(self.arguments.config).name if self.arguments is not None else ""

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """The job's file as data, as far as it can be read; empty otherwise."""
        return read_mapping(self.files.get(self.file, ""))

    @cached_property
    def agents(self) -> dict[str, tuple[str, Mapping[str, Any] | None]]:
        """The declared agents by name, "" for the one of a job with one: the file, and the agent as data.

        The file is "" for an agent in the job's file. The agent is None if it is code, or if its file is missing.
        """
        several = self.document.get("agents")
        if not isinstance(several, Mapping):
            return {"": self._declared(self.document.get("agent"))}
        return {
            str(name): self._declared(of["agent"] if isinstance(of, Mapping) and "agent" in of else of)
            for name, of in several.items()
        }

    def _declared(self, given: Any) -> tuple[str, Mapping[str, Any] | None]:
        if isinstance(given, Mapping):
            return "", given
        if not isinstance(given, str) or not given.endswith((".yaml", ".yml")):
            return "", None
        return given, read_mapping(self.files[given]) if given in self.files else None

    @cached_property
    def is_readable(self) -> bool:
        """Whether all that declares skills and models is in the overlay."""
        return bool(self.document) and all(agent is not None for _, agent in self.agents.values())

    def environment(self, role: str) -> Environment:
        return environment(self.cluster, role)

    @cached_property
    def settings(self) -> dict[str, Setting]:
        """The configuration in effect: the job's file over flinkConfiguration, and ``--set`` over both."""
        found = {key: Setting(value) for key, value in self.cluster.configuration.items()}
        found |= {key: Setting(value, f"{self.place}, flinkConfiguration") for key, value in flat(self.own)}
        known = self.environment("jobmanager")
        flink, options = self.document.get("flink"), self.document.get("options")
        for key, value in flat(flink) if isinstance(flink, Mapping) else ():
            if not key.startswith(OF_THE_CLUSTER):
                found[key] = Setting(resolved(value, known), f"flink of {self.file}")
        for key, given in options.items() if isinstance(options, Mapping) else ():
            found[str(key)] = Setting(resolved(_option_text(given), known), f"options of {self.file}")
        for word in self.arguments.assignments if self.arguments else ():
            key, sign, value = word.partition("=")
            if sign:
                found[key.strip()] = Setting(value.strip(), "args, --set")
        return found

    def get(self, key: str, default: str = "") -> str:
        """A value that is in effect; the default also where it is not known."""
        setting = self.settings.get(key)
        return setting.value if setting is not None and setting.is_known else default

    def is_unknown(self, key: str) -> bool:
        """Whether a value is set and cannot be looked at."""
        return key in self.settings and not self.settings[key].is_known

    def named(self, key: str) -> str:
        """A key for a finding, with the place where its value stands, if that is not flinkConfiguration."""
        place = self.settings[key].place if key in self.settings else ""
        return f"{key} ({place})" if place else key

    @cached_property
    def config(self) -> SkillConfig:
        """The options of ours in effect that can be read; others are findings of the rule ``options``."""
        config = SkillConfig()
        for key, setting in self.settings.items():
            if key.startswith("skills."):
                try:
                    config.set(key, setting.value)
                except SkillsError:
                    continue
        return config

    def sources(self, kind: str) -> list[str]:
        """Sources of skills that the job's file and its agent declare: ``paths``, ``resources`` or ``urls``."""
        known = self.environment("jobmanager")
        found: list[str] = []
        own = [(agent or {}).get("skills") for _, agent in self.agents.values()]
        for section in (self.document.get("skills"), *own):
            given = section.get(kind) if isinstance(section, Mapping) else None
            found += [resolved(_entry(item), known) for item in given] if isinstance(given, list) else []
        return [source for source in found if source]


def jobs(manifests: Manifests) -> list[Job]:
    """The jobs of the overlay, and the clusters that have none."""
    found: list[Job] = []
    sessions = manifests.of_kind("FlinkSessionJob")
    for cluster in clusters(manifests):
        own = [one for one in sessions if one["spec"].get("deploymentName") == cluster.name and "job" in one["spec"]]
        if "job" in cluster.spec or not own:
            found.append(Job(cluster, cluster.spec.get("job"), cluster.place, {}))
        for one in own:
            place = f"FlinkSessionJob {one['metadata']['name']}"
            found.append(Job(cluster, one["spec"]["job"], place, one["spec"].get("flinkConfiguration") or {}))
    return found


def read_mapping(text: str) -> Mapping[str, Any]:
    """A mapping of a YAML file; empty for what is none, which the rule ``job_files`` tells."""
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return {}
    return found if isinstance(found, Mapping) else {}


def resolved(text: str, known: Environment) -> str:
    """A text with the references replaced whose values the overlay tells, or that have a default."""

    def value(match: re.Match[str]) -> str:
        found = known.values.get(match["name"]) if match["kind"] == "env" else None
        if found:
            return found
        if match["default"] is not None and match["kind"] == "env" and not known.has(match["name"]):
            return resolved(match["default"].removeprefix(":-"), known)
        return f"${{{match['kind']}:{match['name']}}}"

    return REFERENCE.sub(value, text)


def _option_text(value: Any) -> str:
    if isinstance(value, list):
        return ";".join(_entry(item) for item in value)
    if isinstance(value, Mapping):
        return json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


def _entry(item: Any) -> str:
    """A source without its pins."""
    if isinstance(item, Mapping):
        return next((str(item[key]) for key in _ENTRIES if item.get(key)), "")
    return str(item).partition("#")[0]


def texts_of(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every text in nested data, with the keys that lead to it."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts_of(item, (*path, str(key)))
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item, path)
    elif isinstance(value, str):
        yield path, value
