"""Calls of tools: limits, repeated attempts, approvals and the size of results."""

from flink_skills.tools.calling.guard import (
    Approval,
    ApprovalRequest,
    Approver,
    CallGuard,
    CallLimits,
    Decision,
    Later,
    later,
    read_canonical,
)

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
