"""The schema of the operator's resources is made of CRDs by a script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.schemas.from_crds import SCHEMAS, compact, main
from tests.deploy.conftest import DEPLOY

SCHEMA = json.loads((DEPLOY / "schemas" / "flink-operator-1.15.json").read_text("utf-8"))


def crd(template: dict[str, Any], kind: str = "FlinkThing") -> dict[str, Any]:
    spec = {
        "type": "object",
        "required": ["image"],
        "properties": {
            "image": {"type": "string", "description": "An image."},
            "mode": {"type": "string", "enum": ["native", "standalone"], "default": "native"},
            "flinkConfiguration": {"x-kubernetes-preserve-unknown-fields": True},
            "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
            "podTemplate": template,
        },
    }
    versions = [
        {"name": "v1alpha1", "storage": False},
        {
            "name": "v1beta1",
            "storage": True,
            "schema": {"openAPIV3Schema": {"properties": {"spec": spec, "status": {"type": "object"}}}},
        },
    ]
    return {"spec": {"group": "flink.apache.org", "names": {"kind": kind}, "versions": versions}}


def pod_template(version: str, without: str = "") -> dict[str, Any]:
    """The pod template of a Kubernetes version, written out as a CRD has it."""
    path = SCHEMAS / f"v{version}.0-local-strict" / "_definitions.json"
    definitions = json.loads(path.read_text("utf-8"))["$defs"]

    def written_out(schema: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in schema:
            schema = definitions[schema["$ref"].rsplit("/", 1)[-1]]
        if "items" in schema:
            return {"type": "array", "items": written_out(schema["items"])}
        properties = schema.get("properties", {})
        return {"type": "object", "properties": {k: written_out(v) for k, v in properties.items() if k != without}}

    template = written_out(definitions["io.k8s.api.core.v1.PodTemplateSpec"])
    template["properties"] |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    return template


def test_fields_types_and_enums_stay_and_descriptions_go() -> None:
    schema = compact([crd(pod_template("1.33"))], "9.9")
    assert schema["operator"] == "9.9"
    assert schema["podTemplate"] == {"kubernetes": "1.33"}
    assert schema["kinds"] == {
        "FlinkThing": {
            "apiVersion": "flink.apache.org/v1beta1",
            "spec": {
                "type": "object",
                "required": ["image"],
                "additionalProperties": False,
                "properties": {
                    "image": {"type": "string"},
                    "mode": {"type": "string", "enum": ["native", "standalone"]},
                    "flinkConfiguration": {},
                    "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
                    "podTemplate": {"$ref": "#/podTemplate"},
                },
            },
        }
    }


def test_a_template_that_lacks_a_field_is_of_an_older_kubernetes() -> None:
    # resources of a whole pod came with 1.32.
    older = compact([crd(pod_template("1.33", without="stopSignal"))], "9.9")
    assert older["podTemplate"] == {"kubernetes": "1.32"}


def test_crds_of_two_releases_do_not_go_together() -> None:
    with pytest.raises(SystemExit, match="were they made by one release"):
        compact([crd(pod_template("1.33")), crd(pod_template("1.30"), "FlinkOther")], "9.9")


def test_the_command_writes_the_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "crd.yaml"
    file.write_text(yaml.safe_dump(crd(pod_template("1.33"))), "utf-8")
    main(["--operator", "9.9", str(file)])
    assert json.loads(capsys.readouterr().out)["kinds"].keys() == {"FlinkThing"}


def test_what_is_in_the_repository_is_of_operator_1_15() -> None:
    assert SCHEMA["operator"] == "1.15"
    assert set(SCHEMA["kinds"]) >= {"FlinkDeployment", "FlinkSessionJob", "FlinkStateSnapshot"}
    versions = SCHEMA["kinds"]["FlinkDeployment"]["spec"]["properties"]["flinkVersion"]["enum"]
    assert "v2_2" in versions
    assert "v2_3" not in versions
    assert len(json.dumps(SCHEMA)) < 20_000
