"""Checks objects against schemas: Flink's kinds against ours, the others against those of Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate

from deploy.check.finding import Finding, Manifests
from deploy.check.pods import clusters

__all__ = ["flink_kinds", "kubernetes_kinds", "merged_pods"]

OPERATOR = Path(__file__).resolve().parent.parent / "schemas" / "flink-operator-1.15.json"
KUBERNETES = "1.29"
"""What core kinds are checked against: the oldest version that the manifests are for."""
LATER = "flink-skills/operator"
"""An annotation of a FlinkDeployment that says which later operator it needs, for a Flink that ours does not know."""


def flink_kinds(manifests: Manifests) -> Iterator[Finding]:
    """Fields, types and enums of Flink's custom resources, as the API server checks them."""
    schema = _operator_schema()
    for found in manifests.objects:
        if not str(found.get("apiVersion", "")).startswith("flink.apache.org/"):
            continue
        place = f"{found['kind']} {found['metadata']['name']}"
        kind = schema["kinds"].get(found["kind"])
        if kind is None:
            yield Finding(
                place, f"operator {schema['operator']} has no such kind; known are {', '.join(schema['kinds'])}"
            )
            continue
        if found["apiVersion"] != kind["apiVersion"]:
            yield Finding(place, f"apiVersion is {found['apiVersion']}, and must be {kind['apiVersion']}")
        later = LATER in found["metadata"].get("annotations", {})
        for error in _errors(found.get("spec", {}), {**kind["spec"], "podTemplate": {"type": "object"}}):
            at = ".".join(str(part) for part in ["spec", *error.absolute_path])
            if not (later and at == "spec.flinkVersion"):
                yield Finding(place, f"{at}: {error.message}")


def kubernetes_kinds(manifests: Manifests) -> Iterator[Finding]:
    """Fields, types and enums of Kubernetes' own kinds."""
    for found in manifests.objects:
        if not str(found.get("apiVersion", "")).startswith("flink.apache.org/"):
            yield from _strict(found, KUBERNETES, f"{found['kind']} {found['metadata']['name']}")


def merged_pods(manifests: Manifests) -> Iterator[Finding]:
    """The pods that the operator would make; with them every field of the templates is checked."""
    version = _operator_schema()["podTemplate"]["kubernetes"]
    for cluster in clusters(manifests):
        for role, pod in cluster.pods.items():
            metadata = {"name": f"{cluster.name}-{role}", **pod["metadata"]}
            whole = {**pod, "apiVersion": "v1", "kind": "Pod", "metadata": metadata}
            yield from _strict(whole, version, f"{cluster.place}, pod of the {role}")


def _strict(found: Mapping[str, Any], version: str, place: str) -> Iterator[Finding]:
    try:
        kubernetes_validate.validate(dict(found), version, strict=True)
    except kubernetes_validate.ValidationError as error:
        at = ".".join(str(part) for part in error.absolute_path)
        yield Finding(place, f"{at or 'object'}: {error.message} (Kubernetes {version})")
    except kubernetes_validate.SchemaNotFoundError as error:
        yield Finding(place, f"{error.message}: use only kinds of Kubernetes and of the operator")


def _errors(value: Any, schema: Mapping[str, Any]) -> Iterator[jsonschema.ValidationError]:
    yield from jsonschema.Draft202012Validator(schema).iter_errors(value)


@cache
def _operator_schema() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(OPERATOR.read_text(encoding="utf-8"))
    return read
