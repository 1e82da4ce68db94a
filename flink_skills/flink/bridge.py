"""Flink's JVM and the bridge: the start of the JVM, and the bridge's jar on the class path of a job."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.java_gateway import JavaGateway
from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway
from pyflink.pyflink_gateway_server import construct_log_settings, find_java_executable, prepare_environment_variables
from pyflink.util.java_utils import get_j_env_configuration

from flink_skills.errors import ConfigError
from flink_skills.flink.flink_failures import flink_errors

_NEEDED = 17
_FIX = f"install a JDK {_NEEDED}, and set JAVA_HOME to its folder"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
# A program that is not Java may wait for input.
_TIMEOUT = 20.0


def start_java() -> None:
    """Start Flink's JVM unless it runs already.

    Raises :class:`ConfigError` with the fix if there is no usable Java, or no directory for temporary files.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        # The file system of a container can be read-only.
        raise ConfigError(
            f"Flink needs a directory for temporary files: {error.strerror}; set TMPDIR to a writable one"
        ) from None
    try:
        _use_writable_log()
        get_gateway()
    except OSError as error:
        raise ConfigError(f"Flink needs Java {_NEEDED}: {_missing(error)}; {_FIX}") from None
    except RuntimeError as error:
        flink = os.environ.get("FLINK_HOME")
        if flink is not None and not (Path(flink) / "lib").is_dir():
            raise ConfigError(
                f"FLINK_HOME is {flink!r}, and there is no Flink in this folder; unset FLINK_HOME to use the Flink of "
                "the package apache-flink, or set it to the folder of a Flink installation"
            ) from None
        raise ConfigError(f"Flink needs Java {_NEEDED}: {_failed(str(error))}; {_FIX}") from None
    check_java_version()


@functools.cache
def _use_writable_log() -> None:
    """Let the JVM write its log to the temporary directory if the directory of Flink's logs is read-only.

    Log4j prints its errors to stdout if it cannot create the file, and stdout has the output of a command.
    """
    environment = dict(os.environ)
    prepare_environment_variables(environment)
    settings = construct_log_settings(environment)
    log = next(setting.partition("=")[2] for setting in settings if setting.startswith("-Dlog.file="))
    try:
        with tempfile.TemporaryFile(dir=Path(log).parent):
            return
    except OSError:  # The directory is read-only or missing.
        pass
    folder = Path(tempfile.gettempdir(), f"flink-logs-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid != os.getuid():
            folder = Path(tempfile.mkdtemp(prefix="flink-logs-"))
    os.environ["FLINK_LOG_DIR"] = str(folder)


def check_java_version() -> None:
    """Raise :class:`ConfigError` if the JVM, which runs already, is too old for the classes of the operator."""
    properties = get_gateway().jvm.java.lang.System
    version = str(properties.getProperty("java.specification.version")).removeprefix("1.")
    if version.isdecimal() and int(version) < _NEEDED:
        home = properties.getProperty("java.home")
        raise ConfigError(f"Flink needs Java {_NEEDED}: the Java in {home} is version {version}; {_FIX}")


def _missing(error: OSError) -> str:
    """Return why the program ``java`` cannot be started."""
    path, home = _executable()
    if home is None:
        return "there is no program 'java' on the PATH"
    if not home[1]:
        return f"{home[0]} is set and empty"
    if not Path(home[1]).is_dir():
        return f"{home[0]} is {home[1]!r}, and there is no such folder"
    if not os.path.lexists(path):
        return f"{home[0]} is {home[1]!r}, and there is no bin/java in this folder"
    return f"{path} cannot be started: {error.strerror or error}"


def _failed(message: str) -> str:
    """Return why ``java`` ended, by its version and by what PyFlink has read from it."""
    path, home = _executable()
    found = path if home is not None else shutil.which(path) or path
    version = _version(found)
    if version is not None and version < _NEEDED:
        return f"{found} is version {version}"
    lines = [line.strip() for line in message.partition("Stderr:\n")[2].splitlines()]
    lines = [line for line in lines if line and not line.startswith("WARNING")]
    return f"{found} ended with an error: {lines[0]}" if lines else f"{found} ended without a message"


def _version(java: str) -> int | None:
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT, check=False, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found is not None else None


def _executable() -> tuple[str, tuple[str, str] | None]:
    """Return the program that PyFlink starts, and the setting that names its folder with the value of it."""
    path = str(find_java_executable())
    if path == Path(path).name:
        return path, None
    home = os.environ.get("JAVA_HOME")
    if home is not None and path == os.path.join(home, "bin", Path(path).name):
        return path, ("JAVA_HOME", home)
    return path, ("env.java.home of Flink's configuration", str(Path(path).parent.parent))


JAR_NAME = "flink-skills-bridge.jar"
_AGENT_STREAM = "org.flinkskills.bridge.streams.AgentStream"


def bridge_jar() -> Path:
    """Return the path of the bridge jar, in the installed package or in the Maven build of a source checkout."""
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
    """Return an object of the Java class, from a separate class loader.

    By its name the class is found only in the class loader of the gateway's thread that loaded the jar. Any call may
    run on another thread: each connection has its own, and a second connection exists as soon as Python collects a
    Java object during a call.
    """
    check_java_version()
    jvm = gateway.jvm
    urls = java_array(jvm.java.net.URL, [jvm.java.net.URL(jar)])
    # The loader of Flink's classes for Python, whichever thread answers: with "flink run" they come with the program
    # and not with Flink itself.
    python = jvm.org.apache.flink.streaming.api.typeinfo.python.PickledByteArrayTypeInfo._java_lang_class
    loader = jvm.java.net.URLClassLoader(urls, python.getClassLoader())
    constructor = loader.loadClass(_AGENT_STREAM).getDeclaredConstructors()[0]
    constructor.setAccessible(True)
    return constructor.newInstance(java_array(jvm.java.lang.Object, []))


def java_array(of: Any, items: Iterable[Any]) -> Any:
    """Return a Java array of ``items``, whose class is ``of``."""
    found = list(items)
    array = get_gateway().new_array(of, len(found))
    for number, item in enumerate(found):
        array[number] = item
    return array


def string_array(strings: Iterable[str]) -> Any:
    """Return a ``String[]``."""
    return java_array(get_gateway().jvm.java.lang.String, strings)


def configuration_of(env: StreamExecutionEnvironment) -> Configuration:
    """Return the configuration of an environment. Changes apply to the environment."""
    return Configuration(j_configuration=get_j_env_configuration(env._j_stream_execution_environment))


def flink_environment(options: Mapping[str, str]) -> StreamExecutionEnvironment:
    """Return an environment with ``options`` over Flink's configuration. Raises :class:`ConfigError`."""
    with flink_errors(ConfigError, "Flink cannot use its options: "):
        return StreamExecutionEnvironment.get_execution_environment(configuration_with(options))


def configuration_with(options: Mapping[str, str]) -> Configuration:
    """Return a configuration with ``options``."""
    configuration = Configuration()
    for key, value in options.items():
        configuration.set_string(key, value)
    return configuration


def _jars(env: StreamExecutionEnvironment, option: str = "pipeline.jars") -> list[str]:
    value = configuration_of(env).get_string(option, "")
    return list(Configuration.parse_list_value(value)) if value else []


def job_jars(env: StreamExecutionEnvironment) -> list[Path]:
    """Return the files of this host on the job's class path, in the order of the user-code class loader."""
    found = []
    for url in (*_jars(env), *_jars(env, "pipeline.classpaths")):
        parts = urlsplit(url)
        if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
            continue
        path = Path(unquote(parts.path) if parts.scheme else url)
        if path.exists():
            found.append(path)
    return found
