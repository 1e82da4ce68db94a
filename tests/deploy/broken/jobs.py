"""The job's file, its agent, references and models."""

from __future__ import annotations

from tests.deploy.broken.making import (
    JOB,
    Broken,
    agent_file,
    arguments,
    configure,
    job_file,
    key_variable,
    one,
    options_of_the_job,
    put,
)

BROKEN = [
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
    Broken(
        "job_files", "assignment", arguments("--config", JOB, "--set", "skills.turn.timeot=3 s"), "skills.turn.timeot"
    ),
    Broken("job_files", "argument", arguments("--config", JOB, "--sett", "x"), "unrecognized arguments: --sett"),
    Broken(
        "job_files", "another folder", arguments("--config=/opt/flink/jobs/job.yaml"), "has /opt/flink/job/job.yaml"
    ),
    Broken(
        "job_files",
        "bell",
        agent_file("name: log-triage", "name: log-triage # \x07"),
        r"agent.yaml.*U\+0007|special characters",
    ),
    Broken("job_files", "lost events", job_file("    event STRING\n", "    raw STRING\n"), "no column for the event"),
    Broken("job_files", "no turns", job_file("    turn BIGINT,\n", ""), "no column for turn, so flink-skills turns"),
    Broken("job_files", "kind of reference", job_file("name: log-triage\n", "name: '${evn:X}'\n"), "evn"),
    Broken("references", "table", job_file("'group-offsets'", "'${env:START}'"), "jobmanager has no variable START"),
    Broken("references", "file", job_file("'group-offsets'", "'${file:/etc/kafka/start}'"), "is on no volume"),
    Broken(
        "references",
        "file of the ConfigMap",
        job_file("'group-offsets'", "'${file:/opt/flink/job/a}'"),
        "not in the ConfigMap",
    ),
    Broken("references", "name", job_file("name: log-triage\n", "name: '${env:JOBNAME}'\n"), "JOBNAME"),
    Broken("references", "agent", agent_file("name: log-triage", "name: '${env:AGENT}'"), "agent.yaml: name: .*AGENT"),
    Broken(
        "references",
        "variable of a skill",
        options_of_the_job("'skills.env.log-triage.TOKEN': '${env:NOPE}'"),
        "taskmanager has no variable NOPE",
    ),
    Broken(
        "references",
        "variable of a skill in the manifests",
        configure(skills__env__triage__TOKEN="${env:NOPE}"),
        "flinkConfiguration.skills.env.triage.TOKEN: .*taskmanager has no variable NOPE",
    ),
    Broken(
        "model_keys",
        "misspelt",
        lambda o: key_variable(o).update(name="OPENAI_APIKEY"),
        "needs the variable OPENAI_API_KEY",
    ),
    Broken(
        "model_keys",
        "of another provider",
        agent_file("openai:gpt-4.1-mini", "anthropic:claude-sonnet-4-5"),
        "ANTHROPIC_API_KEY",
    ),
    Broken(
        "model_keys",
        "its own",
        agent_file(
            "model: openai:gpt-4.1-mini", "chat_model_setups: {m: {clazz: 'openai:gpt-4.1-mini', api_key_env: MINE}}"
        ),
        "needs the variable MINE",
    ),
]
