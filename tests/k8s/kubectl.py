"""A Kubernetes cluster as tests see it: ``kubectl`` in one namespace, and what to look at when something failed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.kit import waiting

T = TypeVar("T")

_TAIL = 60  # lines of a pod's log
_PAUSE = 2.0  # seconds: each look is a process, which takes from the pods when these have the same processors


class KubectlError(AssertionError):
    """kubectl did not do what it was asked for."""


def wait_until(condition: Callable[[], T | None], deadline: float, what: str) -> T:
    """Wait until ``condition()`` is true, for ``deadline`` seconds, and return its value."""
    value = waiting.wait_until(condition, what, within=deadline, pause=_PAUSE)
    assert value is not None
    return value


class Kubectl:
    """kubectl in ``namespace``. The command is KUBECTL, which may be a wrapper, or else the one beside this Python."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        beside = Path(sys.executable).parent / "kubectl"
        found = str(beside) if beside.exists() else shutil.which("kubectl") or "kubectl"
        self._command = shlex.split(os.environ.get("KUBECTL", found))

    def run(self, *arguments: str, stdin: str | bytes | None = None, timeout: float = 120) -> str:
        """The output of ``kubectl ARGUMENTS``; raises :class:`KubectlError`."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        command = [*self._command, "--namespace", self.namespace, *arguments]
        done = subprocess.run(
            command,
            input=data,
            stdin=subprocess.DEVNULL if data is None else None,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise KubectlError(f"{shlex.join(command)}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout.decode(errors="replace")

    def answers(self, *arguments: str) -> bool:
        """Whether ``kubectl ARGUMENTS`` succeeds."""
        try:
            self.run(*arguments)
        except (KubectlError, OSError):
            return False
        return True

    def get(self, *arguments: str) -> Any:
        """``kubectl get ARGUMENTS`` as data; None when the named thing is not there."""
        text = self.run("get", *arguments, "--output=json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    def items(self, kind: str, selector: str = "") -> list[Any]:
        """The things of a kind."""
        found = self.get(kind, *([f"--selector={selector}"] if selector else []))
        return list(found["items"]) if found else []

    def names(self, kinds: str, selector: str = "") -> list[str]:
        """``kind/name`` of the things of these kinds."""
        chosen = [f"--selector={selector}"] if selector else []
        return self.run("get", kinds, *chosen, "--output=name").split()

    def apply(self, *documents: dict[str, Any]) -> None:
        """Apply these objects."""
        self.run("apply", "--filename=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))

    def execute(self, pod: str, *command: str, stdin: str | bytes | None = None, timeout: float = 120) -> str:
        """The output of a command in a pod's first container."""
        interactive = [] if stdin is None else ["--stdin"]
        return self.run("exec", *interactive, pod, "--", *command, stdin=stdin, timeout=timeout)

    def logs(self, pod: str, lines: int = -1) -> str:
        """The log of a pod's containers."""
        return self.run("logs", pod, "--all-containers", f"--tail={lines}")

    @contextlib.contextmanager
    def forward(self, target: str, port: int) -> Iterator[int]:
        """Forward a free port of this machine to ``port`` of a pod or service while the block runs, and yield it."""
        command = [*self._command, "--namespace", self.namespace, "port-forward", target, f":{port}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        try:
            assert process.stdout is not None
            found = re.search(r":(\d+) ->", process.stdout.readline())
            if found is None:
                raise KubectlError(f"{shlex.join(command)} ended with exit code {process.wait()}")
            yield int(found[1])
        finally:
            process.terminate()
            process.wait()

    def pod(self, selector: str, deadline: float = 240) -> str:
        """The name of the one running and ready pod with these labels, once there is one."""

        def ready() -> str | None:
            pods = [pod for pod in self.items("pods", selector) if "deletionTimestamp" not in pod["metadata"]]
            if len(pods) != 1:
                return None
            conditions = {item["type"]: item["status"] for item in pods[0]["status"].get("conditions", ())}
            return str(pods[0]["metadata"]["name"]) if conditions.get("Ready") == "True" else None

        return wait_until(ready, deadline, f"a ready pod with {selector}")

    def kill(self, selector: str) -> None:
        """End the pod with these labels as a lost node would: without a grace period."""
        pod = self.pod(selector)
        self.run("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")

        def gone() -> bool:
            return f"pod/{pod}" not in self.names("pods", selector)

        wait_until(gone, 60, f"pod {pod} to be gone")

    def diagnostics(self, extra: Sequence[tuple[str, str]] = ()) -> str:
        """What happened in the namespace: events, and the end of each pod's log. ``extra`` are namespaces and
        selectors of more pods, the operator's say."""
        parts = []
        for title, arguments in (
            ("objects", ("get", "pods,deployments,persistentvolumeclaims", "--output=wide")),
            ("events", ("get", "events", "--sort-by=.lastTimestamp")),
        ):
            parts.append(f"--- {title}\n{self._said(*arguments)}")
        pods = [(self.namespace, name) for name in self._said("get", "pods", "--output=name").split() if "/" in name]
        for namespace, selector in extra:
            pods += [(namespace, f"--selector={selector}")]
        for namespace, pod in pods:
            log = self._said("logs", pod, "--all-containers", f"--tail={_TAIL}", f"--namespace={namespace}")
            parts.append(f"--- log of {pod} in {namespace}\n{log}")
        return "\n".join(parts)

    def _said(self, *arguments: str) -> str:
        try:
            return self.run(*arguments)
        except (KubectlError, subprocess.SubprocessError, OSError) as error:
            return f"({error})"
