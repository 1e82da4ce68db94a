"""Pod templates are merged as the operator merges them."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.check.finding import Manifests
from deploy.check.pods import MAIN, Cluster, merged
from deploy.check.quantities import read_memory


def test_by_name_each_element_meets_its_own() -> None:
    lower = {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "env": [{"name": "X", "value": "1"}]}]}
    upper = {"containers": [{"name": "b", "env": [{"name": "Y", "value": "2"}]}, {"name": "c"}]}
    assert merged(lower, upper, by_name=True) == {
        "containers": [
            {"name": "a", "image": "a:1"},
            {"name": "b", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
            {"name": "c"},
        ]
    }


def test_by_position_the_first_meets_the_first() -> None:
    lower = {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {}}]}
    upper = {"volumes": [{"name": "c", "configMap": {"name": "m"}}]}
    assert merged(lower, upper, by_name=False) == {
        "volumes": [{"name": "c", "emptyDir": {}, "configMap": {"name": "m"}}, {"name": "b", "emptyDir": {}}]
    }


def test_elements_without_a_name_are_merged_by_position_even_so() -> None:
    lower = {"tolerations": [{"key": "a"}], "args": ["x", "y"]}
    upper = {"tolerations": [{"key": "b"}, {"key": "c"}], "args": ["z"]}
    assert merged(lower, upper, by_name=True) == {"tolerations": [{"key": "b"}, {"key": "c"}], "args": ["x", "y"]}


def test_two_elements_of_one_name_become_one() -> None:
    lower = {"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]}
    upper = {"volumeMounts": [{"name": "w", "mountPath": "/c"}]}
    assert merged(lower, upper, by_name=True) == {
        "volumeMounts": [{"name": "v", "mountPath": "/b"}, {"name": "w", "mountPath": "/c"}]
    }


def test_the_layers_stay_as_they_are() -> None:
    lower: dict[str, Any] = {"a": [{"name": "x", "b": {"c": 1}}]}
    upper: dict[str, Any] = {"a": [{"name": "x", "b": {"d": 2}}]}
    merged(lower, upper, by_name=True)["a"][0]["b"]["c"] = 9
    assert lower == {"a": [{"name": "x", "b": {"c": 1}}]}
    assert upper == {"a": [{"name": "x", "b": {"d": 2}}]}


def test_a_pod_has_what_flink_gives_it() -> None:
    spec = {
        "image": "flink-skills:1.0",
        "serviceAccount": "jm",
        "flinkConfiguration": {"kubernetes": {"taskmanager": {"service-account": "tm"}}, "rest.port": 8081},
        "podTemplate": {"spec": {"containers": [{"name": MAIN}]}},
    }
    cluster = Cluster(Manifests("x", ()), {"metadata": {"name": "c"}, "spec": spec})
    pod = cluster.pods["taskmanager"]
    assert pod["metadata"]["labels"] == {"app": "c", "component": "taskmanager", "type": "flink-native-kubernetes"}
    assert pod["spec"]["serviceAccountName"] == "tm"
    assert pod["spec"]["containers"][0]["image"] == "flink-skills:1.0"
    assert cluster.pods["jobmanager"]["spec"]["serviceAccountName"] == "jm"
    assert cluster.configuration["rest.port"] == "8081"


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("64 mb", 64 << 20), ("4096m", 4 << 30), ("2Gi", 2 << 30), ("2 gigs", None), ("", None)],
)
def test_amounts_of_memory(text: str, size: int | None) -> None:
    assert read_memory(text) == size
