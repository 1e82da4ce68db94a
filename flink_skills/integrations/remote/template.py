"""What a SandboxTemplate says about the isolation of its sandboxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flink_skills.errors import ExecutionError
from flink_skills.integrations.remote.kubernetes import ApiError, KubernetesApi
from flink_skills.integrations.remote.settings import RemoteSettings


@dataclass(frozen=True)
class Template:
    """A template as far as it matters here.

    Attributes:
        name: Its name.
        warm_pool: The pool that claims name, where the API has them name one.
        runtime_class: The RuntimeClass of its pods; empty: the cluster's default, normally the node's own kernel.
        managed: Whether the controller makes the network policy that the template describes.
        egress: Whether that policy lets pods connect to anything.
        token: Whether pods get a service account token.
        root: Whether containers may run as root.
    """

    name: str
    warm_pool: str
    runtime_class: str
    managed: bool
    egress: bool
    token: bool
    root: bool

    @classmethod
    def parse(cls, name: str, warm_pool: str, spec: Mapping[str, Any]) -> Template:
        pod: Mapping[str, Any] = (spec.get("podTemplate") or {}).get("spec") or {}
        policy = spec.get("networkPolicy")
        containers = [*(pod.get("initContainers") or []), *(pod.get("containers") or [])]
        return cls(
            name=name,
            warm_pool=warm_pool,
            runtime_class=str(pod.get("runtimeClassName") or ""),
            managed=spec.get("networkPolicyManagement", "Managed") == "Managed",
            # Without a policy of its own the controller's default lets pods connect to all public addresses.
            egress=policy is None or bool(policy.get("egress")),
            token=bool(pod.get("automountServiceAccountToken", False)),
            root=not all(_not_root(container, pod) for container in containers),
        )

    def check_network(self, *, allowed: bool) -> None:
        """Raise :class:`ExecutionError` when pods may connect and commands may not."""
        if not allowed and self.managed and self.egress:
            raise ExecutionError(
                f"SandboxTemplate {self.name!r} allows sandboxes to connect to other hosts, and skills.shell.network "
                "is 'deny': give the template a spec.networkPolicy with 'egress: []' (and an ingress rule for the "
                "sandbox router), or set skills.shell.network to 'allow'"
            )

    def gaps(self, *, network: bool) -> list[str]:
        """What this template leaves open, for reports."""
        gaps = [
            # What no template can give: commands of one key share a pod, its user and what they leave in it.
            "command_environment_within_key",
            f"only_as_strong_as_runtime_class:{self.runtime_class}" if self.runtime_class else "shared_kernel",
        ]
        if self.token:
            gaps.append("service_account_token_in_sandbox")
        if self.root:
            gaps.append("root_in_sandbox")
        if not network and not self.managed:
            gaps.append("network_policy_not_managed_by_template")
        return gaps


def _not_root(container: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    own, shared = container.get("securityContext") or {}, pod.get("securityContext") or {}
    user = own.get("runAsUser", shared.get("runAsUser"))
    return bool(own.get("runAsNonRoot", shared.get("runAsNonRoot"))) or (isinstance(user, int) and user > 0)


async def read_template(api: KubernetesApi, settings: RemoteSettings) -> Template:
    """The template of the options with its pool. Raises :class:`ExecutionError` that says what is missing."""
    name, namespace = settings.template, settings.namespace
    try:
        spec = (await api.get("sandboxtemplates", name)).get("spec") or {}
    except ApiError as error:
        if error.status == 404:
            raise ExecutionError(
                f"SandboxTemplate {name!r} does not exist in namespace {namespace!r}: create it, or correct "
                "skills.shell.remote.template or skills.shell.remote.namespace"
            ) from error
        raise
    pool = settings.warm_pool
    if not pool and api.version != "v1alpha1":
        pool = await _pool_of(api, name, namespace)
    return Template.parse(name, pool, spec)


async def _pool_of(api: KubernetesApi, template: str, namespace: str) -> str:
    pools = sorted(
        str(pool["metadata"]["name"])
        for pool in await api.list("sandboxwarmpools")
        if ((pool.get("spec") or {}).get("sandboxTemplateRef") or {}).get("name") == template
    )
    if not pools:
        raise ExecutionError(
            f"the template {template!r} has no SandboxWarmPool in namespace {namespace!r}, and the backend claims "
            f"sandboxes from pools: create one with spec.sandboxTemplateRef.name: {template} (spec.replicas: 0 "
            "is enough)"
        )
    return pools[0]
