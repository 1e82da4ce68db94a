"""Row 47: what honest scripts do works the same everywhere."""

from __future__ import annotations

import shutil

import pytest

from flink_skills.execution import Limits
from tests.execution.escape.conftest import backend_params
from tests.execution.escape.machine import runs_for
from tests.execution.escape.worker import WorkerProcess
from tests.execution.escape.world import World
from tests.kit.waiting import SLOWNESS

worlds = pytest.mark.parametrize("worker", backend_params(), indirect=True)
isolated = pytest.mark.parametrize("worker", backend_params(control=False), indirect=True)

SHELL_TEXTS = {
    "pipelines": ("for i in $(seq 200); do echo $i | cat | wc -c; done | sort -n | tail -n 1", b"4"),
    "heredoc": ("cat <<END\nfirst\nsecond\nEND", b"first\nsecond"),
    "temporary": ('f=$(mktemp) && echo x > "$f" && cat "$f" && case "$f" in "$TMPDIR"/*) echo in;; esac', b"x\nin"),
    "background": ("sleep 0.05 & wait $!; echo waited", b"waited"),
    "subshells": ("(exit 3); echo $?; sh -c 'exit 4'; echo $?", b"3\n4"),
    "killed-child": ("sh -c 'kill -9 $$'; echo $?", b"137"),
    "devices": ("echo x > /dev/null; head -c 3 /dev/urandom | wc -c; head -c 2 /dev/zero | wc -c", b"3\n2"),
    "xargs": ("seq 20 | xargs -P 4 -n 1 echo | sort -n | tail -n 1", b"20"),
    "archive": ("mkdir a; echo x > a/f; tar czf a.tgz a; rm -r a; tar xzf a.tgz; cat a/f", b"x"),
    "links": ("echo x > a; ln a b; ln -s a c; mv a d; cat b; readlink c", b"x\na"),
    "fifo": ("mkfifo p; echo through > p & cat p", b"through"),
    "modes": ("echo 'echo ran' > s; chmod 700 s; sh ./s; test -x s && echo x", b"ran\nx"),
    "home": ('cd && touch .rc && test -w . && test "$HOME" = "$PWD" && echo home', b"home"),
    "find": ("mkdir -p a/b; touch a/b/c; find a -type f", b"a/b/c"),
}


@worlds
@pytest.mark.parametrize("name", SHELL_TEXTS)
def test_row47_shell(worker: WorkerProcess, world: World, name: str) -> None:
    text, said = SHELL_TEXTS[name]
    result = world.shell(text)
    assert (result.exit_code, result.stdout.strip()) == (0, said), result


@isolated
def test_row47_outputs_by_name(worker: WorkerProcess, world: World) -> None:
    result = world.shell("echo first; echo out > /dev/stdout; echo err > /dev/stderr; echo last | tee /dev/stderr")
    assert (result.stdout, result.stderr) == (b"first\nout\nlast\n", b"err\nlast\n"), result


@worlds
@pytest.mark.parametrize("code", [0, 3, 126, 127, 137, 255])
def test_row47_exit_codes(worker: WorkerProcess, world: World, code: int) -> None:
    result = world.shell(f"exit {code}")
    assert (result.exit_code, result.signal, result.error) == (code, None, None)


@worlds
@pytest.mark.parametrize("number", [9, 15, 11])
def test_row47_signals(worker: WorkerProcess, world: World, number: int) -> None:
    result = world.shell(f"kill -{number} $$")
    assert (result.exit_code, result.signal, result.error) == (None, number, None)


@worlds
def test_row47_bash_with_process_substitution(worker: WorkerProcess, world: World) -> None:
    if not shutil.which("bash"):
        pytest.skip("there is no bash")
    text = "diff <(seq 3) <(seq 3) && cat <<< here && for ((i = 0; i < 2; i++)); do echo $i; done"
    result = worker.run(world.request("bash", "-c", text))[0]
    assert (result.exit_code, result.stdout) == (0, b"here\n0\n1\n"), result


PYTHON_TEXTS = {
    "modules": "import ssl, sqlite3, hashlib, ctypes, zlib, lzma; print(bool(ssl.create_default_context()))",
    "temporary": "import tempfile; f = tempfile.NamedTemporaryFile(); f.write(b'x'); tempfile.mkdtemp(); print(True)",
    "database": "import sqlite3; c = sqlite3.connect('x.db'); c.execute('create table t (a)'); c.commit(); print(True)",
    "subprocess": "import subprocess; print(subprocess.check_output(['echo', 'x'], text=True) == 'x\\n')",
    "shell": "import subprocess; print(subprocess.run('exit 3', shell=True).returncode == 3)",
    "asyncio": "import asyncio; asyncio.run(asyncio.sleep(0)); print(True)",
    "async-subprocess": (
        "import asyncio\n"
        "async def main():\n"
        "    p = await asyncio.create_subprocess_exec('echo', 'x', stdout=asyncio.subprocess.PIPE)\n"
        "    print((await p.communicate())[0] == b'x\\n')\n"
        "asyncio.run(main())"
    ),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(8) as pool: print(sum(pool.map(abs, range(100))) == 4950)"
    ),
    "platform": "import platform, os, time, locale; platform.platform(); os.cpu_count(); time.localtime(); print(True)",
    "random": "import os, secrets, uuid; os.urandom(8); secrets.token_hex(); uuid.uuid4(); print(True)",
    "user": "import getpass, os, pwd; print(os.path.expanduser('~') == os.environ['HOME'])",
    "no-network": (
        "import urllib.request\ntry: urllib.request.urlopen('http://127.0.0.1:9/')\nexcept OSError: print(True)"
    ),
    "memory-map": "import mmap; m = mmap.mmap(-1, 1 << 20); m[0] = 1; print(m[0] == 1)",
    "size": "import shutil; shutil.disk_usage('.'); open('a', 'w').write('x'); shutil.copy2('a', 'b'); print(True)",
    "tree": (
        "import os, shutil; os.makedirs('a/b'); shutil.copytree('a', 'c'); shutil.rmtree('a'); os.replace('c', 'd'); "
        "print(True)"
    ),
}


@worlds
@pytest.mark.parametrize("name", PYTHON_TEXTS)
def test_row47_python(worker: WorkerProcess, world: World, name: str) -> None:
    result = worker.run(world.request(worker.python, "-c", PYTHON_TEXTS[name]))[0]
    assert (result.exit_code, result.stdout) == (0, b"True\n"), result


@worlds
def test_row47_git(worker: WorkerProcess, world: World) -> None:
    if not runs_for(worker.identity.command_uid, "git", "--version"):
        pytest.skip("there is no git")
    text = (
        "git init -q r && cd r && echo x > f && git add f && "
        "git -c user.name=n -c user.email=e@example.org commit -q -m m && git log --format=%s && "
        "git clone -q . ../copy && cat ../copy/f && git worktree add -q ../tree && git gc -q && git status --short"
    )
    result = world.shell(text)
    assert (result.exit_code, result.stdout) == (0, b"m\nx\n"), result


@worlds
def test_row47_node(worker: WorkerProcess, world: World) -> None:
    if not runs_for(worker.identity.command_uid, "node", "--version"):
        pytest.skip("there is no node")
    text = "const {execSync} = require('child_process'); console.log(execSync('echo x').toString().trim())"
    result = worker.run(world.request("node", "-e", text, limits=Limits(wall_time=60 * SLOWNESS, open_files=0)))[0]
    assert (result.exit_code, result.stdout) == (0, b"x\n"), result


@worlds
def test_row47_a_script_of_the_skill(worker: WorkerProcess, world: World) -> None:
    result = worker.run(world.request("/bin/sh", "scripts/run.sh", cwd=world.room.skill))[0]
    assert (result.exit_code, result.stdout) == (0, b"report\n"), result
    written = worker.run(world.request("/bin/sh", "-c", "echo x > out/report.txt", cwd=world.room.skill))[0]
    assert written.exit_code == 0, written
    assert world.shell(f"cat {world.room.out}/report.txt").stdout == b"x\n"
