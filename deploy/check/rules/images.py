"""Every image is pinned."""

from __future__ import annotations

import re
from collections.abc import Iterator

from deploy.check.finding import Finding, Manifests
from deploy.check.pods import clusters, containers

__all__ = ["pinned"]

DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
TAG = re.compile(r"(?P<name>.+):(?P<tag>[\w][\w.-]{0,127})$")
MOVING = re.compile(r"(?i)^(latest|stable|main|master|edge|nightly|dev|v?\d+)$")


def pinned(manifests: Manifests) -> Iterator[Finding]:
    """An image has a digest, or the tag of one version."""
    for cluster in clusters(manifests):
        images = {str(cluster.spec.get("image", "")): "spec.image"}
        for role, pod in cluster.pods.items():
            for container in containers(pod):
                images.setdefault(str(container.get("image", "")), f"container {container['name']} of the {role}")
            for volume in pod["spec"].get("volumes", []):
                if "image" in volume:
                    images.setdefault(volume["image"].get("reference", ""), f"volume {volume['name']} of the {role}")
        for image, place in images.items():
            if message := _problem(image):
                yield Finding(cluster.place, f"{place}: {message}")


def _problem(image: str) -> str | None:
    if DIGEST.search(image):
        return None
    found = TAG.fullmatch(image)
    # A colon before a slash is that of a port.
    if found is None or "/" in found["tag"]:
        return f"image '{image}' has neither tag nor digest: add it to the overlay's images"
    if MOVING.fullmatch(found["tag"]):
        return f"image '{image}': the tag {found['tag']} moves; name a version or a digest"
    return None
