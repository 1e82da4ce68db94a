"""What is around the sandbox: files, sockets, processes and workspaces that commands may not touch."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flink_skills.execution import CommandRequest, CommandResult, Limits
from tests.execution.escape.listeners import Listeners
from tests.execution.escape.machine import own_address
from tests.execution.escape.probes.kit import Attempt, Target, syscall
from tests.execution.escape.worker import Room, WorkerProcess
from tests.kit.waiting import SLOWNESS

__all__ = ["PATH", "World", "processes_with"]

PATH = "/usr/local/bin:/usr/bin:/bin"
_PROBES = Path(__file__).with_name("probes")
_PACKAGE = "tests.execution.escape.probes"
_MODULES = ("kit", "files", "processes", "network", "kernel")
# Makes the modules importable by their names, where there is nothing to import them from.
_BOOT = """\
import json, sys, types
given = json.load(sys.stdin)
names = given["package"].split(".")
for end in range(len(names)):
    name = ".".join(names[: end + 1])
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, text in given["modules"]:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
kit = sys.modules[given["package"] + ".kit"]
print(json.dumps(kit.run_all(kit.Target(**given["target"]), given["names"])))
"""


class World:
    """Made for one test. ``worker`` runs the commands; what is attacked is laid out for ``attempts``."""

    def __init__(self, worker: WorkerProcess, attempts: list[Attempt]) -> None:
        self.worker = worker
        self.attempts = attempts
        self.mark = uuid.uuid4().hex
        self.uid = worker.identity.command_uid
        self.room = worker.room(f"a {self.mark}")
        self.other = worker.room(f"b {self.mark}")
        self.outside = worker.canary.parent
        self._stack = contextlib.ExitStack()
        self._folder = worker.base / f"w{self.mark[:8]}"
        self._folder.mkdir(mode=0o755)
        self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        self.listeners = Listeners(self._folder, self.uid, own_address())
        self._stack.callback(self.listeners.close)
        self.victims: dict[str, subprocess.Popen[bytes]] = {}
        self.files: dict[str, Path] = {}
        self.new: dict[str, Path] = {}
        for one in attempts:
            self._lay_out(one)
        self.target = self._target()
        self._before = {name: _snapshot(path) for name, path in self.files.items()}
        self._memory = worker.call("memory")

    def leave(self) -> None:
        """Clean up what is outside, whether the worker lives or not."""
        for path in self.new.values():
            _remove(path)
        for kind in ("shm", "sem", "msg", "mq"):
            self._take_ipc(kind)
        if self.worker.alive:
            for key in ("a", "b"):
                self.worker.call("remove", key=f"{key} {self.mark}")
        self._stack.close()

    def request(
        self, *argv: str, room: Room | None = None, env: Mapping[str, str] | None = None, **more: Any
    ) -> CommandRequest:
        """A command in a workspace, with the environment that commands have."""
        room = room or self.room
        usual = {
            "PATH": PATH,
            "HOME": room.home,
            "TMPDIR": room.tmp,
            "LANG": "C.UTF-8",
            "ESCAPE_ALLOWED": "yes",
            "ESCAPE_MARK": self.mark,
        }
        given: dict[str, Any] = {
            "cwd": room.work,
            "limits": Limits(wall_time=60 * SLOWNESS),
            "root": room.root,
            "writable": tuple(room.writable),
            "readable": tuple(room.readable),
            **more,
        }
        return CommandRequest(argv, env={**usual, **(env or {})}, **given)

    def shell(self, text: str, **more: Any) -> CommandResult:
        """Run a shell text in the workspace."""
        return self.worker.run(self.request("/bin/sh", "-c", text, **more))[0]

    def python(self, text: str, *arguments: str, **more: Any) -> CommandRequest:
        """A command that runs a Python text, with the interpreter that commands have."""
        return self.request(self.worker.python, "-I", "-S", "-c", text, *arguments, **more)

    def attack(self) -> dict[str, str | None]:
        """Run the attempts in one command: what each got, None for those that were stopped.

        Raises ``AssertionError`` where the attempts could not be made.
        """
        given = {
            "package": _PACKAGE,
            "modules": [(f"{_PACKAGE}.{name}", (_PROBES / f"{name}.py").read_text()) for name in _MODULES],
            "target": dataclasses.asdict(self.target),
            "names": [one.name for one in self.attempts],
        }
        result = self.worker.run(self.python(_BOOT, stdin=json.dumps(given).encode()))[0]
        assert result.error is None, result.error
        assert (result.exit_code, result.limit) == (0, None), (result, result.stderr.decode(errors="replace"))
        verdicts = json.loads(result.stdout)
        broken = {name: verdict["detail"] for name, verdict in verdicts.items() if verdict["broken"]}
        assert not broken, f"attempts that are at fault themselves: {broken}"
        heard = self.listeners.heard()
        return {one.name: self._judge(one, verdicts[one.name], heard) for one in self.attempts}

    def processes(self) -> list[int]:
        """Living processes of commands of this world, wherever they went."""
        return processes_with(f"ESCAPE_MARK={self.mark}")

    def traces(self) -> list[str]:
        """All that is different outside, whoever said what: nothing, if all is stopped."""
        found = [f"{name} is there" for name, path in self.new.items() if os.path.lexists(path)]
        found += [f"{name} is changed" for name, path in self.files.items() if _snapshot(path) != self._before[name]]
        found += [f"{name} was heard" for name in self.listeners.heard()]
        found += [f"process {name} was ended" for name, victim in self.victims.items() if victim.poll() is not None]
        found += [f"{kind} was made" for kind in ("shm", "sem", "msg", "mq") if self._take_ipc(kind)]
        if not self.worker.alive:
            found.append("the worker was ended")
        elif self.worker.call("memory") != self._memory:
            found.append("the memory of the worker is changed")
        return found

    def victim(self, name: str) -> subprocess.Popen[bytes]:
        """A process of the commands' user that is none of theirs, with the worker's secret in its environment."""
        other = self.uid != os.geteuid()
        victim = subprocess.Popen(
            ["/bin/sleep", "600"],
            env={self.worker.secret_name: self.worker.secret},
            user=self.uid if other else None,
            group=self.uid if other else None,
            extra_groups=[] if other else None,
            start_new_session=True,
        )
        self.victims[name] = victim
        self._stack.callback(_end, victim)
        return victim

    def _judge(self, one: Attempt, verdict: Mapping[str, object], heard: set[str]) -> str | None:
        kind, _, name = one.proof.partition(":")
        detail = str(verdict["detail"])
        if kind == "heard":
            escaped = bool(verdict["escaped"]) or name in heard
        elif kind == "made":
            escaped = os.path.lexists(self.new[one.name])
        elif kind == "changed":
            escaped = _snapshot(self.files[one.name]) != self._before[one.name]
        elif kind == "ended":
            escaped = _ends(self.victims[name], bool(verdict["escaped"]))
        elif kind == "memory":
            escaped = self.worker.call("memory") != self._memory
        elif kind == "ipc":
            escaped = self._take_ipc(name)
        else:
            escaped = bool(verdict["escaped"])
        return detail if escaped else None

    def _lay_out(self, one: Attempt) -> None:
        if one.proof == "made":
            self.new[one.name] = self._place(one.name)
        elif one.proof == "changed" or one.name == "run_a_program_from_outside":
            path = (
                self._folder / "home" / ".bashrc" if "bashrc" in one.name else self.outside / f"{one.name}-{self.mark}"
            )
            if "bashrc" in one.name:
                self._own(path.parent)
            path.write_text("#!/bin/sh\nexit 0\n")
            os.chown(path, self.uid, -1)
            path.chmod(0o700)
            self.files[one.name] = path
            self._stack.callback(_remove, path)
        elif one.proof.startswith("ended:"):
            self.victim(one.proof.partition(":")[2])

    def _place(self, name: str) -> Path:
        places = {
            "write_to_tmp": Path("/tmp") / f"escape-{self.mark}",
            "write_to_shared_memory": Path("/dev/shm") / f"escape-{self.mark}",
            "make_a_profile": self._own(self._folder / "home") / ".profile",
            "make_an_ssh_key": self._own(self._folder / "home" / ".ssh") / "authorized_keys",
            "ask_a_virtual_machine_to_listen": self.outside / f".attach_pid{self.worker.pid}",
        }
        return places.get(name, self.outside / f"new-{name}-{self.mark}")

    def _own(self, folder: Path) -> Path:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chown(folder, self.uid, -1)
        return folder

    def _target(self) -> Target:
        text = "the-other-workspace-" + self.mark
        other_file = Path(self.other.work, "private")
        other_file.write_text(text)
        os.chown(other_file, self.uid, -1)
        other_file.chmod(0o600)
        token = self._own(self._folder / "serviceaccount") / "token"
        token.write_text(self.worker.canary.read_text())
        os.chown(token, self.uid, -1)
        token.chmod(0o600)
        link = self.outside / f"link-{self.mark}"
        link.symlink_to("/")
        self._stack.callback(link.unlink)
        facts = self.worker.facts
        return Target(
            outside=str(self.outside),
            canary=str(self.worker.canary),
            canary_text=self.worker.canary.read_text(),
            token=str(token),
            home=str(self._folder / "home"),
            files={name: str(path) for name, path in self.files.items()},
            new={name: str(path) for name, path in self.new.items()},
            work=self.room.work,
            out=self.room.out,
            skill=self.room.skill,
            workspace=self.room.root,
            other_work=self.other.work,
            other_file=str(other_file),
            other_text=text,
            worker=facts["pid"],
            worker_group=facts["pid"],
            worker_fd=facts["descriptor"],
            secret_name=self.worker.secret_name,
            secret=self.worker.secret,
            memory=facts["memory"],
            memory_text=self.worker.memory_text,
            writable_memory=facts["writable_memory"],
            victims={name: victim.pid for name, victim in self.victims.items()},
            ports=self.listeners.ports,
            paths={**self.listeners.paths, "link": str(link)},
            address=own_address(),
            ipc_key=int(self.mark[:7], 16),
            mark=self.mark,
            setuid_program=self._setuid_program(),
        )

    def _setuid_program(self) -> str:
        program = shutil.which("id")
        if os.geteuid() != 0 or not program:
            return ""
        # In a place that commands may run programs from.
        copy = Path(self.room.work, "id")
        shutil.copyfile(program, copy)
        os.chown(copy, 0, 0)
        copy.chmod(0o4755)
        return str(copy)

    def _take_ipc(self, kind: str) -> bool:
        """Whether commands made something to share of ``kind`` that is seen outside; removes it."""
        key = int(self.mark[:7], 16)
        try:
            if kind == "mq":
                syscall("mq_unlink", b"escape-" + self.mark.encode())
                return True
            get = {"shm": ("shmget", key, 0, 0), "sem": ("semget", key, 0, 0), "msg": ("msgget", key, 0)}[kind]
            number = syscall(*get)  # type: ignore[arg-type]
            syscall(kind + "ctl", number, *((0, 0) if kind == "sem" else (0,)), 0)  # IPC_RMID
        except OSError:
            return False
        return True


def processes_with(mark: str) -> list[int]:
    """Living processes (zombies have no environment any more) whose environment has ``mark``."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


def _snapshot(path: Path) -> tuple[object, ...] | None:
    try:
        about = path.lstat()
        return (path.read_bytes(), about.st_mode, about.st_uid, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)
    except FileNotFoundError:
        return None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def _ends(process: subprocess.Popen[bytes], soon: bool) -> bool:
    """Whether ``process`` ended; waits for it where a signal is said to be on its way."""
    if not soon:
        return process.poll() is not None
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(SLOWNESS)
    return process.poll() is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
