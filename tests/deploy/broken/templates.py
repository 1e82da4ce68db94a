"""Schemas, pod templates, volumes and isolation."""

from __future__ import annotations

from tests.deploy.broken.making import (
    MAIN,
    POD,
    SECURITY,
    Broken,
    configure,
    drop,
    main,
    one,
    pod,
    put,
    spec,
    task_manager,
    volume_mount,
)

BROKEN = [
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
]
