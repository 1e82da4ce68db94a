"""Installs MCP servers of others below ``build/``, once: PyPI's into an environment of their own, npm's beside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

__all__ = ["EVERYTHING", "conformance", "everything", "hf_skills", "python_server"]

ROOT = Path(__file__).resolve().parents[3]
REQUIREMENTS = Path(__file__).with_name("real_servers.txt")
EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"
HF_SKILLS = "@llmindset/hf-mcp-server@0.4.23"
CONFORMANCE = "@modelcontextprotocol/conformance@0.1.16"
#: The suite needs it.
NODE = "node@22"
SECONDS = 600


def python_server(name: str) -> Path:
    """The program of a server on PyPI. Raises :class:`RuntimeError` with pip's last line."""
    folder = ROOT / "build" / f"mcp-servers-{sys.version_info[0]}.{sys.version_info[1]}"
    stamp = folder / REQUIREMENTS.name
    if not stamp.is_file() or stamp.read_bytes() != REQUIREMENTS.read_bytes():
        # The servers pin another version of the package mcp than this project. The pip of this environment serves both.
        venv.create(folder, clear=True)
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q"]
        _run([*pip, "--disable-pip-version-check", "--no-compile", "-r", str(REQUIREMENTS)])
        shutil.copy(REQUIREMENTS, stamp)
    return folder / "bin" / name


def everything() -> tuple[str, str]:
    """The words that start the reference server of npm. Raises :class:`RuntimeError` with the reason."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise RuntimeError("there is no node, or no npm, on this machine")
    folder = _from_npm(npm, "mcp-server-everything", EVERYTHING)
    package = folder / "node_modules" / "@modelcontextprotocol" / "server-everything"
    return node, str(package / "dist" / "index.js")


def hf_skills() -> tuple[str, str]:
    """The words that start a server of skills over HTTP. Raises :class:`RuntimeError` with the reason."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise RuntimeError("there is no node, or no npm, on this machine")
    folder = _from_npm(npm, "hf-mcp-server", HF_SKILLS)
    package = folder / "node_modules" / "@llmindset" / "hf-mcp-server"
    return node, str(package / "dist" / "server" / "streamableHttp.js")


def conformance() -> tuple[str, str]:
    """The words that start the conformance suite of the protocol. Raises :class:`RuntimeError` with the reason."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise RuntimeError("there is no node, or no npm, on this machine")
    folder = _from_npm(npm, "mcp-conformance", CONFORMANCE)
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < 22:
        other = _from_npm(npm, "node-22", NODE, scripts=True)
        node = str(other / "node_modules" / ".bin" / "node")
    package = folder / "node_modules" / "@modelcontextprotocol" / "conformance"
    return node, str(package / "dist" / "index.js")


def _from_npm(npm: str, name: str, package: str, *, scripts: bool = False) -> Path:
    folder = ROOT / "build" / name
    stamp = folder / "version.txt"
    if not stamp.is_file() or stamp.read_text() != package:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        words = ["install", "--silent", "--no-audit", "--no-fund", "--no-save"]
        _run([npm, *words, *(() if scripts else ("--ignore-scripts",)), "--prefix", str(folder), package])
        stamp.write_text(package)
    return folder


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{Path(command[0]).name} took longer than {SECONDS} s") from error
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["it said nothing"]
        raise RuntimeError(f"{Path(command[0]).name} failed: {lines[-1]}")
