"""The agent operator in a job graph."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

from pyflink.datastream import StreamExecutionEnvironment

from flink_skills.agents.plan.plan import AgentPlan, operator_uid
from flink_skills.errors import ConfigError
from flink_skills.flink.bridge import add_bridge, configuration_of
from flink_skills.options import SkillConfig, SkillOptions
from flink_skills.skill import Limits

# The watchdog of a worker ends it first where it can, because it logs the turn's name.
_SILENCE_MARGIN = 30.0


def max_silence(config: SkillConfig) -> float:
    """Return the seconds without an answer after which a worker is killed. 0 means no limit."""
    block = config.get(SkillOptions.WORKER_MAX_BLOCK) or config.get(SkillOptions.TURN_TIMEOUT)
    return config.get(SkillOptions.WORKER_MAX_SILENCE) or (block + _SILENCE_MARGIN if block else 0.0)


def add_operator(env: StreamExecutionEnvironment, keyed: Any, plan: AgentPlan) -> Any:
    """Append the agent operator to a Java stream of (key text, event bytes), and return the Java output stream.

    Raises :class:`ConfigError` if the job runs in batch mode.
    """
    bridge = add_bridge(env)
    mode = bridge.batchModeOf(env._j_stream_execution_environment, keyed)
    if mode is not None:
        raise ConfigError(
            f"agent {plan.operator_name}: execution.runtime-mode is {mode}, and agents are streaming operators: set it "
            "to STREAMING, as in env.set_runtime_mode(RuntimeExecutionMode.STREAMING); bounded sources and tables end "
            "a streaming job as well"
        )
    config = SkillConfig(plan.options)
    limits = Limits.from_config(config)
    settings = {
        "maxInFlight": config.get(SkillOptions.WORKER_MAX_IN_FLIGHT),
        "maxPending": config.get(SkillOptions.WORKER_MAX_PENDING),
        "workers": config.get(SkillOptions.WORKER_PROCESSES),
        "openTimeoutMs": int(config.get(SkillOptions.WORKER_OPEN_TIMEOUT) * 1000),
        "maxSilenceMs": int(max_silence(config) * 1000),
        "maxCrashes": config.get(SkillOptions.WORKER_MAX_CRASHES),
        "sessionTtlMs": int(config.get(SkillOptions.SESSION_TTL) * 1000),
        "resources": list(plan.resources),
        "resourceEntries": limits.entries,
        "resourceFileBytes": limits.file,
        "resourceTotalBytes": limits.total,
        "showPrints": is_local(env),
    }
    settings.update(_wait_settings(config))
    # The plan is in what Flink keeps and shows of a job; the secrets are in the operator's own configuration alone.
    sealed, secrets = plan.seal()
    return bridge.apply(
        env._j_stream_execution_environment,
        keyed,
        operator_uid(plan.operator_name),
        f"agent {plan.operator_name}",
        f"{plan.summary()}; flink_skills {plan.build}",
        json.dumps(sealed.to_json()),
        json.dumps(settings),
        json.dumps(secrets),
    )


def replace_plan(env: StreamExecutionEnvironment, outputs: Any, plan: AgentPlan) -> None:
    """Give an agent that is part of a job another plan with the same secrets. ``outputs`` is its Java stream."""
    sealed, _ = plan.seal()
    add_bridge(env).replacePlan(outputs, json.dumps(sealed.to_json()))


def _wait_settings(config: SkillConfig) -> dict[str, Any]:
    """Return the settings of waits that differ from their defaults."""
    found: dict[str, Any] = {}
    if config.get(SkillOptions.TURN_WHEN_WAITING) != SkillOptions.TURN_WHEN_WAITING.default:
        found["whenWaiting"] = config.get(SkillOptions.TURN_WHEN_WAITING)
    if config.get(SkillOptions.WAITS_KEEP) != SkillOptions.WAITS_KEEP.default:
        found["waitsKeepMs"] = int(config.get(SkillOptions.WAITS_KEEP) * 1000)
    if config.get(SkillOptions.WAITS_MAX_EARLY) != SkillOptions.WAITS_MAX_EARLY.default:
        found["waitsMaxEarly"] = config.get(SkillOptions.WAITS_MAX_EARLY)
    if config.get(SkillOptions.WAITS_ON_DRAIN) != SkillOptions.WAITS_ON_DRAIN.default:
        found["drainEndsWaits"] = True
    return found


def is_local(env: StreamExecutionEnvironment) -> bool:
    """Return True if the job runs in a MiniCluster of this process."""
    if configuration_of(env).get_string("execution.target", "local") != "local":
        return False
    return "Remote" not in env._j_stream_execution_environment.getClass().getSimpleName()


def use_this_python(env: StreamExecutionEnvironment) -> None:
    """Set this interpreter and its modules for the Python functions of a job in a MiniCluster of this process.

    Options that the job sets take precedence.
    """
    if not is_local(env):
        return
    configuration = configuration_of(env)
    if not configuration.contains_key("python.executable"):
        configuration.set_string("python.executable", sys.executable)
    if not configuration.contains_key("python.pythonpath"):
        configuration.set_string("python.pythonpath", os.pathsep.join(_own_modules()))


def _own_modules() -> list[str]:
    """Return the directories that the job added to ``sys.path``, as absolute paths."""
    standard = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    own = [Path(entry or ".").absolute() for entry in sys.path]
    return [
        str(path)
        for path in own
        if path.exists()
        and path.name not in ("site-packages", "dist-packages")
        and not any(path.is_relative_to(folder) for folder in standard)
    ]
