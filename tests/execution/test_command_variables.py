"""Examines the internals of execution.command_variables on purpose."""

from __future__ import annotations

import os
import re

import pytest

from flink_skills.errors import ConfigError
from flink_skills.execution.command_variables import base_environment, is_blocked, name_problem, passed_on

BLOCKED = [
    *("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "GCONV_PATH", "MALLOC_TRACE"),
    *("PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "PYTHON_ANYTHING", "GLIBC_TUNABLES"),
    *("BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "IFS", "PROMPT_COMMAND", "BASH_FUNC_ls%%"),
    *("GIT_SSH_COMMAND", "GIT_EXEC_PATH", "GIT_CONFIG_COUNT", "PERL5LIB", "PERL5OPT", "RUBYOPT", "NODE_OPTIONS"),
    *("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH", "OPENSSL_CONF", "LUA_INIT", "LESSOPEN"),
]


@pytest.mark.parametrize("name", BLOCKED)
def test_names_that_are_never_passed_on(name: str) -> None:
    assert is_blocked(name)
    assert name not in base_environment({name: "x"})
    assert re.search(r"is (never passed on|not a valid name)", name_problem(name))


@pytest.mark.parametrize("name", ["API_TOKEN", "AWS_REGION", "NODE_ENV", "LDAP_URL", "MY_PYTHONPATH", "lower_case"])
def test_other_names_are_passed_on_when_asked_for(name: str) -> None:
    assert name_problem(name) == ""
    assert passed_on({name: "x", "OTHER": "y"}, [name]) == {name: "x"}
    assert name not in base_environment({name: "x"})


def test_what_is_not_set_is_left_out() -> None:
    assert passed_on({}, ["REGION"]) == {}


def test_the_option_is_named() -> None:
    with pytest.raises(ConfigError, match=r"option skills\.shell\.env: 'LD_PRELOAD' is never passed on"):
        passed_on({}, ["REGION", "LD_PRELOAD"])
    with pytest.raises(ConfigError, match=r"option skills\.shell\.env: 'A=B' is not a valid name of a variable"):
        passed_on({}, ["A=B"])


def test_all_names_are_reported_together() -> None:
    with pytest.raises(ConfigError, match=r"'LD_PRELOAD' is never passed on.*; 'A=B' is not a valid name"):
        passed_on({}, ["LD_PRELOAD", "REGION", "A=B"])


def test_the_language_and_the_time_zone_are_always_there() -> None:
    source = {"LANG": "de_DE.UTF-8", "LC_ALL": "C", "TZ": "UTC", "HOME": "/root", "USER": "root", "FLINK_HOME": "/opt"}
    assert base_environment(source) == {"LANG": "de_DE.UTF-8", "LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath}
    assert base_environment({})["LANG"] == "C.UTF-8"


def test_the_interpreters_folder_ends_the_path() -> None:
    assert base_environment({"PATH": "/bin"}, "/opt/py/bin/python")["PATH"] == "/bin:/opt/py/bin"
    assert base_environment({"PATH": "/opt/py/bin:/bin"}, "/opt/py/bin/python")["PATH"] == "/opt/py/bin:/bin"
