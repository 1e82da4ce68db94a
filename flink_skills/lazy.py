"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

_ADVICE = "flink_skills.other_frameworks"


def lazy_names(
    package: str, *, advised: bool = False
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of ``package``: the names that it imports for type checkers.

    These are the lines ``from module import Name as Name`` of its file. An import of the package then costs nothing
    that a program does not need, such as a model client or Flink. No name may be that of a module of the package. With
    ``advised``, importing a name of another framework raises an :class:`ImportError` that says what to use in its
    place, by :data:`flink_skills.other_frameworks.IMPORTS`.

        if TYPE_CHECKING:
            from flink_skills.agents.open.open_agent import OpenAgent as OpenAgent
        else:
            __all__, __getattr__, __dir__ = lazy_names(__name__)
    """
    face: Any = sys.modules[package]
    lines = map(str.split, face.__loader__.get_data(face.__file__).decode().splitlines())
    homes = {words[3]: words[1] for words in lines if len(words) == 6 and words[::2] == ["from", "import", "as"]}

    def get(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            other = importlib.import_module(_ADVICE).IMPORTS.get(name) if advised else None
            if other is not None:
                # An AttributeError would reach the program as an ImportError without the advice.
                raise ImportError(f"{package} has no {name}: {other}", name=name)
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(face, name, value)
        return value

    return list(homes), get, lambda: sorted({*vars(face), *homes})
