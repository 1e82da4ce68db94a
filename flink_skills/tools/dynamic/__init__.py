"""Tools that come and go with skills: those of a job's pool, and those that a skill brings itself."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.tools.dynamic.active import active_names as active_names
    from flink_skills.tools.dynamic.active import active_tools as active_tools
    from flink_skills.tools.dynamic.active import not_active as not_active
    from flink_skills.tools.dynamic.bundled import BundledTools as BundledTools
    from flink_skills.tools.dynamic.bundled import Described as Described
    from flink_skills.tools.dynamic.bundled_checks import OfferedTools as OfferedTools
    from flink_skills.tools.dynamic.bundled_checks import check_tools as check_tools
    from flink_skills.tools.dynamic.bundled_checks import inspect_tools as inspect_tools
    from flink_skills.tools.dynamic.bundled_checks import tool_names_of as tool_names_of
    from flink_skills.tools.dynamic.bundled_checks import tool_places as tool_places
    from flink_skills.tools.dynamic.specs import checked_parameters as checked_parameters
    from flink_skills.tools.dynamic.specs import checked_specs as checked_specs
    from flink_skills.tools.dynamic.tool_pool import ToolPool as ToolPool
    from flink_skills.tools.dynamic.tool_pool import tool_names as tool_names
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
