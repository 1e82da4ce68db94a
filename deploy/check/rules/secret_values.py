"""Secrets are named, and never written down."""

from __future__ import annotations

import re
from collections.abc import Iterator

from deploy.check.finding import Finding, Manifests
from deploy.check.pods import clusters, containers

__all__ = ["by_reference"]

SECRET_WORD = re.compile(r"(?i)(password|passwd|secret|credential|(api|access|private|secret)[-_.]?key|token)s?$")
REFERENCE = re.compile(r"\$\{(env|file):[^}]+\}")
# Forms that nothing but a key has: OpenAI and Anthropic, AWS, GitHub, PEM.
KEY_FORM = re.compile(
    r"\bsk-[A-Za-z0-9_-]{20,}|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{30,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
# 'key' = 'value' of Flink SQL, key: value of YAML.
ASSIGNMENT = re.compile(r"""(?m)['"]?([\w.-]+)['"]?\s*[=:]\s*['"]?([^'"\n]+)['"]?""")
JAAS = re.compile(r"(?i)\bpassword\s*=\s*[\"']([^\"']*)")


def by_reference(manifests: Manifests) -> Iterator[Finding]:
    """No secret in a variable, in Flink's configuration, in a ConfigMap or in a Secret of the overlay."""
    for cluster in clusters(manifests):
        for role, pod in cluster.pods.items():
            for container in containers(pod):
                for variable in container.get("env", []):
                    if _is_secret(variable["name"], str(variable.get("value", ""))):
                        place = f"{cluster.place}, pod of the {role}"
                        yield Finding(
                            place, f"variable {variable['name']} of {container['name']}: take it from a secretKeyRef"
                        )
        for key, value in cluster.configuration.items():
            if _is_secret(key, value):
                yield Finding(
                    cluster.place, f"flinkConfiguration.{key} is shown in the web UI: name a variable or a file"
                )
    for found in manifests.of_kind("Secret"):
        if found.get("data") or found.get("stringData"):
            yield Finding(
                f"Secret {found['metadata']['name']}", "has values: make it in the cluster, and only name it here"
            )
    for found in manifests.of_kind("ConfigMap"):
        for name, text in found.get("data", {}).items():
            yield from (
                Finding(f"ConfigMap {found['metadata']['name']}", f"{name}, line {line}: {what} looks like a secret")
                for line, what in _in_text(text)
            )


def _is_secret(key: str, value: str) -> bool:
    if not value or REFERENCE.search(value):
        return False
    return bool(KEY_FORM.search(value) or SECRET_WORD.search(key))


def _in_text(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if KEY_FORM.search(line):
            yield number, "a key"
            continue
        for key, value in ASSIGNMENT.findall(line):
            if SECRET_WORD.search(key) and value.strip(" ,{}[]") and not REFERENCE.search(value):
                yield number, f"the value of {key}"
        for value in JAAS.findall(line):
            if value and not REFERENCE.search(value):
                yield number, "a password"
