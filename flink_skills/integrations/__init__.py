"""Adapters for other libraries and services. Other packages load them only by a name in a registry.

The modules import libraries of optional extras, so they load on first use.
"""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.integrations.a2a import a2a_message as a2a_message
    from flink_skills.integrations.ag_ui import DISCARDED as DISCARDED
    from flink_skills.integrations.ag_ui import AgUiObserver as AgUiObserver
    from flink_skills.integrations.langchain import LangChainTool as LangChainTool
    from flink_skills.integrations.remote import RemoteBackend as RemoteBackend
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
