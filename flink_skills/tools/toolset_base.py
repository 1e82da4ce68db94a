"""Tool sets: several tools of one origin, which can differ from turn to turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from flink_skills.other_frameworks import TOOL_WORDS, check_words
from flink_skills.tools.base import ToolContext
from flink_skills.tools.tool_names import NameUse

if TYPE_CHECKING:
    from flink_skills.artifacts import ArtifactStore
    from flink_skills.options import SkillConfig
    from flink_skills.tools.commands.runner import ShellRunner


class JobServices(Protocol):
    """The services of a job for its tool sets. A service that the job does not have is None."""

    @property
    def config(self) -> SkillConfig: ...

    @property
    def shell(self) -> ShellRunner | None: ...

    @property
    def artifacts(self) -> ArtifactStore | None: ...


class _Nothing:
    """Result of a method without an effect. Callers can await it or ignore it."""

    def __await__(self) -> Iterator[Any]:
        return iter(())


class BaseToolSet(ABC):
    """Provides tools for a context. Derive from it, and add an instance to a pool (``@tool_pool``).

    A worker creates one instance for each agent, and its turns use it concurrently. An error of a tool set is logged,
    and its tools are absent in that turn. :meth:`initialize`, :meth:`get_tools` and :meth:`close` are ``async def``, or
    plain methods, which run in a thread.

    Args:
        name: The name in logs. Empty: the class attribute ``name``, or the name of the class.

    >>> class Shop(BaseToolSet):
    ...     name = "shop"
    ...     async def get_tools(self, context):
    ...         return [price, discount] if str(context.key).startswith("vip-") else [price]
    """

    #: The name in logs. Empty: the name of the class.
    name: str = ""
    #: Whether it or one of its tools needs the sandbox and the workspaces of commands.
    uses_workspace: bool = False
    #: Whether an agent fails to open if :meth:`initialize` fails. It then has only its own time limit.
    required: bool = False
    #: Set by the worker. Call it when :meth:`figures` change.
    on_change: Callable[[], None] | None = None

    def __new__(cls, *_: Any, **arguments: Any) -> Any:
        check_words(cls, arguments, TOOL_WORDS)
        return super().__new__(cls)

    def __init__(self, name: str | None = None) -> None:
        if name:
            self.name = name

    def attach(self, services: JobServices) -> None:  # noqa: B027
        """Called before :meth:`initialize` with the job's services for tools."""

    def initialize(self) -> Any:
        """Called in the worker before the first :meth:`get_tools`, and again later if it failed."""
        return _Nothing()

    @abstractmethod
    def get_tools(self, context: ToolContext) -> Any:
        """Return the tools, or plain functions, of this turn. Called one time for each turn.

        ``context`` has key, turn, agent, skills and skill state of the turn, and no call id.
        """

    def tool_names(self) -> Iterable[str]:
        """Return the names of its tools that are known now. Names in options are compared with them."""
        return ()

    def can_bring(self, pattern: str) -> bool:
        """Return True if it can ever have a tool whose name matches ``pattern``."""
        return True

    def name_uses(self) -> Iterable[NameUse]:
        """Return the names of its tools that its declaration contains, as models have them."""
        return ()

    @property
    def is_complete(self) -> bool:
        """True if :meth:`tool_names` are all its tools, and it would report a change."""
        return False

    @property
    def label(self) -> str:
        """Name in messages."""
        return f"tool set {self.name or type(self).__name__!r}"

    def figures(self) -> Mapping[str, int]:
        """Return its metrics of the worker, by the names in :mod:`flink_skills.telemetry.metric_list`."""
        return {}

    def prompt_addition(self) -> str:
        """Return an addition to the system prompt of models that can call a tool of this set. It can be empty.

        See :meth:`Tool.prompt_addition`.
        """
        return ""

    @property
    def speaks(self) -> bool:
        """Whether it overrides :meth:`prompt_addition`."""
        return getattr(self.prompt_addition, "__func__", None) is not BaseToolSet.prompt_addition

    def close(self) -> Any:
        """Called when the worker closes the agent. Not called if :meth:`initialize` never succeeded."""
        return _Nothing()
