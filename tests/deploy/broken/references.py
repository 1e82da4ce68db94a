"""References, secrets and images."""

from __future__ import annotations

from tests.deploy.broken.making import KEY, POD, Broken, configure, job_file, put, rename_config_map, variable

BROKEN = [
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
]
