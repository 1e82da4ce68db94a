"""Makes an overlay wrong in one way: the rule that must find it, the change, and words of the finding."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

from deploy.check.finding import Manifests

Objects = list[dict[str, Any]]
Change = Callable[[Objects], None]


class Broken(NamedTuple):
    rule: str
    name: str
    change: Change
    words: str
    overlay: str = "production"


def changed(manifests: Manifests, change: Change) -> Manifests:
    objects = [copy.deepcopy(dict(found)) for found in manifests.objects]
    change(objects)
    return Manifests(manifests.name, tuple(objects))


def one(objects: Objects, kind: str, ending: str = "") -> dict[str, Any]:
    return next(found for found in objects if found["kind"] == kind and found["metadata"]["name"].endswith(ending))


def spec(objects: Objects) -> dict[str, Any]:
    return one(objects, "FlinkDeployment")["spec"]


def pod(objects: Objects) -> dict[str, Any]:
    return spec(objects)["podTemplate"]["spec"]


def main(objects: Objects) -> dict[str, Any]:
    return pod(objects)["containers"][0]


def task_manager(objects: Objects) -> dict[str, Any]:
    return spec(objects)["taskManager"]["podTemplate"]["spec"]


def put(*path: str | int, value: Any) -> Change:
    """Set a value of the FlinkDeployment's specification."""

    def change(objects: Objects) -> None:
        at: Any = spec(objects)
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = value

    return change


def drop(*path: str | int) -> Change:
    def change(objects: Objects) -> None:
        at: Any = spec(objects)
        for part in path[:-1]:
            at = at[part]
        del at[path[-1]]

    return change


def configure(**values: str | None) -> Change:
    """Set or, with None, remove keys of Flink's configuration; ``__`` stands for a dot and ``_`` for a dash."""

    def change(objects: Objects) -> None:
        for name, value in values.items():
            key = name.replace("__", ".").replace("_", "-")
            if value is None:
                del spec(objects)["flinkConfiguration"][key]
            else:
                spec(objects)["flinkConfiguration"][key] = value

    return change


def both(*changes: Change) -> Change:
    def change(objects: Objects) -> None:
        for each in changes:
            each(objects)

    return change


def variable(name: str, value: str) -> Change:
    return lambda objects: main(objects)["env"].append({"name": name, "value": value})


def job_file(old: str, new: str) -> Change:
    def change(objects: Objects) -> None:
        data = one(objects, "ConfigMap")["data"]
        assert old in data["job.yaml"]
        data["job.yaml"] = data["job.yaml"].replace(old, new)

    return change


def log(old: str, new: str) -> Change:
    def change(objects: Objects) -> None:
        configuration = spec(objects)["logConfiguration"]
        assert old in configuration["log4j-console.properties"]
        configuration["log4j-console.properties"] = configuration["log4j-console.properties"].replace(old, new)

    return change


def volume_mount(index: int, key: str, value: Any) -> Change:
    return lambda objects: main(objects)["volumeMounts"][index].__setitem__(key, value)


def rename_config_map(objects: Objects) -> None:
    one(objects, "ConfigMap")["metadata"]["name"] += "-else"


def cluster_role(objects: Objects) -> None:
    one(objects, "Role")["kind"] = "ClusterRole"


def network(kind: str, keep: Callable[[dict[str, Any]], bool]) -> Change:
    def change(objects: Objects) -> None:
        policy = one(objects, "NetworkPolicy")["spec"]
        before = len(policy[kind])
        policy[kind] = [rule for rule in policy[kind] if keep(rule)]
        assert len(policy[kind]) < before

    return change


def ports_of(rule: dict[str, Any]) -> set[int]:
    return {port["port"] for port in rule.get("ports", [])}


POD = ("podTemplate", "spec")
MAIN = (*POD, "containers", 0)
SECURITY = (*MAIN, "securityContext")
TASKS = ("taskManager", "podTemplate", "spec")
KEY = "sk-" + "proj-abcdefghijklmnopqrstu"


JOB = "/opt/flink/job/job.yaml"


def agent_file(old: str, new: str) -> Change:
    def change(objects: Objects) -> None:
        data = one(objects, "ConfigMap")["data"]
        assert old in data["agent.yaml"]
        data["agent.yaml"] = data["agent.yaml"].replace(old, new)

    return change


def flink_of_the_job(entry: str) -> Change:
    return job_file("agent: agent.yaml", f"flink: {{{entry}}}\nagent: agent.yaml")


def options_of_the_job(entry: str) -> Change:
    return job_file("skills.turn.timeout: 3 min", f"skills.turn.timeout: 3 min, {entry}")


def arguments(*words: str) -> Change:
    return put("job", "args", value=["-pym", "flink_skills.job", *words])


def key_variable(objects: Objects) -> dict[str, Any]:
    return next(found for found in key_container(objects)["env"] if found["name"] == "OPENAI_API_KEY")


def key_container(objects: Objects) -> dict[str, Any]:
    """The container that has the model's key: Flink's in a TaskManager."""
    container: dict[str, Any] = task_manager(objects)["containers"][0]
    return container


def budget(**values: Any) -> Change:
    def change(objects: Objects) -> None:
        spec = one(objects, "PodDisruptionBudget")["spec"]
        del spec["minAvailable"]
        spec.update(values)

    return change
