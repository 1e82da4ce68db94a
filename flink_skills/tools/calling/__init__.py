"""What holds for every call of a tool, whatever the tool: deadline, attempts, places, size of the result, a yes."""

from flink_skills.tools.calling.approval import Approval, ApprovalRequest, Approver, Decision, Later, later
from flink_skills.tools.calling.guard import CallGuard, read_canonical
from flink_skills.tools.calling.limits import CallLimits

__all__ = [
    "Approval",
    "ApprovalRequest",
    "Approver",
    "CallGuard",
    "CallLimits",
    "Decision",
    "Later",
    "later",
    "read_canonical",
]
