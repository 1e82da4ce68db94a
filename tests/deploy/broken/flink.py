"""Flink and its operator."""

from __future__ import annotations

from tests.deploy.broken.making import MAIN, Broken, configure, drop, flink_of_the_job, log, one, put, spec

BROKEN = [
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
    Broken(
        "excluded_agents",
        "the agent is not excluded",
        configure(job__autoscaler__enabled="true"),
        "scale agent log-triage by its busy time.*add b938dfb9936ee2cb3db61e7e1c092f91 to job.autoscaler.vertex",
    ),
    Broken(
        "excluded_agents",
        "another vertex is excluded, by the keys of old operators",
        lambda o: spec(o)["flinkConfiguration"].update(
            {
                "kubernetes.operator.job.autoscaler.enabled": "true",
                "kubernetes.operator.job.autoscaler.vertex.exclude.ids": "bc764cd8ddf7a0cff126f51c16239658",
            }
        ),
        "add b938dfb9936ee2cb3db61e7e1c092f91",
    ),
    Broken("metrics", "no factory", configure(metrics__reporters="prom, jmx"), "jmx: set metrics.reporter.jmx.factory"),
    Broken("metrics", "no port", drop(*MAIN, "ports"), "does not have it"),
    Broken("logs", "none", drop("logConfiguration"), "no log4j-console.properties"),
    Broken(
        "logs", "loud", log("logger.environment.level = WARN", "logger.environment.level = INFO"), "PythonEnvUtils logs"
    ),
    Broken(
        "logs", "loud at its end", log("logger.bundles.level = OFF", "logger.bundles.level = ERROR"), "its level to OFF"
    ),
    Broken("logs", "not named", log("logger.bundles.name", "#"), "DefaultJobBundleFactory logs"),
    Broken(
        "metrics",
        "unreadable port",
        configure(metrics__reporter__prom__port="prom"),
        "metrics.reporter.prom.port: cannot read 'prom'",
    ),
    Broken(
        "of_the_cluster",
        "in the job's file",
        flink_of_the_job("high-availability.type: none"),
        "has no effect in a job",
    ),
]
