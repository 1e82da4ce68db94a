"""Rules about the job's own file, its agent, what they refer to, and the models that they name."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import yaml

from deploy.check.finding import Finding, Manifests
from deploy.check.jobs import REFERENCE, Job, jobs, texts_of
from deploy.check.mounts import files_of, mount_around, within
from deploy.check.pods import flat
from flink_skills.agents.declare.agent import Agent
from flink_skills.agents.declare.resource import SharedResources
from flink_skills.agents.plan.compilation import compile_plan
from flink_skills.documents.document import DocumentError
from flink_skills.errors import SkillsError
from flink_skills.job.agent_source import AgentSources
from flink_skills.job.agent_tables import table_warnings
from flink_skills.job.job_reading import ReadJob, read_job
from flink_skills.job.shared_resources import shared_resources
from flink_skills.manager import SkillScope
from flink_skills.models.setup import ModelSetup

__all__ = ["job_files", "model_keys", "read_agents", "references", "setups"]

USUAL_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
# Read by TaskManagers as well as by the job's main.
LATE = ("skills.env.", "skills.source.options", "skills.from.urls", "skills.remote.")
# Of a reference that this machine cannot resolve; whether the pods can is asked by the rule references.
_OPEN = re.compile(r"which \$\{(env|file):[^}]*\} asks for|what \$\{(env|file):.* stands for")


def job_files(manifests: Manifests) -> Iterator[Finding]:
    """The job's file is where the job looks for it, with all that it needs, and is sound."""
    for job in jobs(manifests):
        if job.arguments is None:
            continue
        if job.arguments.problem:
            yield Finding(job.place, job.arguments.problem)
            continue
        file = job.arguments.config
        mount = mount_around(job.cluster, "jobmanager", file)
        if mount is None:
            if other := _elsewhere(job, PurePosixPath(file).name):
                yield Finding(job.place, f"--config {file}: is on no volume; the ConfigMap has {other}")
            continue  # in the image
        files = files_of(job.cluster, "jobmanager", mount)
        if files is None:
            yield Finding(job.place, f"--config {file}: volume {mount['name']} is no ConfigMap of this overlay")
        elif file not in files.texts:
            there = ", ".join(sorted(PurePosixPath(path).name for path in files.texts))
            yield Finding(job.place, f"--config {file}: the ConfigMap has {there}, and no {PurePosixPath(file).name}")
        else:
            yield from (Finding(job.place, f"{job.file}: {line}") for line in read_agents(job)[2])


def _elsewhere(job: Job, name: str) -> str:
    """Where a ConfigMap of the overlay has a file of this name in Flink's container."""
    for container in job.cluster.pods["jobmanager"]["spec"].get("containers", [])[:1]:
        for mount in container.get("volumeMounts") or []:
            files = files_of(job.cluster, "jobmanager", mount)
            for path in files.texts if files else ():
                if PurePosixPath(path).name == name:
                    return path
    return ""


def read_agents(job: Job) -> tuple[list[Agent], SharedResources, list[str]]:
    """Return the declared agents of a job's file, what they share, and what is wrong with all of it.

    References to values of the cluster may be open. The code of an agent is in the image, and is not run here.
    """
    assignments = job.arguments.assignments if job.arguments else ()
    with tempfile.TemporaryDirectory(prefix="deploy-check-") as folder:
        for file, text in job.files.items():
            path = Path(folder) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        lines: list[str] = []
        agents: list[Agent] = []
        shared = SharedResources()
        try:
            read = read_job(Path(folder) / job.file, assignments, lenient=True)
            lines += [str(problem) for problem in read.missing if not _OPEN.search(problem.message)]
            shared = shared_resources(read)
            sources = AgentSources(read)
            lines += dict.fromkeys(message for stage in read.stages for message in table_warnings(read, stage))
            for stage in read.stages:
                if not _has_code(read, stage.name):
                    agents.append(sources.of(stage.name).agent)
        except DocumentError as error:
            lines += [str(problem) for problem in error.problems if not _is_open(problem.message)]
        except SkillsError as error:
            lines += str(error).splitlines()
        except (yaml.YAMLError, ValueError, OSError) as error:
            lines += [f"cannot be read: {' '.join(str(error).split())}"]
        places = (f"{folder}/", f"{Path(folder).resolve()}/")
        for place in places:
            lines = [line.replace(place, "") for line in lines]
    return agents, shared, lines


def _has_code(read: ReadJob, name: str) -> bool:
    """Return whether an agent of the job, or one that it calls, is a class."""
    entry = (read.job.agents or {}).get(name)
    word = read.job.agent if entry is None else entry.agent
    if isinstance(word, str) and not word.endswith((".yaml", ".yml")):
        return True
    tools = (entry.agent_tools or {}) if entry is not None else {}
    return any(_has_code(read, of if isinstance(of, str) else of.agent) for of in tools.values())


def _is_open(message: str) -> bool:
    """Whether a message is about a reference alone that the pods may resolve."""
    # A declared agent's values are checked as they stand where a reference in them was left.
    return bool(_OPEN.search(message)) or ("kind of reference" not in message and bool(REFERENCE.search(message)))


def references(manifests: Manifests) -> Iterator[Finding]:
    """What ``${env:…}`` and ``${file:…}`` of the job, its agent and its options stand for is in the pods."""
    for job in jobs(manifests):
        for place, role, match in _references(job):
            if match["default"] is not None:
                continue
            name = match["name"]
            if match["kind"] == "env":
                if not job.environment(role).has(name):
                    message = f"{place}: {match[0]}: the pod of the {role} has no variable {name}"
                    yield Finding(job.place, f"{message}; set it, or write a default as in ${{env:{name}:-…}}")
            elif problem := _file_problem(job, role, name):
                yield Finding(job.place, f"{place}: {match[0]}: {problem}")


def _references(job: Job) -> Iterator[tuple[str, str, re.Match[str]]]:
    """Place, role of the pod that resolves it, and each reference, once."""
    seen: set[tuple[str, str]] = set()
    texts: list[tuple[str, tuple[str, ...], str]] = [
        (f"flinkConfiguration.{key}", ("options", key), value)
        for key, value in {**job.cluster.configuration, **dict(flat(job.own))}.items()
        if key.startswith("skills.")
    ]
    texts += [(f"{job.file}: {'.'.join(path)}", path, text) for path, text in texts_of(job.document)]
    for file, agent in job.agents.values():
        if file:
            texts += [(f"{file}: {'.'.join(path)}", ("agent", *path), text) for path, text in texts_of(agent or {})]
    for place, path, text in texts:
        role = "taskmanager" if _is_late(path) else "jobmanager"
        comments = re.sub(r"--[^\n]*", "", text) if path == ("tables",) else text
        for match in REFERENCE.finditer(comments):
            if (role, match[0]) not in seen:
                seen.add((role, match[0]))
                yield place, role, match


def _is_late(path: tuple[str, ...]) -> bool:
    return path[-2:] == ("skills", "urls") or (path[0] == "options" and path[1].startswith(LATE))


def _file_problem(job: Job, role: str, path: str) -> str:
    if path.startswith("/var/run/secrets/kubernetes.io/"):
        return ""
    mount = mount_around(job.cluster, role, path)
    if mount is None:
        return "" if within(path, "/opt") or within(path, "/etc/hostname") else f"is on no volume of the {role}"
    files = files_of(job.cluster, role, mount)
    if files is not None and files.whole and path not in files.texts:
        return f"is not in the ConfigMap of volume {mount['name']}"
    return ""


def setups(job: Job) -> list[ModelSetup]:
    """Return the chat models of a job whose file and agents can be used."""
    if job.file not in job.files:
        return []
    agents, shared, _ = read_agents(job)
    found: list[ModelSetup] = []
    # Names of skills are checked where the sources are read; a scope makes them possible.
    scopes = [SkillScope("job", paths=["/opt/flink/skills"])]
    for agent in agents:
        try:
            plan = compile_plan(agent, job_scopes=scopes, config=job.config, shared=shared)
        except SkillsError:
            continue
        found += [model.setup for one in plan.tree() for model in one.models]
    return found


def model_keys(manifests: Manifests) -> Iterator[Finding]:
    """Each chat model has its key in the TaskManagers, where turns run."""
    for job in jobs(manifests):
        known = job.environment("taskmanager")
        for setup in setups(job):
            name = setup.api_key_env or USUAL_KEYS.get(setup.provider)
            if setup.provider == "openai" and setup.base_url is not None and setup.api_key_env is None:
                continue  # a server of one's own may ask for none
            if name is not None and not known.has(name):
                yield Finding(
                    job.place,
                    f"model {setup.label} needs the variable {name}, and the pod of the taskmanager has none: "
                    "take it from a secretKeyRef",
                )
