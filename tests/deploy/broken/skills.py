"""Options and sources of skills."""

from __future__ import annotations

from tests.deploy.broken.making import POD, Broken, both, configure, job_file, main, one, options_of_the_job, put

BROKEN = [
    Broken("options", "misspelt", configure(skills__turn__timout="1 min"), "skills.turn.timeout"),
    Broken(
        "options",
        "misspelt, with a secret",
        options_of_the_job("skills.run.timeot: '${env:HOME}'"),
        "skills.run.timeot",
    ),
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
    Broken(
        "sources",
        "a word in a comment",
        both(configure(skills__from__urls=None), job_file("name: log-triage\n", "name: log-triage # skills: none\n")),
        "no skills",
    ),
    Broken(
        "sources",
        "of the job's file",
        job_file("agent: agent.yaml", "skills: {paths: [/srv/x]}\nagent: agent.yaml"),
        "/srv/x",
    ),
    Broken(
        "sources",
        "no such archive",
        configure(skills__from__paths="/opt/flink/skills/else.zip"),
        "else.zip is not in the ConfigMap",
        "skills-configmap",
    ),
    Broken(
        "folders",
        "of the job's file",
        options_of_the_job("skills.workspace.dir: /srv/work"),
        r"skills.workspace.dir \(options of job.yaml\): /srv/work is not",
    ),
    Broken("sizes", "store", configure(skills__store__max_size="10 gb"), "more than volume store has"),
    Broken("sizes", "no limit", configure(skills__store__max_size="0"), "without limit"),
    Broken("sizes", "default of the store", configure(skills__store__max_size=None), "4096 MiB"),
    Broken("sizes", "workspace", configure(skills__workspace__max_size="20 gb"), "more than volume workspaces has"),
    Broken(
        "sizes", "unreadable", put(*POD, "volumes", 3, "emptyDir", "sizeLimit", value="2 gigs"), "cannot read sizeLimit"
    ),
    Broken(
        "one_component",
        "baked and on a volume",
        lambda o: one(o, "FlinkDeployment")["metadata"]["annotations"].update(
            {"flink-skills/skills-baked": "component"}
        ),
        "skills-baked and skills-pvc",
        "skills-pvc",
    ),
    Broken(
        "addresses", "plain http", configure(skills__from__urls="http://skills.example.com/a.zip"), "plain http is not"
    ),
    Broken(
        "addresses",
        "of the job's file",
        job_file("agent: agent.yaml", "skills: {urls: ['http://a.example.com/b.zip']}\nagent: agent.yaml"),
        "skills of job.yaml: .*plain http is not",
    ),
    Broken("lock_file", "not there", configure(skills__lock="/opt/flink/job/skills.lock"), "add the file to its files"),
    Broken("lock_file", "no volume", configure(skills__lock="/srv/skills.lock"), "neither on a volume"),
    Broken(
        "tracing",
        "no endpoint",
        lambda o: main(o).update(env=[v for v in main(o)["env"] if v["name"] != "OTEL_EXPORTER_OTLP_ENDPOINT"]),
        "has no OTEL_EXPORTER_OTLP_ENDPOINT",
    ),
]
