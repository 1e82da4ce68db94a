"""The Java part: where its jar is, and how it gets onto the class path of a job."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway

from flink_skills.errors import ConfigError

__all__ = ["add_bridge", "bridge_jar", "job_jars"]

JAR_NAME = "flink-skills-bridge.jar"


def bridge_jar() -> Path:
    """Path of the bridge jar: in the installed package, or in the Maven build of a source checkout."""
    packaged = Path(str(resources.files("flink_skills"))) / "jars" / JAR_NAME
    built = Path(str(resources.files("flink_skills"))).parent / "java-bridge" / "target" / JAR_NAME
    for candidate in (packaged, built):
        if candidate.is_file():
            return candidate.resolve()
    raise ConfigError(
        f"the bridge jar {JAR_NAME} is not in this installation of flink_skills (looked at {packaged} and {built}): "
        "install the wheel, or run 'make jar' in a source checkout (needs JDK 17 and Maven)"
    )


def add_bridge(env: StreamExecutionEnvironment) -> Any:
    """Put the bridge on the job's class path, once, and return its ``AgentStream`` Java class."""
    jars = _jars(env)
    if not any(Path(jar).name == JAR_NAME for jar in jars):
        env.add_jars(bridge_jar().as_uri())
    return get_gateway().jvm.org.flinkskills.bridge.AgentStream


def _jars(env: StreamExecutionEnvironment, option: str = "pipeline.jars") -> list[str]:
    from pyflink.common import Configuration
    from pyflink.util.java_utils import get_j_env_configuration

    value = Configuration(j_configuration=get_j_env_configuration(env._j_stream_execution_environment)).get_string(
        option, ""
    )
    return list(Configuration.parse_list_value(value)) if value else []


def job_jars(env: StreamExecutionEnvironment) -> list[Path]:
    """The job's class path as far as it is files of this machine, in the order of the user-code class loader."""
    found = []
    for url in (*_jars(env), *_jars(env, "pipeline.classpaths")):
        parts = urlsplit(url)
        if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
            continue
        path = Path(unquote(parts.path) if parts.scheme else url)
        if path.exists():
            found.append(path)
    return found
