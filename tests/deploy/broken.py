"""Overlays with one thing wrong in each: the rule that must find it, the change, and words of the finding."""

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

BROKEN = [
    # Schemas.
    Broken("flink_kinds", "unknown version", put("flinkVersion", value="v2_3"), "v2_3.*is not one of"),
    Broken("flink_kinds", "misspelt field", put("jobManger", value={}), "jobManger"),
    Broken("flink_kinds", "enum", put("job", "upgradeMode", value="stateful"), "stateful"),
    Broken("flink_kinds", "type", put("jobManager", "replicas", value="2"), "not of type 'integer'"),
    Broken(
        "flink_kinds", "kind", lambda o: o.append({**one(o, "FlinkDeployment"), "kind": "FlinkJob"}), "no such kind"
    ),
    Broken(
        "flink_kinds",
        "API version",
        lambda o: one(o, "FlinkDeployment").update(apiVersion="flink.apache.org/v1"),
        "v1beta1",
    ),
    Broken("kubernetes_kinds", "misspelt", lambda o: one(o, "Role").update(rule=[]), "'rule' was unexpected"),
    Broken(
        "kubernetes_kinds",
        "kind of nobody",
        lambda o: o.append({"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": {"name": "a"}}),
        "only kinds of Kubernetes",
    ),
    Broken("merged_pods", "misspelt in a template", put(*MAIN, "volumeMount", value=[]), "volumeMount"),
    Broken("merged_pods", "wrong type", put(*POD, "terminationGracePeriodSeconds", value="1m"), "1m"),
    # Merging.
    Broken(
        "merge_by_name",
        "switched off",
        configure(kubernetes__operator__pod_template__merge_arrays_by_name="false"),
        "by position",
    ),
    Broken(
        "nothing_lost",
        "merged by position",
        configure(kubernetes__operator__pod_template__merge_arrays_by_name="false"),
        "volume workspaces|mount of job",
    ),
    Broken(
        "nothing_lost",
        "a volume mounted twice",
        lambda o: task_manager(o)["containers"][0]["volumeMounts"].append({"name": "workspaces", "mountPath": "/else"}),
        "mount of workspaces at /opt/flink-skills/workspaces .* not in the merged pod",
    ),
    Broken(
        "nothing_lost",
        "a variable twice",
        lambda o: main(o)["env"].append(main(o)["env"][0]),
        "XDG_CACHE_HOME .* twice",
    ),
    Broken("main_container", "another name", put(*MAIN, "name", value="flink"), "no container flink-main-container"),
    Broken(
        "main_container",
        "not the first",
        lambda o: pod(o)["containers"].insert(0, {"name": "sidecar", "image": "sidecar:1.0"}),
        "not the first",
    ),
    # Volumes.
    Broken("mounts_and_volumes", "no volume", volume_mount(0, "name", "jobs"), "mounts jobs, and there is no such"),
    Broken(
        "mounts_and_volumes",
        "no mount",
        lambda o: pod(o)["volumes"].append({"name": "x", "emptyDir": {"sizeLimit": "1Gi"}}),
        "x is mounted nowhere",
    ),
    Broken(
        "mounts_and_volumes", "one path", volume_mount(1, "mountPath", "/opt/flink/log"), "two mounts at /opt/flink/log"
    ),
    Broken("sized_volumes", "no size", put(*POD, "volumes", 1, "emptyDir", value={}), "tmp: give its emptyDir"),
    # Isolation.
    Broken("restricted", "root", put(*POD, "securityContext", "runAsUser", value=0), "as root"),
    Broken(
        "restricted",
        "maybe root",
        lambda o: [c.pop("runAsNonRoot") for c in (pod(o)["securityContext"], main(o)["securityContext"])] and None,
        "runAsNonRoot",
    ),
    Broken("restricted", "privileged", put(*SECURITY, "privileged", value=True), "privileged"),
    Broken("restricted", "escalation", drop(*SECURITY, "allowPrivilegeEscalation"), "allowPrivilegeEscalation"),
    Broken(
        "restricted",
        "capabilities",
        put(*SECURITY, "capabilities", value={"drop": ["ALL"], "add": ["SYS_PTRACE"]}),
        "no others",
    ),
    Broken("restricted", "seccomp", drop(*POD, "securityContext", "seccompProfile"), "seccompProfile"),
    Broken(
        "restricted", "writable root", put(*SECURITY, "readOnlyRootFilesystem", value=False), "readOnlyRootFilesystem"
    ),
    Broken("restricted", "groups", drop(*POD, "securityContext", "fsGroup"), "fsGroup"),
    Broken("restricted", "host", put(*POD, "hostPID", value=True), "hostPID is on"),
    Broken(
        "restricted",
        "host folder",
        put(*POD, "volumes", 1, value={"name": "tmp", "hostPath": {"path": "/tmp"}}),
        "folder of the node",
    ),
    Broken(
        "restricted",
        "the init container",
        lambda o: spec(o)["jobManager"]["podTemplate"]["spec"]["initContainers"][0].pop("securityContext"),
        "container input",
        "local",
    ),
    Broken("writable_folders", "no temporary files", volume_mount(1, "readOnly", True), "/tmp is read-only"),
    # Flink.
    Broken("names", "too long", lambda o: one(o, "FlinkDeployment")["metadata"].update(name="a" * 46), "at most 45"),
    Broken("names", "no account", put("serviceAccount", value=""), "serviceAccount is empty"),
    Broken("names", "log file", put("logConfiguration", value={"log4j.properties": ""}), "log4j-console.properties"),
    Broken("refused_keys", "namespace", configure(kubernetes__namespace="agents"), "kubernetes.namespace is refused"),
    Broken("refused_keys", "cluster", configure(high_availability__cluster_id="a"), "metadata.name"),
    Broken("refused_keys", "no effect", configure(parallelism__default="8"), "set spec.job.parallelism"),
    Broken(
        "refused_keys",
        "of a session job",
        lambda o: one(o, "FlinkSessionJob")["spec"].update(flinkConfiguration={"kubernetes.cluster-id": "a"}),
        "is refused",
        "session",
    ),
    Broken(
        "memory_beside_the_jvm",
        "unreadable",
        put("taskManager", "resource", "memory", value="4 gigs"),
        "cannot read '4 gigs'",
    ),
    Broken(
        "memory_beside_the_jvm",
        "none",
        drop("jobManager", "resource", "memory"),
        "spec.jobManager.resource.memory is missing",
    ),
    Broken("memory_beside_the_jvm", "no room", configure(skills__worker__processes="16"), "16 workers: raise"),
    Broken(
        "memory_beside_the_jvm",
        "min above max",
        configure(taskmanager__memory__jvm_overhead__max="1g"),
        "min is above max",
    ),
    Broken(
        "sessions",
        "no cluster",
        lambda o: one(o, "FlinkSessionJob")["spec"].update(deploymentName="else"),
        "no such FlinkDeployment",
        "session",
    ),
    Broken(
        "sessions",
        "a job cluster",
        put("job", value={"parallelism": 1, "upgradeMode": "last-state"}),
        "job of its own",
        "session",
    ),
    Broken(
        "sessions",
        "a local jar",
        lambda o: one(o, "FlinkSessionJob")["spec"]["job"].update(jarURI="local:///a.jar"),
        "the operator itself fetches",
        "session",
    ),
    Broken("sessions", "parallelism", put("job", "parallelism", value=0), "at least 1"),
    Broken("sessions", "a jar elsewhere", put("job", "jarURI", value="https://example.com/a.jar"), "only local:"),
    Broken("metrics", "no factory", configure(metrics__reporters="prom, jmx"), "jmx: set metrics.reporter.jmx.factory"),
    Broken("metrics", "no port", drop(*MAIN, "ports"), "does not have it"),
    Broken("logs", "none", drop("logConfiguration"), "no log4j-console.properties"),
    Broken(
        "logs", "loud", log("logger.environment.level = WARN", "logger.environment.level = INFO"), "PythonEnvUtils logs"
    ),
    Broken("logs", "not named", log("logger.bundles.name", "#"), "DefaultJobBundleFactory logs"),
    # State.
    Broken(
        "checkpoints_and_availability",
        "no interval",
        configure(execution__checkpointing__interval=None),
        "interval is not set",
    ),
    Broken(
        "checkpoints_and_availability",
        "no folder",
        configure(execution__checkpointing__dir=None),
        "last-state needs execution",
    ),
    Broken(
        "checkpoints_and_availability",
        "no availability",
        configure(high_availability__type="NONE"),
        "several JobManagers need",
    ),
    Broken(
        "checkpoints_and_availability",
        "no storage",
        configure(high_availability__storageDir=None),
        "needs high-availability.storageDir",
    ),
    Broken("checkpoints_and_availability", "stateless", put("job", "upgradeMode", value="stateless"), "would forget"),
    Broken(
        "checkpoints_and_availability",
        "savepoints",
        both(configure(execution__checkpointing__savepoint_dir=None), put("job", "upgradeMode", value="savepoint")),
        "upgradeMode savepoint needs",
    ),
    Broken(
        "checkpoints_and_availability",
        "a session job",
        lambda o: one(o, "FlinkSessionJob")["spec"]["job"].update(upgradeMode="stateless"),
        "would forget",
        "session",
    ),
    Broken("checkpoints_and_availability", "old keys", configure(state__checkpoints__dir="s3://a/b"), "is of Flink 1"),
    Broken(
        "shared_folders",
        "in the container",
        configure(execution__checkpointing__dir="file:///data"),
        "on no volume in the jobmanager",
    ),
    Broken(
        "shared_folders",
        "ends with the pod",
        configure(high_availability__storageDir="file:///tmp/ha"),
        "kind emptyDir",
    ),
    Broken("shared_folders", "no scheme", configure(execution__checkpointing__dir="/data"), "write a scheme"),
    # Skills.
    Broken("options", "misspelt", configure(skills__turn__timout="1 min"), "skills.turn.timeout"),
    Broken("options", "unreadable", configure(skills__turn__timeout="soon"), "cannot use 'soon'"),
    Broken(
        "options",
        "of a session job",
        lambda o: one(o, "FlinkSessionJob")["spec"].update(flinkConfiguration={"skills.strikt": "true"}),
        "skills.strict",
        "session",
    ),
    Broken("sources", "nowhere", configure(skills__from__paths="/srv/skills"), "neither on a volume"),
    Broken(
        "sources",
        "writable",
        lambda o: [m.pop("readOnly", None) for m in main(o)["volumeMounts"]] and None,
        "readOnly: true",
        "skills-configmap",
    ),
    Broken("sources", "none", configure(skills__from__urls=None), "no skills"),
    Broken("folders", "no volume", configure(skills__workspace__dir="/srv/work"), "/srv/work is not on a volume"),
    Broken("folders", "unset", configure(skills__store__dir=None), "set skills.store.dir"),
    Broken("job_files", "unknown key", job_file("input: {table", "inputs: {table"), "inputs"),
    Broken("job_files", "unknown option", job_file("skills.turn.timeout", "skills.turn.timout"), "skills.turn.timout"),
    Broken("job_files", "no file", lambda o: one(o, "ConfigMap")["data"].pop("job.yaml"), "and no job.yaml"),
    Broken("job_files", "no agent", lambda o: one(o, "ConfigMap")["data"].pop("agent.yaml"), "agent.yaml"),
    Broken("job_files", "not named", put("job", "args", value=["-pym", "flink_skills.job"]), "needs --config FILE"),
    Broken(
        "job_files", "of a session job", job_file("input: {table: incidents", "input: {table: 7"), "input", "session"
    ),
    # References, secrets, images.
    Broken("objects_exist", "ConfigMap", rename_config_map, "is not in the overlay"),
    Broken("objects_exist", "account", put("serviceAccount", value="default"), "service account default"),
    Broken("by_reference", "variable", variable("OPENAI_API_KEY", "abc"), "take it from a secretKeyRef"),
    Broken("by_reference", "key under another name", variable("MODEL", KEY), "take it from a secretKeyRef"),
    Broken("by_reference", "configuration", configure(s3__secret_key="abc"), "shown in the web UI"),
    Broken(
        "by_reference",
        "Secret",
        lambda o: o.append({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"b": "c"}}),
        "has values",
    ),
    Broken(
        "by_reference",
        "table",
        job_file("'topic' = 'incidents'", "'password' = 'hunter2'"),
        "line 15: the value of password",
    ),
    Broken(
        "by_reference",
        "login",
        job_file("'topic' = 'incidents'", "'x' = 'PlainLoginModule required username=\"a\" password=\"b\";'"),
        "a password",
    ),
    Broken("pinned", "no tag", put("image", value="flink-skills"), "neither tag nor digest"),
    Broken(
        "pinned",
        "a port is no tag",
        put("image", value="registry.example.com:5000/flink-skills"),
        "neither tag nor digest",
    ),
    Broken("pinned", "latest", put("image", value="flink-skills:latest"), "latest moves"),
    Broken("pinned", "a moving major", put("image", value="flink-skills:2"), "the tag 2 moves"),
    Broken(
        "pinned",
        "sidecar",
        put(*POD, "containers", 1, "image", value="git-sync"),
        "container skills-sync",
        "skills-git-sync",
    ),
    Broken(
        "pinned",
        "volume",
        put(*POD, "volumes", -1, "image", "reference", value="my-skills"),
        "volume skills",
        "skills-oci-volume",
    ),
    # Access.
    Broken("listed_verbs", "all verbs", lambda o: one(o, "Role")["rules"][0].update(verbs=["*"]), r"verbs has '\*'"),
    Broken(
        "listed_verbs",
        "secrets",
        lambda o: one(o, "Role")["rules"][0]["resources"].append("secrets"),
        "no rights on secrets",
    ),
    Broken("listed_verbs", "cluster", cluster_role, "a Role of the job's namespace"),
    Broken(
        "enough", "pods", lambda o: one(o, "Role", "agent")["rules"][0]["verbs"].remove("create"), "may not create pods"
    ),
    Broken(
        "enough",
        "leaders",
        lambda o: one(o, "Role", "taskmanager")["rules"][0]["verbs"].remove("watch"),
        "may not watch configmaps",
    ),
    Broken(
        "enough", "no binding", lambda o: o.remove(one(o, "RoleBinding", "taskmanager")), "of the taskmanager may not"
    ),
    Broken("enough", "no token", put(*TASKS, "automountServiceAccountToken", value=False), "has no token"),
    Broken(
        "enough",
        "one account",
        configure(kubernetes__taskmanager__service_account=None),
        "TaskManagers, where skills run, may change",
    ),
    Broken("bindings", "role", lambda o: one(o, "RoleBinding")["roleRef"].update(name="else"), "Role else is not"),
    Broken(
        "bindings",
        "account",
        lambda o: one(o, "RoleBinding")["subjects"][0].update(name="else"),
        "service account else",
    ),
    # Network.
    Broken(
        "policy",
        "other labels",
        lambda o: one(o, "NetworkPolicy")["spec"].update(podSelector={"matchLabels": {"a": "b"}}),
        "do labels match",
    ),
    Broken(
        "policy",
        "no egress",
        lambda o: one(o, "NetworkPolicy")["spec"].update(policyTypes=["Ingress"]),
        "denies egress",
    ),
    Broken("policy", "names", network("egress", lambda rule: 53 not in ports_of(rule)), "port 53"),
    Broken("policy", "operator", network("ingress", lambda rule: 8081 not in ports_of(rule)), "keeps the operator out"),
    Broken("policy", "scraper", network("ingress", lambda rule: 9249 not in ports_of(rule)), "keeps the scraper out"),
    Broken(
        "policy", "own pods", network("ingress", lambda rule: "ports" in rule), "cannot reach each other: allow them in"
    ),
    Broken(
        "policy",
        "everybody",
        lambda o: one(o, "NetworkPolicy")["spec"]["egress"].append({"ports": [{"port": 443}]}),
        "opens out to everybody",
    ),
    Broken(
        "disruption_budgets",
        "no pod",
        lambda o: one(o, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"].update(component="jm"),
        "selects no pod",
    ),
    Broken(
        "disruption_budgets",
        "TaskManagers",
        lambda o: one(o, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"].pop("component"),
        "selects TaskManagers",
    ),
    Broken("disruption_budgets", "no room", put("jobManager", "replicas", value=1), "a drain never ends"),
]
