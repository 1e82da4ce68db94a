"""The image's Dockerfile: pinned, without build tools in what ships, and not root's."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.image.dockerfile import Dockerfile, read

IMAGE = Path(__file__).resolve().parents[2] / "deploy" / "image"
CHECKOUT = IMAGE.parents[1]
BUILD_TOOLS = r"\b(gcc|g\+\+|make|build-essential|maven|mvn|\S*-jdk\S*|\S+-dev|python3-venv)\b"


@pytest.fixture(scope="module")
def dockerfile() -> Dockerfile:
    return read(IMAGE / "Dockerfile")


def test_every_image_from_elsewhere_is_pinned_by_a_digest_that_must_be_given(dockerfile: Dockerfile) -> None:
    names = {stage.name for stage in dockerfile.stages}
    elsewhere = [stage.base for stage in dockerfile.stages if stage.base not in names]
    assert len(elsewhere) == 2
    for base in elsewhere:
        pinned = re.fullmatch(r"\S+@\$\{(\w+_DIGEST)\}", base)
        assert pinned, f"{base} is not pinned"
        assert dockerfile.arguments[pinned[1]] is None, f"{pinned[1]} has a default"
    copied = [copy for stage in dockerfile.stages for copy in stage.of("COPY") if "--from=" in copy]
    for copy in copied:
        assert re.search(r"--from=(\w+)", copy)[1] in names, copy  # type: ignore[index]


def test_what_ships_has_no_build_tools(dockerfile: Dockerfile) -> None:
    shipped = dockerfile.line(dockerfile.stages[-1])
    assert [stage.name for stage in shipped] == ["runtime", "base"]
    for stage in shipped:
        for command in stage.of("RUN"):
            assert not re.search(BUILD_TOOLS, command), command
            assert "apt-get" not in command and "--mount=type=cache" not in command, command
    # The check can see them: the stages before have them.
    assert any(re.search(BUILD_TOOLS, command) for command in dockerfile.stage("venv").of("RUN"))


def test_it_runs_as_flinks_user_by_number(dockerfile: Dockerfile) -> None:
    users = dockerfile.stages[-1].of("USER")
    assert users == ["9999:9999"]
    after = dockerfile.stages[-1].instructions.index(("USER", "9999:9999"))
    rest = dockerfile.stages[-1].instructions[after:]
    assert ("HEALTHCHECK", "NONE") in rest
    # The entry point is that of Flink's image.
    assert not dockerfile.stages[-1].of("ENTRYPOINT", "CMD")


def test_each_copied_file_is_in_the_context(dockerfile: Dockerfile) -> None:
    kept = (IMAGE / "Dockerfile.dockerignore").read_text().splitlines()
    allowed = [line.removeprefix("!") for line in kept if line.startswith("!")]
    for stage in dockerfile.stages:
        for copy in stage.of("COPY"):
            if "--from=" in copy:
                continue
            for source in copy.split()[:-1]:
                assert (CHECKOUT / source).exists(), f"COPY {copy}: there is no {source}"
                assert any(name == source or name.startswith(f"{source}/") for name in allowed), f"{source} is ignored"
    for name in allowed:
        assert (CHECKOUT / name).exists(), f"the context allows {name}, which is not there"


def test_labels_and_no_secrets(dockerfile: Dockerfile) -> None:
    labels = " ".join(dockerfile.stages[-1].of("LABEL"))
    for name in ("title", "description", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{name}=" in labels
    for stage in dockerfile.stages:
        for declared in stage.of("ARG", "ENV"):
            assert not re.search(r"(?i)token|password|secret|api_key", declared), declared


def test_shell_scripts_stop_at_errors() -> None:
    for script in ("install.sh", "build.sh", "pin.sh"):
        text = (IMAGE / script).read_text()
        assert text.startswith("#!/usr/bin/env bash\n") and "\nset -euo pipefail\n" in text
        subprocess.run(["bash", "-n", str(IMAGE / script)], check=True)
