"""The ``remote`` backend: commands run in sandboxes of the Kubernetes agent-sandbox API, each a pod of its own."""

from flink_skills.integrations.remote.backend import RemoteBackend
from flink_skills.integrations.remote.settings import RemoteSettings
from flink_skills.integrations.remote.template import Template

__all__ = ["RemoteBackend", "RemoteSettings", "Template"]
