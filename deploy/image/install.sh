#!/usr/bin/env bash
# Puts flink_skills into a Flink image. The Dockerfile runs these steps, and so does whoever makes an image otherwise.
#
#   install.sh packages                    the system's packages (as root)
#   install.sh venv --wheel FILE --constraints FILE… [--extras LIST]
#                                          the virtual environment, resolved under the constraints of this Flink version
#   install.sh finish                      links, folders and configuration in the Flink home (as root)
#   install.sh check                       fails, with the mend, when something of the above is missing (as any user)
#
# Settings: FLINK_HOME (/opt/flink), FLINK_SKILLS_HOME (/opt/flink-skills), PYTHON (python3), FLINK_PLUGINS (plugins of
# Flink's opt folder that the image switches on, by jar name, such as "flink-s3-fs-presto"; none by default).
set -euo pipefail

FLINK_HOME=${FLINK_HOME:-/opt/flink}
FLINK_SKILLS_HOME=${FLINK_SKILLS_HOME:-/opt/flink-skills}
PYTHON=${PYTHON:-python3}
VENV=$FLINK_SKILLS_HOME/venv
FLINK_USER=9999  # of Flink's images

stop() { printf 'install.sh: %s\n' "$1" >&2; exit 1; }

flink_version() {
  local jars=("$FLINK_HOME"/lib/flink-dist-*.jar)
  [ -f "${jars[0]}" ] || stop "there is no Flink in $FLINK_HOME (no lib/flink-dist-*.jar): set FLINK_HOME"
  basename "${jars[0]}" .jar | sed 's/^flink-dist-//'
}

packages() {
  # libseccomp2 is what the landlock backend filters system calls with; bubblewrap is used where pods may make
  # namespaces; bash, git and python3 are what skills ask for most. procps is for Flink's own scripts.
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends bash bubblewrap ca-certificates git libseccomp2 procps "$PYTHON" > /dev/null
  # PyFlink's thread mode loads the interpreter as a library.
  apt-get install -y -qq --no-install-recommends \
    "$("$PYTHON" -c 'import sys; print("libpython%d.%d" % sys.version_info[:2])')" "$@" > /dev/null
  rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log
}

# The one of the given files that pins PyFlink at the version of the Flink that is here.
matching_constraints() {
  local version=$1 file
  shift
  for file in "$@"; do
    if grep -qx "apache-flink==$version" "$file"; then printf '%s' "$file"; return; fi
  done
  stop "this is Flink $version, and none of the constraints ($*) pins apache-flink==$version: take a base image of a pinned version"
}

venv() {
  local wheel='' extras=flink,models,http,s3,zstd,otel,mcp,files,web,cli constraints=()
  while [ $# -gt 0 ]; do
    case $1 in
      --wheel) wheel=$2 ;;
      --constraints) constraints+=("$2") ;;
      --extras) extras=$2 ;;
      *) stop "unknown option $1" ;;
    esac
    shift 2
  done
  [ -f "$wheel" ] || stop "--wheel '$wheel': there is no such file"
  [ ${#constraints[@]} -gt 0 ] || stop "--constraints is missing: Flink's Beam and all else must be resolved together"
  "$PYTHON" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' \
    || stop "$("$PYTHON" --version) cannot run this Flink with flink_skills: set PYTHON to a Python 3.10, 3.11 or 3.12"
  local version chosen package
  version=$(flink_version)
  chosen=$(matching_constraints "$version" "${constraints[@]}")
  "$PYTHON" -m venv "$VENV"
  # Without pip's cache, which would stay in the layer. Byte code comes below, for all files and in one way.
  PIP_CONSTRAINT=$chosen "$VENV/bin/python" -m pip install -q --no-cache-dir --no-compile --disable-pip-version-check "$wheel[$extras]"
  "$VENV/bin/python" -m pip check
  # The Flink of the image is the one that runs: PyFlink finds it by FLINK_HOME. Only bin has to stay beside the package,
  # because the workers of PyFlink's own functions are started from there.
  package=$("$VENV/bin/python" -c 'import pathlib, pyflink; print(pathlib.Path(pyflink.__file__).parent)')
  rm -rf "$package"/{lib,opt,plugins,conf,log,licenses,examples}
  chmod +x "$package"/bin/*
  # Tests and headers of the largest packages: a tenth of the image, and nothing imports them.
  package=$(dirname "$package")
  rm -rf "$package"/{pandas,pyarrow}/tests "$package"/numpy/{,*/}tests "$package"/pyarrow/{include,src}
  # Nobody can write byte code later, neither user 9999 nor a read-only file system. Unchecked: copying changes times.
  # It fails on files that are templates and not Python; 'check' imports what is used.
  "$VENV/bin/python" -m compileall -q -j 0 --invalidation-mode unchecked-hash "$VENV/lib" > /dev/null || true
}

finish() {
  local version plugin settings=$FLINK_HOME/conf/config.yaml key file
  version=$(flink_version)
  # A name without a version, for job specifications that outlive an upgrade. Not in Flink's opt folder: Flink starts no
  # Python program when it finds two jars with this name there.
  [ -f "$FLINK_HOME/opt/flink-python-$version.jar" ] || stop "$FLINK_HOME/opt has no flink-python-$version.jar: take a base image that has PyFlink's jar"
  mkdir -p "$FLINK_SKILLS_HOME"
  ln -sfn "$FLINK_HOME/opt/flink-python-$version.jar" "$FLINK_SKILLS_HOME/flink-python.jar"
  for plugin in ${FLINK_PLUGINS:-}; do
    [ -f "$FLINK_HOME/opt/$plugin-$version.jar" ] || stop "FLINK_PLUGINS: $FLINK_HOME/opt has no $plugin-$version.jar"
    mkdir -p "$FLINK_HOME/plugins/$plugin"
    ln -sfn "../../opt/$plugin-$version.jar" "$FLINK_HOME/plugins/$plugin/$plugin-$version.jar"
  done
  # What a job image fills: root's, so no process of a job can change it.
  mkdir -p "$FLINK_HOME/skills" "$FLINK_HOME/job" "$FLINK_HOME/artifacts"
  chown root:root "$FLINK_HOME/skills" "$FLINK_HOME/job"
  chmod 755 "$FLINK_HOME/skills" "$FLINK_HOME/job"
  chown "$FLINK_USER:$FLINK_USER" "$FLINK_HOME/artifacts"
  # What a job fills: volumes go here.
  mkdir -p "$FLINK_SKILLS_HOME/store" "$FLINK_SKILLS_HOME/workspaces"
  chown "$FLINK_USER:$FLINK_USER" "$FLINK_SKILLS_HOME/store" "$FLINK_SKILLS_HOME/workspaces"
  chmod 700 "$FLINK_SKILLS_HOME/store" "$FLINK_SKILLS_HOME/workspaces"
  # These two log all environment variables of the Python processes that they start or end, keys of models included.
  for file in "$FLINK_HOME"/conf/log4j{,-cli,-console,-session}.properties; do
    [ -f "$file" ] || continue
    grep -q '^logger.environment\.' "$file" || printf '\n%s' '# They log environment variables, with the secrets in them.' \
      'logger.environment.name = org.apache.flink.client.python.PythonEnvUtils' 'logger.environment.level = WARN' \
      'logger.bundles.name = org.apache.beam.runners.fnexecution.control.DefaultJobBundleFactory' \
      'logger.bundles.level = OFF' >> "$file"
  done
  # On Kubernetes a ConfigMap lies over this file; there the PATH of the image leads to the same interpreter.
  for key in python.executable python.client.executable; do
    if ! grep -q "^$key:" "$settings"; then printf '\n%s: %s\n' "$key" "$VENV/bin/python" >> "$settings"; fi
  done
}

check() {
  local program version
  version=$(flink_version)
  for program in bash bwrap git java python3; do
    command -v "$program" > /dev/null || stop "$program is not on the PATH: run 'install.sh packages'"
  done
  [ "$(command -v python)" = "$VENV/bin/python" ] || stop "python is $(command -v python): put $VENV/bin first in the PATH"
  [ -e "$FLINK_SKILLS_HOME/flink-python.jar" ] || stop "$FLINK_SKILLS_HOME/flink-python.jar is missing: run 'install.sh finish'"
  FLINK_HOME=$FLINK_HOME python - "$version" <<'PYTHON' || stop "the virtual environment is not complete: see above"
import ctypes, os, pathlib, subprocess, sys

import pyflink.version
from pyflink.find_flink_home import _find_flink_home

import flink_skills
from flink_skills.flink.bridge import bridge_jar

ctypes.CDLL("libseccomp.so.2")
runner = pathlib.Path(pyflink.__file__).parent / "bin" / "pyflink-udf-runner.sh"
assert os.access(runner, os.X_OK), f"{runner} is not there, so PyFlink's own functions cannot run"
assert pyflink.version.__version__ == sys.argv[1], f"PyFlink {pyflink.version.__version__} beside Flink {sys.argv[1]}"
assert _find_flink_home() == os.environ["FLINK_HOME"], f"PyFlink finds Flink in {_find_flink_home()}"
assert bridge_jar().is_file()
subprocess.run([sys.executable, "-m", "pip", "check"], check=True, stdout=subprocess.DEVNULL)
PYTHON
  printf 'Flink %s, %s, %s\n' "$version" "$(python --version)" "$(flink-skills --version)"
}

case ${1:-} in
  packages | venv | finish | check) "$@" ;;
  *) stop "give a step: packages, venv, finish or check" ;;
esac
