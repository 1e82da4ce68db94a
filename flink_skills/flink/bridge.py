"""The Java part: where its jar is, and how it gets onto the class path of a job."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.java_gateway import JavaGateway
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway

from flink_skills.errors import ConfigError
from flink_skills.flink.java import check_java_version

__all__ = ["add_bridge", "bridge_jar", "job_jars", "text_array"]

JAR_NAME = "flink-skills-bridge.jar"
_AGENT_STREAM = "org.flinkskills.bridge.AgentStream"


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
    """Put the bridge on the job's class path, once, and return an ``AgentStream``, for its static methods."""
    jar = next((jar for jar in _jars(env) if Path(jar).name == JAR_NAME), None)
    if jar is None:
        jar = bridge_jar().as_uri()
        env.add_jars(jar)
    return _agent_stream(get_gateway(), _url(jar))


def _url(jar: str) -> str:
    """Return one form of the URL of a local jar, so that all streams of a process have the same class loader.

    Flink and PyFlink add the same jar as ``file:///…`` and as ``file:/…``.
    """
    parts = urlsplit(jar)
    if parts.scheme not in ("", "file"):
        return jar
    return Path(unquote(parts.path) if parts.scheme else jar).absolute().as_uri()


@functools.cache
def _agent_stream(gateway: JavaGateway, jar: str) -> Any:
    """An object of the Java class, from a class loader of its own.

    By its name the class is found only in the class loader of that thread of the gateway which loaded the jar, and
    any call may run on another thread: each connection has its own, and there is a second connection as soon as
    Python collects a Java object during a call.
    """
    check_java_version()
    jvm = gateway.jvm
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.net.URL(jar)
    # The loader of Flink's classes for Python, whichever thread answers: with "flink run" they come with the program
    # and not with Flink itself.
    python = jvm.org.apache.flink.streaming.api.typeinfo.python.PickledByteArrayTypeInfo._java_lang_class
    loader = jvm.java.net.URLClassLoader(urls, python.getClassLoader())
    constructor = loader.loadClass(_AGENT_STREAM).getDeclaredConstructors()[0]
    constructor.setAccessible(True)
    return constructor.newInstance(gateway.new_array(jvm.java.lang.Object, 0))


def text_array(texts: Sequence[str]) -> Any:
    """A ``String[]``."""
    gateway = get_gateway()
    found = gateway.new_array(gateway.jvm.java.lang.String, len(texts))
    for number, text in enumerate(texts):
        found[number] = text
    return found


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
