"""Start of Flink's JVM, and the reasons why it does not start."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from pyflink.java_gateway import get_gateway
from pyflink.pyflink_gateway_server import construct_log_settings, find_java_executable, prepare_environment_variables

from flink_skills.errors import ConfigError

__all__ = ["check_java_version", "start_java"]

_NEEDED = 17
_FIX = f"install a JDK {_NEEDED}, and set JAVA_HOME to its folder"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
# A program that is not Java may wait for input.
_PATIENCE = 20.0


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
            [java, "-version"], capture_output=True, text=True, timeout=_PATIENCE, check=False, errors="replace"
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
    given = os.environ.get("JAVA_HOME")
    if given is not None and path == os.path.join(given, "bin", Path(path).name):
        return path, ("JAVA_HOME", given)
    return path, ("env.java.home of Flink's configuration", str(Path(path).parent.parent))
