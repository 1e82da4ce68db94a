"""The text of the program that runs a skill's tools in the sandbox, for ``python3 -c``.

It is an argument and not a file: nothing has to be written where commands could change it, and the skill's folder
stays as it is.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

__all__ = ["OLDEST_PYTHON", "program_argv"]

#: The oldest Python that the program runs on.
OLDEST_PYTHON = (3, 8)

_PACKAGE = "skill_tools_runner"
# Each imports those before it only.
_MODULES = ("docstrings", "annotations", "shapes", "fitting", "functions", "results", "serve")

_BOOT = """\
import sys
if sys.version_info < {oldest!r}:
    sys.stderr.write("the tools of a skill need Python {shown}, and this is " + sys.version.split()[0] + chr(10))
    sys.exit(3)
def boot(sources):
    package = type(sys)({package!r})
    package.__path__ = []
    sys.modules[{package!r}] = package
    for name, source in sources:
        module = type(sys)({package!r} + "." + name)
        module.__package__ = {package!r}
        sys.modules[module.__name__] = module
        exec(compile(source, "<" + name + ">", "exec"), module.__dict__)
    module.serve()
boot({sources!r})
"""


@cache
def program_argv() -> tuple[str, ...]:
    """The command that runs the program. ``-I``: neither variables nor the folder that it starts in lead it astray.

    >>> program_argv()[:3]
    ('python3', '-I', '-c')
    """
    modules = files("flink_skills.tools.dynamic.program")
    sources = [(name, modules.joinpath(f"{name}.py").read_text(encoding="utf-8")) for name in _MODULES]
    shown = ".".join(map(str, OLDEST_PYTHON))
    text = _BOOT.format(oldest=OLDEST_PYTHON, shown=shown, package=_PACKAGE, sources=sources)
    return ("python3", "-I", "-c", text)
