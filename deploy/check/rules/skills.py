"""Rules about the options of flink_skills, where its folders are, and the job's own file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from deploy.check.finding import Finding, Manifests, Object
from deploy.check.pods import Cluster, clusters
from flink_skills.errors import SkillsError
from flink_skills.job.agent_source import job_agent
from flink_skills.job.reading import read_job
from flink_skills.options import SkillConfig, SkillOptions

__all__ = ["folders", "job_files", "options", "sources"]

BAKED = "/opt/flink/skills"
"""Where the image has its skills."""
WRITTEN = (SkillOptions.STORE_DIR, SkillOptions.WORKSPACE_DIR)
SOURCES = (SkillOptions.FROM_PATHS, SkillOptions.FROM_RESOURCES, SkillOptions.FROM_URLS)


def options(manifests: Manifests) -> Iterator[Finding]:
    """Every ``skills.*`` key exists, and its value can be read."""
    for found in [*manifests.of_kind("FlinkDeployment"), *manifests.of_kind("FlinkSessionJob")]:
        for key, value in found["spec"].get("flinkConfiguration", {}).items():
            if not key.startswith("skills."):
                continue
            try:
                SkillConfig().set(key, value)
            except SkillsError as error:
                yield Finding(f"{found['kind']} {found['metadata']['name']}", f"flinkConfiguration: {error}")


def sources(manifests: Manifests) -> Iterator[Finding]:
    """A path of skills is the image's, or on a volume of both pods that a job cannot write to."""
    for cluster in clusters(manifests):
        config = _config(cluster.configuration)
        for path in config.get(SkillOptions.FROM_PATHS):
            for role in cluster.pods:
                mount = _mount_around(cluster, role, path)
                place = f"{cluster.place}, pod of the {role}"
                if mount is None and not _within(path, BAKED):
                    yield Finding(place, f"skills.from.paths: {path} is neither on a volume nor in the image's {BAKED}")
                elif mount is not None and not mount.get("readOnly"):
                    yield Finding(place, f"skills.from.paths: mount {mount['name']} with readOnly: true")
        if not any(config.get(option) for option in SOURCES) and "job" in cluster.spec and not _own_skills(cluster):
            yield Finding(cluster.place, "no skills: take a component skills-…, or name skills in the job's file")


def folders(manifests: Manifests) -> Iterator[Finding]:
    """Store and workspaces are on sized volumes of the TaskManagers that can be written to."""
    for cluster in clusters(manifests):
        config = _config(cluster.configuration)
        for option in WRITTEN:
            folder = config.get(option)
            place = f"{cluster.place}, pod of the taskmanager"
            mount = _mount_around(cluster, "taskmanager", folder) if folder else None
            if not folder:
                yield Finding(cluster.place, f"set {option.key} to a folder on a sized volume")
            elif mount is None or mount.get("readOnly"):
                yield Finding(place, f"{option.key}: {folder} is not on a volume that can be written to")


def job_files(manifests: Manifests) -> Iterator[Finding]:
    """The job's file is in the ConfigMap that the job names, with all that it needs, and is sound."""
    for cluster, job, place in _jobs(manifests):
        arguments = list(job.get("args", []))
        if (
            job.get("entryClass") != "org.apache.flink.client.python.PythonDriver"
            or "flink_skills.job" not in arguments
        ):
            continue
        if "--config" not in arguments[:-1]:
            yield Finding(place, "args: flink_skills.job needs --config FILE")
            continue
        file = arguments[arguments.index("--config") + 1]
        mount = _mount_around(cluster, "jobmanager", file)
        if mount is None:
            continue  # in the image
        files = _config_map(cluster, mount["name"])
        if files is None:
            yield Finding(place, f"--config {file}: volume {mount['name']} is no ConfigMap of this overlay")
            continue
        name = str(PurePosixPath(file).relative_to(mount["mountPath"]))
        if name not in files:
            yield Finding(place, f"--config {file}: the ConfigMap has {', '.join(sorted(files))}, and no {name}")
            continue
        yield from (Finding(place, f"{name}: {line}") for line in _problems(files, name))


def _problems(files: Mapping[str, str], name: str) -> list[str]:
    """What is wrong with a job file and its agent; references to the cluster's variables and files may be open."""
    with tempfile.TemporaryDirectory(prefix="deploy-check-") as folder:
        for file, text in files.items():
            (Path(folder) / file).write_text(text, encoding="utf-8")
        try:
            job_agent(read_job(Path(folder) / name, lenient=True))
        except SkillsError as error:
            return [
                line.replace(f"{folder}/", "").replace(str(Path(folder).resolve()), "")
                for line in str(error).splitlines()
            ]
    return []


def _own_skills(cluster: Cluster) -> bool:
    """Whether a file of the job's ConfigMap declares skills."""
    for volume in cluster.pods["jobmanager"]["spec"].get("volumes", []):
        files = _config_map(cluster, volume["name"]) or {}
        if any("skills:" in text for text in files.values()):
            return True
    return False


def _jobs(manifests: Manifests) -> Iterator[tuple[Cluster, Object, str]]:
    by_name = {cluster.name: cluster for cluster in clusters(manifests)}
    for cluster in by_name.values():
        if "job" in cluster.spec:
            yield cluster, cluster.spec["job"], cluster.place
    for found in manifests.of_kind("FlinkSessionJob"):
        if found["spec"].get("deploymentName") in by_name and "job" in found["spec"]:
            cluster = by_name[found["spec"]["deploymentName"]]
            yield cluster, found["spec"]["job"], f"FlinkSessionJob {found['metadata']['name']}"


def _config(configuration: Mapping[str, str]) -> SkillConfig:
    """The options that can be read; the others are findings of :func:`options`."""
    config = SkillConfig()
    for key, value in configuration.items():
        if key.startswith("skills."):
            try:
                config.set(key, value)
            except SkillsError:
                continue
    return config


def _mount_around(cluster: Cluster, role: str, path: str) -> dict[str, Any] | None:
    """The mount of Flink's container that a path is on."""
    mounts = [
        mount
        for container in cluster.pods[role]["spec"].get("containers", [])[:1]
        for mount in container.get("volumeMounts", [])
        if _within(path, mount["mountPath"])
    ]
    return max(mounts, key=lambda mount: len(mount["mountPath"]), default=None)


def _within(path: str, folder: str) -> bool:
    return PurePosixPath(path).is_relative_to(folder)


def _config_map(cluster: Cluster, volume_name: str) -> dict[str, str] | None:
    for volume in cluster.pods["jobmanager"]["spec"].get("volumes", []):
        if volume["name"] == volume_name and "configMap" in volume:
            found = cluster.manifests.named("ConfigMap", volume["configMap"]["name"])
            return None if found is None else dict(found.get("data", {}))
    return None
