"""Makes a compact JSON schema of the custom resources of a release of the Flink Kubernetes Operator.

    python deploy/schemas/from_crds.py --operator 1.15 CRD.yaml… > deploy/schemas/flink-operator-1.15.json

The CRDs are in the operator's Helm chart (``crds/``). Kept are fields, types, enums and required fields of what a
person writes; dropped are descriptions and ``status``. A pod template, nine tenths of a CRD, is Kubernetes' own: the
result says of which Kubernetes version it is, found by comparing its fields with the schemas of
``kubernetes-validate``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

KEPT = ("type", "enum", "required", "pattern", "minimum", "maximum")
POD_TEMPLATE = {"apiVersion", "kind", "metadata", "spec"}
# Fields that Fabric8 writes into every template, and that mean nothing there.
IGNORED = {"apiVersion", "kind", "status"}
SCHEMAS = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"


def main(arguments: list[str] | None = None) -> None:
    """Write the schema of the given CRDs to standard output."""
    parser = argparse.ArgumentParser(description="Make a compact schema of the operator's custom resources.")
    parser.add_argument("crds", nargs="+", type=Path, help="files of the operator's chart")
    parser.add_argument("--operator", required=True, help="the operator's release, such as 1.15")
    given = parser.parse_args(arguments)
    schema = compact([yaml.safe_load(path.read_text(encoding="utf-8")) for path in given.crds], given.operator)
    sys.stdout.write(json.dumps(schema, indent=1, sort_keys=True) + "\n")


def compact(crds: list[Mapping[str, Any]], operator: str) -> dict[str, Any]:
    """The schema of custom resources, by kind."""
    kinds: dict[str, Any] = {}
    templates: list[Mapping[str, Any]] = []
    for crd in crds:
        version = next(version for version in crd["spec"]["versions"] if version["storage"])
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        kinds[crd["spec"]["names"]["kind"]] = {
            "apiVersion": f"{crd['spec']['group']}/{version['name']}",
            "spec": _reduced(spec, templates),
        }
    known = {json.dumps(_fields(template), sort_keys=True) for template in templates}
    if len(known) > 1:
        raise SystemExit("the CRDs have pod templates of several kinds: were they made by one release?")
    return {
        "operator": operator,
        "podTemplate": {"kubernetes": _kubernetes_version(templates[0]) if templates else None},
        "kinds": kinds,
    }


def _reduced(schema: Mapping[str, Any], templates: list[Mapping[str, Any]]) -> dict[str, Any]:
    """The schema without what only a reader needs; a pod template becomes a reference."""
    properties = schema.get("properties")
    if properties is not None and set(properties) >= POD_TEMPLATE and "containers" in _spec_fields(properties):
        templates.append(schema)
        return {"$ref": "#/podTemplate"}
    reduced: dict[str, Any] = {key: schema[key] for key in KEPT if key in schema}
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return reduced
    if properties is not None:
        reduced["properties"] = {name: _reduced(value, templates) for name, value in properties.items()}
        reduced["additionalProperties"] = False
    elif isinstance(schema.get("additionalProperties"), Mapping):
        reduced["additionalProperties"] = _reduced(schema["additionalProperties"], templates)
    if "items" in schema:
        reduced["items"] = _reduced(schema["items"], templates)
    return reduced


def _spec_fields(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = properties["spec"].get("properties", {})
    return fields


def _fields(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The names of fields, nested, without types."""
    while "items" in schema:
        schema = schema["items"]
    return {name: _fields(value) for name, value in schema.get("properties", {}).items() if name not in IGNORED}


def _kubernetes_version(template: Mapping[str, Any]) -> str:
    """The newest Kubernetes version all of whose fields a pod template has."""
    fields = _fields(template)
    for version in _versions():
        folder = SCHEMAS / f"v{version}.0-local-strict"
        definitions = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))["$defs"]
        if not list(_lacking(fields, definitions["io.k8s.api.core.v1.PodTemplateSpec"], definitions, ())):
            return version
    raise SystemExit("the pod template of these CRDs is older than every Kubernetes version of kubernetes-validate")


def _versions() -> list[str]:
    names = [path.name for path in SCHEMAS.glob("v*-local-strict")]
    numbers = sorted(
        (tuple(int(part) for part in name[1:].split("-")[0].split(".")[:2]) for name in names), reverse=True
    )
    return [f"{major}.{minor}" for major, minor in numbers]


def _lacking(
    fields: Mapping[str, Any], schema: Mapping[str, Any], definitions: Mapping[str, Any], seen: tuple[str, ...]
) -> Iterator[str]:
    """Names in Kubernetes' schema that ``fields`` does not have."""
    while "$ref" in schema or "items" in schema:
        if "items" in schema:
            schema = schema["items"]
            continue
        name = schema["$ref"].rsplit("/", 1)[-1]
        if name in seen:
            return
        seen = (*seen, name)
        schema = definitions[name]
    for name, value in schema.get("properties", {}).items():
        if not fields:
            return  # an open map, or a type that the CRD says nothing of
        if name in IGNORED:
            continue
        if name not in fields:
            yield name
        else:
            yield from _lacking(fields[name], value, definitions, seen)


if __name__ == "__main__":
    main()
