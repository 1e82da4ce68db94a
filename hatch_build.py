"""Build hook: puts the version and the bridge jar, built by Maven, into the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

JAR = "flink-skills-bridge.jar"
VERSION_FILE = "flink_skills/_version.py"


class BridgeBuildHook(BuildHookInterface):
    """Builds ``java-bridge`` when its jar is missing or older than a source.

    ``FLINK_SKILLS_BRIDGE_JAR`` names a jar that was built elsewhere and is taken as it is.
    """

    PLUGIN_NAME = "custom"
    _folder: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Include the version, and in wheels the jar (an editable install finds it in the Maven build)."""
        # An sdist has the file already.
        if version != "editable" and not (Path(self.root) / VERSION_FILE).exists():
            self._folder = Path(tempfile.mkdtemp())
            written = self._folder / "version.py"
            written.write_text(f'VERSION = "{self.metadata.version}"\n', encoding="utf-8")
            build_data["force_include"][str(written)] = VERSION_FILE
        if self.target_name != "wheel":
            return
        jar = self._jar()
        build_data["pure_python"] = True
        if version != "editable":
            build_data["force_include"][str(jar)] = f"flink_skills/jars/{JAR}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was written for the build."""
        if self._folder is not None:
            shutil.rmtree(self._folder)

    def _jar(self) -> Path:
        given = os.environ.get("FLINK_SKILLS_BRIDGE_JAR")
        if given:
            if not Path(given).is_file():
                self._stop(f"FLINK_SKILLS_BRIDGE_JAR={given}: there is no such file")
            return Path(given).resolve()
        project = Path(self.root) / "java-bridge"
        jar = project / "target" / JAR
        sources = [project / "pom.xml", *(project / "src" / "main").rglob("*")]
        if jar.is_file() and all(jar.stat().st_mtime >= source.stat().st_mtime for source in sources):
            return jar
        for program, name in (("javac", "a JDK 17"), ("mvn", "Maven")):
            if shutil.which(program) is None:
                self._stop(
                    f"building flink_skills from source needs {name}, and there is no '{program}' on the PATH. "
                    "Install it, or set FLINK_SKILLS_BRIDGE_JAR to a bridge jar that was built elsewhere."
                )
        maven = ["mvn", "-q", "-B", "-f", str(project / "pom.xml"), "-DskipTests", "package"]
        built = subprocess.run(maven, check=False)
        if built.returncode != 0 or not jar.is_file():
            self._stop(f"Maven could not build the bridge jar; run '{' '.join(maven)}' to see why")
        return jar

    def _stop(self, message: str) -> None:
        self.app.abort(f"flink_skills: {message}")
