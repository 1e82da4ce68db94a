"""Calls of tools: limits, repeated attempts, approvals and the size of results."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.tools.calling.guard import Approval as Approval
    from flink_skills.tools.calling.guard import ApprovalRequest as ApprovalRequest
    from flink_skills.tools.calling.guard import CallGuard as CallGuard
    from flink_skills.tools.calling.guard import CallLimits as CallLimits
    from flink_skills.tools.calling.guard import Decision as Decision
    from flink_skills.tools.calling.guard import Later as Later
    from flink_skills.tools.calling.guard import later as later
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
