"""Commands of a job try to get out of their workspaces, and to outlive the job: on a real cluster, with real files."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from flink_skills.errors import ExecutionError
from flink_skills.execution import create_backend, settings_from
from flink_skills.execution.host import system_paths
from flink_skills.options import SkillConfig
from tests.cluster.isolation.crime_scene import CrimeScene
from tests.execution.stress.marked import Mark
from tests.kit.class_archives import cluster_options
from tests.kit.cluster import StandaloneCluster, wait_until
from tests.kit.walking import files_below, folders_below

pytestmark = pytest.mark.cluster

SLOTS = 2
UNSTEADY = {"taskmanager-0.log", "metadata.json"}
TOKEN = "eyJhbGciOiJSUzI1NiJ9.of-the-service-account"
# A TaskManager that does not get rid of a task in this time ends itself.
WATCHDOG_MS = 12_000
DENIED = {"EACCES", "EPERM", "EXDEV"}
# What no rights would help with: a folder moved into itself, a file in place of a folder, a process without a file.
NONSENSE = {"ENOENT", "EISDIR", "ENOTDIR", "EINVAL", "ENOTEMPTY", "EBUSY", "EROFS"}


@pytest.fixture(scope="module")
def open_folder() -> Iterator[Path]:
    """A folder that every user of the machine can get through and look into, unlike those that pytest makes."""
    made = Path(os.path.realpath(tempfile.mkdtemp(prefix="isolation-")))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def cluster(open_folder: Path) -> Iterator[StandaloneCluster]:
    """A cluster of its own: its files have to be open to others, so that only isolation keeps commands from them."""
    config = {
        **cluster_options(),
        "task.cancellation.timeout": str(WATCHDOG_MS),
        "task.cancellation.interval": "1000",
        # What is to be attacked has to stay there.
        "execution.checkpointing.num-retained": "1000",
    }
    with StandaloneCluster(open_folder / "cluster", task_managers=1, slots=SLOTS, config=config) as cluster:
        yield cluster


@pytest.fixture
def scene(cluster: StandaloneCluster, open_folder: Path, request: pytest.FixtureRequest) -> Iterator[CrimeScene]:
    scene = CrimeScene(cluster, open_folder / re.sub(r"\W+", "-", request.node.name))
    with scene.server:
        yield scene
    if scene.job and cluster.state(scene.job) == "RUNNING":
        cluster.cancel(scene.job)
    wait_until(lambda: free_slots(cluster) == SLOTS, 30, "the slots to be free")


@pytest.fixture
def token(open_folder: Path) -> Path:
    """As Kubernetes mounts it: for everybody in the pod."""
    file = open_folder / "var/run/secrets/kubernetes.io/serviceaccount/token"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(TOKEN)
    file.chmod(0o644)
    return file


@pytest.fixture
def mark() -> Iterator[Mark]:
    mark = Mark()
    yield mark
    mark.end_all()


def free_slots(cluster: StandaloneCluster) -> int:
    return int(cluster.rest("/overview")["slots-available"])


def task_manager_pid(cluster: StandaloneCluster) -> int:
    """The JVM."""
    found = [pid for pid, command in cluster.processes().items() if "TaskManagerRunner" in command]
    assert len(found) == 1, found
    return found[0]


def settle(scene: CrimeScene, key: str) -> Path:
    """Have ``key`` leave a secret in its workspace, and say where that is."""
    found = re.search(r"^workspace=(/\S+)$", scene.does(key, f"sh scripts/settle.sh 'secret of {key}'"), re.MULTILINE)
    assert found is not None
    return Path(found[1])


def parts_of(workspace: Path) -> list[Path]:
    """What commands of another key may not get at."""
    secrets = [workspace / folder / "secret" for folder in ("work", "out", "home", "tmp")]
    return [*secrets, workspace / "work/inputs/event.json", workspace / "metadata.json", workspace / "work", workspace]


def parts_of_process(pid: int) -> list[Path]:
    names = ("environ", "mem", "maps", "cmdline", "fd", "cwd", "root", "root/etc/hostname", "task", "status")
    return [Path(f"/proc/{pid}/{name}") for name in names]


def some_files(folder: Path) -> list[Path]:
    return list(itertools.islice(files_below(folder), 3))


def surroundings(cluster: StandaloneCluster, token: Path) -> list[Path]:
    """The files around a job: configuration, token, state, checkpoints, logs, the folders of job and skills."""
    checkpoints = wait_until(lambda: some_files(cluster.checkpoint_dir), 60, "files of checkpoints")
    return [
        *(cluster.folder / "conf/config.yaml", cluster.folder / "conf", token, token.parent),
        *(*checkpoints, checkpoints[0].parent, cluster.checkpoint_dir),
        *(cluster.folder / "logs/taskmanager-0.log", cluster.folder / "logs", cluster.folder),
        *(*cluster.temporary_folders(), cluster.temporary_dir / "taskmanager-0", cluster.temporary_dir),
        *(Path("/etc/shadow"), Path("/etc"), Path("/tmp"), Path("/root"), Path("/home")),
    ]


@pytest.mark.parametrize("backend", ["landlock", "bwrap"])
def test_no_key_gets_at_another_ones_workspace_or_at_the_task_manager(
    cluster: StandaloneCluster, scene: CrimeScene, token: Path, backend: str
) -> None:
    check_backend(backend)
    scene.submit({"skills.shell.backend": backend})
    roots = {key: settle(scene, key) for key in ("alice", "bob")}
    assert roots["alice"] != roots["bob"]
    assert all((root / "out/secret").read_text() == f"secret of {key}\n" for key, root in roots.items())
    (worker,) = cluster.worker_pids()
    java = task_manager_pid(cluster)
    assert b"FLINK_CONF_DIR=" in Path(f"/proc/{java}/environ").read_bytes()
    around = surroundings(cluster, token)

    for key, other in (("alice", "bob"), ("bob", "alice")):
        targets = [*parts_of(roots[other]), *parts_of_process(java), *parts_of_process(worker), *around]
        before = {path: contents(path) for path in targets}
        granted = (*system_paths(), str(roots[key]), "/dev", "/proc")
        for how in ("read", "harm"):
            report = scene.tries(key, how, targets)
            # In a view of its own there are folders on the way to what is granted, and another /tmp that may be
            # written: that nothing came of it outside is looked at below. To others all of it is shut.
            leaks = report.leaks(granted if backend == "bwrap" else ())
            if backend == "bwrap":
                leaks = [leak for leak in leaks if (leak.path, leak.way) != ("/tmp", "create")]
            assert leaks == []
            assert report.attempts >= 6 * len(targets)
            denied = DENIED | ({"ENOENT"} if backend == "bwrap" else set())
            assert set(report.stopped) <= denied | NONSENSE
            assert sum(report.stopped.get(name, 0) for name in denied) > report.attempts / 2
            check_environment(report.environment)
            for secret in (TOKEN, f"secret of {other}"):
                assert secret not in report.text
        assert {path: contents(path) for path in targets} == before

    # All of that was the commands' own trouble: their keys and the job go on.
    for key in roots:
        assert f"secret of {key}" in scene.does(key, 'cat "$OUTPUT_DIR/secret"')
    assert cluster.restarts(scene.job) == 0
    assert cluster.worker_pids() == [worker]
    cluster.stop_with_savepoint(scene.job, drain=True)
    assert cluster.state(scene.job) == "FINISHED"
    wait_until(lambda: not cluster.temporary_folders(), 10, "the workspaces to go with the job")


def check_backend(name: str) -> None:
    """Skip the test with the reason where this machine cannot have the backend."""

    async def start() -> None:
        backend = create_backend(name, settings_from(SkillConfig()))
        try:
            await backend.start()
        finally:
            await backend.close()

    try:
        asyncio.run(start())
    except ExecutionError as error:
        pytest.skip(f"backend {name} does not start: {error}")


def contents(path: Path) -> object:
    """What is there, as far as it stays the same by itself."""
    if path.parts[1] == "proc" or path.name in UNSTEADY:
        return path.exists()
    try:
        return path.read_bytes() if path.is_file() else path.is_dir() and not (path / "intruder").exists()
    except FileNotFoundError:
        return None


def check_environment(given: dict[str, str]) -> None:
    """Nothing of Flink's and nothing of the worker's but where programs are."""
    assert [name for name in given if re.search("FLINK_(?!SKILLS_CALL_ID)|JAVA|PYTHON|TOKEN|SECRET|KEY", name)] == []


def test_the_same_attempts_succeed_where_files_are_not_isolated(
    cluster: StandaloneCluster, scene: CrimeScene, token: Path
) -> None:
    # Otherwise the test above would prove nothing but that its attempts are no good.
    scene.submit({"skills.shell.backend": "hygiene", "skills.shell.min-isolation": "hygiene"})
    roots = {key: settle(scene, key) for key in ("carol", "dave")}
    theirs = roots["dave"] / "out/secret"
    checkpoint = wait_until(lambda: some_files(cluster.checkpoint_dir), 60, "files of checkpoints")[0]
    open_to_all = [theirs, token, cluster.folder / "conf/config.yaml", checkpoint.parent, Path("/tmp")]
    report = scene.tries("carol", "read", open_to_all)
    leaks = report.leaks([str(roots["carol"]), *system_paths()])
    assert {leak.path for leak in leaks} == set(map(str, open_to_all))
    ways = {leak.way for leak in leaks if leak.path == str(theirs)}
    assert ways >= {"open", "link", "copy", "root", "held", "relative"}
    assert TOKEN in report.text
    assert "secret of dave" in report.text
    assert re.search("WARN.*commands run at level HYGIENE", cluster.log(0)), "it is in the log"


@pytest.mark.parametrize("place", ["temporary folders", "skills.workspace.dir"])
def test_a_cancel_ends_commands_that_do_not_want_to_end(
    cluster: StandaloneCluster, scene: CrimeScene, mark: Mark, open_folder: Path, place: str
) -> None:
    chosen = open_folder / "workspaces"
    scene.submit({"skills.workspace.dir": str(chosen)} if place == "skills.workspace.dir" else {})
    java = task_manager_pid(cluster)
    keys = [f"customer-{number}" for number in range(12)]
    scene.tell(keys, f"bash scripts/linger.sh {mark.text}")
    # Of each: itself, two sleeping daemons, one that pours and a sleeping child; one that forks is hard to count.
    wait_until(lambda: len(mark.processes()) >= 5 * len(keys), 90, "all commands to run")
    below = [each for pid in cluster.worker_pids() for each in psutil.Process(pid).children(recursive=True)]
    workspaces = workspaces_of(chosen if place == "skills.workspace.dir" else cluster.temporary_dir)
    assert len(workspaces) == len(keys)

    began = time.monotonic()
    cluster.rest(f"/jobs/{scene.job}?mode=cancel", method="PATCH")
    wait_until(lambda: free_slots(cluster) == SLOTS, 10, "the slots to be free")
    freed = time.monotonic() - began
    cluster.wait(scene.job, "CANCELED", 10)
    wait_until(lambda: not mark.processes(), 10, "the commands to end")
    wait_until(lambda: not cluster.worker_pids(), 10, "the agent workers to end with the job")
    wait_until(lambda: not any(each.is_running() for each in below), 10, "launchers and supervisors to end")
    wait_until(lambda: not any(each.exists() for each in workspaces), 10, "the workspaces to go with the job")
    wait_until(lambda: not cluster.temporary_folders(), 10, "the temporary folders to go with the job")
    assert not chosen.exists() or list(chosen.iterdir()) == []
    print(f"slots free after {freed:.1f} s, all gone after {time.monotonic() - began:.1f} s")
    check_task_manager(cluster, java)


def test_a_job_goes_on_when_a_worker_is_killed_under_its_commands(
    cluster: StandaloneCluster, scene: CrimeScene, mark: Mark
) -> None:
    scene.submit({})
    java = task_manager_pid(cluster)
    root = settle(scene, "erin")
    # The second time it only says so: the turn is repeated with the worker that comes next.
    again = 'if [ -e "$OUTPUT_DIR/been" ]; then echo again; else echo >"$OUTPUT_DIR/been"; '
    name = scene.tell(["erin"], f"{again} exec bash scripts/linger.sh {mark.text}; fi")
    wait_until(lambda: len(mark.processes()) >= 5, 60, "the command to run")
    (worker,) = cluster.worker_pids()
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not mark.processes(), 2, "the command to end with its worker")
    assert "again" in scene.answer("erin", name)
    assert "secret of erin" in scene.does("erin", 'cat "$OUTPUT_DIR/secret"')
    assert (root / "out/been").exists()
    assert cluster.restarts(scene.job) == 0
    check_task_manager(cluster, java)


def workspaces_of(folder: Path) -> list[Path]:
    return sorted(path for path in folders_below(folder) if path.name.startswith("ws_"))


def check_task_manager(cluster: StandaloneCluster, java: int) -> None:
    """It is the same as before, and no watchdog has barked."""
    assert task_manager_pid(cluster) == java
    assert not re.search("did not exit gracefully|FatalExit|Cancellation Watchdog.*kill", cluster.log(0))
