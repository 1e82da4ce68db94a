"""Rules about the options of flink_skills, and about the folders and addresses that they name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from deploy.check.finding import Finding, Manifests
from deploy.check.jobs import Job, jobs
from deploy.check.mounts import files_of, mount_around, volume_of, within
from deploy.check.quantities import read_size
from flink_skills.errors import SkillsError
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.sources.address import AddressPolicy

__all__ = ["addresses", "folders", "lock_file", "one_component", "options", "sizes", "sources", "tracing"]

IMAGE = "/opt"
"""Below it an image has what is its own: skills in /opt/flink/skills, or where its Dockerfile puts them."""
WRITTEN = (SkillOptions.STORE_DIR, SkillOptions.WORKSPACE_DIR)
SIZES = (
    (SkillOptions.STORE_DIR, SkillOptions.STORE_MAX_SIZE),
    (SkillOptions.WORKSPACE_DIR, SkillOptions.WORKSPACE_MAX_SIZE),
)
SOURCES = (SkillOptions.FROM_PATHS, SkillOptions.FROM_RESOURCES, SkillOptions.FROM_URLS)
MARK = "flink-skills/skills-"
"""Annotations of a FlinkDeployment with it name the component whose skills.from.paths it has."""
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def options(manifests: Manifests) -> Iterator[Finding]:
    """Every ``skills.*`` key of the manifests exists, and its value can be read."""
    for found in [*manifests.of_kind("FlinkDeployment"), *manifests.of_kind("FlinkSessionJob")]:
        for key, value in (found["spec"].get("flinkConfiguration") or {}).items():
            if not key.startswith("skills."):
                continue
            try:
                SkillConfig().set(key, value)
            except SkillsError as error:
                yield Finding(f"{found['kind']} {found['metadata']['name']}", f"flinkConfiguration: {error}")
    for job in jobs(manifests):
        for key, setting in job.settings.items():
            if not key.startswith("skills.") or setting.is_known:
                continue
            try:  # the value is a secret of the cluster; the key is not
                SkillOptions.by_key(key)
            except SkillsError as error:
                yield Finding(job.place, f"{setting.place or 'flinkConfiguration'}: {error}")


def sources(manifests: Manifests) -> Iterator[Finding]:
    """A path of skills is the image's, or on a volume of both pods that a job cannot write to."""
    for job in jobs(manifests):
        key = SkillOptions.FROM_PATHS.key
        named = [(path.partition("#")[0], job.named(key)) for path in job.config.get(SkillOptions.FROM_PATHS)]
        folder = PurePosixPath(job.arguments.config).parent if job.arguments else PurePosixPath("/")
        named += [(str(folder / path), f"skills of {job.file}") for path in job.sources("paths")]
        baked = f"{MARK}baked" in (job.cluster.deployment["metadata"].get("annotations") or {})
        for path, what in named:
            if "${" in path:
                continue
            for role in job.cluster.pods:
                mount = mount_around(job.cluster, role, path)
                place = f"{job.cluster.place}, pod of the {role}"
                if mount is None and not (within(path, IMAGE) or baked):
                    yield Finding(
                        place,
                        f"{what}: {path} is neither on a volume nor in the image below {IMAGE}; "
                        "for skills elsewhere in the image take the component skills-baked",
                    )
                elif mount is not None and not mount.get("readOnly"):
                    yield Finding(place, f"{what}: mount {mount['name']} with readOnly: true")
                elif mount is not None and not _has(job, role, path):
                    yield Finding(place, f"{what}: {path} is not in the ConfigMap of volume {mount['name']}")
        if _has_none(job):
            yield Finding(job.place, "no skills: take a component skills-…, or name skills in the job's file")


def _has(job: Job, role: str, path: str) -> bool:
    """False where a path is on a ConfigMap of the overlay that has no such file."""
    mount = mount_around(job.cluster, role, path)
    files = None if mount is None else files_of(job.cluster, role, mount)
    return files is None or not files.whole or any(within(file, path) for file in files.texts)


def _has_none(job: Job) -> bool:
    """Whether it is sure that a job has no skills: a main or an agent of somebody else may bring its own."""
    if job.spec is None or job.arguments is None or not job.is_readable:
        return False
    if any(option.key in job.settings and job.settings[option.key].value.strip() for option in SOURCES):
        return False
    return not any(job.sources(kind) for kind in ("paths", "resources", "urls"))


def one_component(manifests: Manifests) -> Iterator[Finding]:
    """One component sets ``skills.from.paths``; the second one would silently replace the first one's."""
    for cluster in {job.cluster.name: job.cluster for job in jobs(manifests)}.values():
        annotations = cluster.deployment["metadata"].get("annotations") or {}
        names = sorted(key.removeprefix(MARK) for key in annotations if key.startswith(MARK))
        if len(names) > 1:
            both = " and ".join(f"skills-{name}" for name in names)
            yield Finding(cluster.place, f"components {both}: the skills of one hide those of the other; keep one")


def addresses(manifests: Manifests) -> Iterator[Finding]:
    """URLs of skills are such as the options allow."""
    for job in jobs(manifests):
        key = SkillOptions.FROM_URLS.key
        named = [(url, job.named(key)) for url in job.config.get(SkillOptions.FROM_URLS)]
        named += [(url, f"skills of {job.file}") for url in job.sources("urls")]
        for url, what in named:
            if url.startswith("${"):
                continue
            try:
                AddressPolicy(job.config).check_url(url)
            except (SkillsError, ValueError) as error:
                yield Finding(job.place, f"{what}: {error}")


def lock_file(manifests: Manifests) -> Iterator[Finding]:
    """The lock file is where it is read, in the JobManager."""
    for job in jobs(manifests):
        path = job.config.get(SkillOptions.LOCK)
        if not path or job.is_unknown(SkillOptions.LOCK.key):
            continue
        what = job.named(SkillOptions.LOCK.key)
        if mount_around(job.cluster, "jobmanager", path) is None:
            if not within(path, IMAGE):
                yield Finding(job.place, f"{what}: {path} is neither on a volume nor in the image below {IMAGE}")
        elif not _has(job, "jobmanager", path):
            yield Finding(job.place, f"{what}: {path} is not in the ConfigMap: add the file to its files")


def folders(manifests: Manifests) -> Iterator[Finding]:
    """Store and workspaces are on sized volumes of the TaskManagers that can be written to."""
    for job in jobs(manifests):
        for option in WRITTEN:
            folder = job.config.get(option)
            place = f"{job.cluster.place}, pod of the taskmanager"
            if job.is_unknown(option.key):
                continue
            mount = mount_around(job.cluster, "taskmanager", folder) if folder else None
            if not folder:
                yield Finding(job.cluster.place, f"set {option.key} to a folder on a sized volume")
            elif mount is None or mount.get("readOnly"):
                yield Finding(place, f"{job.named(option.key)}: {folder} is not on a volume that can be written to")


def sizes(manifests: Manifests) -> Iterator[Finding]:
    """What may be kept in a folder fits on its ``emptyDir``, or the pod is evicted."""
    for job in jobs(manifests):
        for where, most in SIZES:
            folder, size = job.config.get(where), job.config.get(most)
            mount = mount_around(job.cluster, "taskmanager", folder) if folder else None
            if mount is None or job.is_unknown(most.key) or job.is_unknown(where.key):
                continue
            volume = volume_of(job.cluster, "taskmanager", mount)
            limit = (volume.get("emptyDir") or {}).get("sizeLimit")
            room = None if limit is None else read_size(limit)
            if limit is not None and room is None:
                yield Finding(job.cluster.place, f"volume {mount['name']}: cannot read sizeLimit {limit}; write 2Gi")
            elif room is not None and not 0 < size <= room:
                amount = f"{size >> 20} MiB" if size else "without limit"
                yield Finding(
                    job.place,
                    f"{job.named(most.key)} ({amount}) is more than volume {mount['name']} has ({limit}): "
                    "the pod would be evicted",
                )


def tracing(manifests: Manifests) -> Iterator[Finding]:
    """Spans have somewhere to go."""
    for job in jobs(manifests):
        if job.config.get(SkillOptions.TRACE_EXPORTER) != "otlp":
            continue
        known = job.environment("taskmanager")
        if not any(known.has(name) for name in ENDPOINTS):
            what = job.named(SkillOptions.TRACE_EXPORTER.key)
            yield Finding(
                job.place, f"{what} is otlp, and the taskmanager has no {ENDPOINTS[0]}: take the component otlp"
            )
