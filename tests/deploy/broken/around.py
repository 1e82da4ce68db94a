"""Access, network and disruption budgets."""

from __future__ import annotations

from tests.deploy.broken.making import (
    TASKS,
    Broken,
    agent_file,
    budget,
    cluster_role,
    configure,
    job_file,
    network,
    one,
    ports_of,
    put,
)

BROKEN = [
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
    Broken("disruption_budgets", "no room in percent", budget(minAvailable="51%"), "a drain never ends"),
    Broken("disruption_budgets", "nothing may go", budget(maxUnavailable=0), "a drain never ends"),
    Broken("disruption_budgets", "unreadable", budget(minAvailable="half"), "spec.minAvailable: cannot read 'half'"),
    Broken(
        "policy", "scraper of a range", configure(metrics__reporter__prom__port="9300-9310"), "keeps the scraper out"
    ),
    Broken(
        "destinations",
        "port of a broker",
        job_file("kafka-bootstrap.kafka:9092", "kafka-bootstrap.kafka:9093"),
        "kafka:9093",
    ),
    Broken(
        "destinations",
        "namespace of a broker",
        job_file("kafka-bootstrap.kafka:9092", "kafka.else:9092"),
        "kafka.else:9092",
    ),
    Broken(
        "destinations",
        "model",
        agent_file(
            "model: openai:gpt-4.1-mini",
            "chat_model_setups: {m: {clazz: openai-compatible.setup, model: x, base_url: 'http://vllm.models:8000/v1'}}",
        ),
        "base_url of model openai-compatible:x names vllm.models:8000",
    ),
    Broken("destinations", "spans", network("egress", lambda rule: 4318 not in ports_of(rule)), "observability:4318"),
    Broken(
        "spread",
        "another job's label",
        put(
            "jobManager",
            "podTemplate",
            "spec",
            "topologySpreadConstraints",
            0,
            "labelSelector",
            "matchLabels",
            "app",
            value="else",
        ),
        "count pods that are not its own",
    ),
]
