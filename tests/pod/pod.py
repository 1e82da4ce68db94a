"""A restricted Kubernetes pod on this machine: ``runc``, and what kubelet and container runtimes tell it.

The pod has no node, no kubelet and no API server. It has what a process in a pod meets: user 9999 without
capabilities, no new privileges, the runtimes' default seccomp profile, masked parts of /proc, a root file system that
it cannot write, namespaces of its own, a network of which only the loopback interface is there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.kit.outcomes import Run

from . import bundle, profile

PROFILES: Mapping[str, Callable[[], dict[str, Any] | None]] = {
    "kubernetes": lambda: profile.of_kubernetes(profile.load()),
    "podman": lambda: profile.as_published(profile.load()),
    "unconfined": lambda: None,
}
"""Seccomp profiles: ``RuntimeDefault`` of Kubernetes' runtimes, podman's (allows user namespaces), and none."""

SECRET = "POD_SECRET"
"""A variable of the pod's first process that no command may come to know."""


def run(
    *command: str,
    profile_name: str = "kubernetes",
    environment: Mapping[str, str] | None = None,
    timeout: float = 600.0,
    show: bool = False,
) -> Run:
    """Run ``command`` in a new pod, in the checkout; ``python`` is this Python. ``show`` passes the output on.

    Raises :class:`subprocess.TimeoutExpired` (with the output so far) after ``timeout`` seconds; the pod is gone then.
    """
    name = f"flink-skills-{uuid.uuid4().hex[:12]}"
    folder = Path(tempfile.mkdtemp(prefix="pod-"))
    runc = ["runc", "--root", str(folder / "state")]
    # The pod ends when its input ends: here, and also when this process is killed.
    pods_input, ours = os.pipe()
    try:
        _write_bundle(folder, name, command, profile_name, environment or {})
        process = subprocess.run(
            [*runc, "run", "--bundle", str(folder), name],
            stdin=pods_input,
            stdout=None if show else subprocess.PIPE,
            stderr=None if show else subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
        results = {path.name: path.read_bytes() for path in (folder / "results").iterdir() if path.is_file()}
        return Run(process.returncode, (process.stdout or b"").decode(errors="replace"), results)
    finally:
        os.close(ours)
        os.close(pods_input)
        subprocess.run([*runc, "delete", "--force", name], capture_output=True, check=False)
        shutil.rmtree(folder)


def _write_bundle(
    folder: Path, name: str, command: tuple[str, ...], profile_name: str, environment: Mapping[str, str]
) -> None:
    root, results, token = folder / "root", folder / "results", folder / "token"
    for path in (root, results):
        path.mkdir()
    os.chown(results, bundle.USER, bundle.USER)
    token.write_text(uuid.uuid4().hex)
    bundle.make_root(root)
    config = bundle.configuration(
        [sys.executable, "-I", "-S", str(Path(__file__).with_name("first.py")), *command],
        environment={
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": "/tmp/home",
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": "/tmp/hypothesis",
            "KUBERNETES_SERVICE_HOST": "10.96.0.1",
            SECRET: uuid.uuid4().hex,
            **environment,
        },
        root=root,
        results=results,
        token=token,
        seccomp=PROFILES[profile_name](),
        cgroup=f"/{name}",
    )
    (folder / "config.json").write_text(json.dumps(config))


@cache
def problem() -> str:
    """:func:`find_problem`, asked once in a process."""
    return find_problem()


def find_problem() -> str:
    """Why there can be no pod on this machine, with the fix; empty when one has just run."""
    if os.geteuid() != 0:
        return (
            "only root can make a pod: run the tests as root ('make test-pod' uses sudo where it asks for no password)"
        )
    if shutil.which("runc") is None:
        return "runc is not on the PATH (on Debian and Ubuntu: apt install runc)"
    if not profile.PROFILE.is_file():
        return f"{profile.PROFILE} is missing (on Debian and Ubuntu: apt install golang-github-containers-common)"
    for path in bundle.python_and_checkout():
        if Path(path).stat().st_mode & 0o5 != 0o5:
            return f"{path} is closed to other users, so also to the pod's (chmod o+rx {path})"
    try:
        first = run("/bin/true", timeout=60)
    except subprocess.TimeoutExpired:
        return "runc did not come back within 60 s"
    if first.exit_code != 0:
        return f"runc cannot start a pod here: {first.output.strip() or f'exit code {first.exit_code}'}"
    return ""
