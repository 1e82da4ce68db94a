"""Sockets of commands that may use the network: those of IPv4 and IPv6, and no others."""

from __future__ import annotations

import contextlib
import platform
import sys
from pathlib import Path
from unittest import mock

import pytest

from flink_skills.execution import BackendSettings
from flink_skills.execution.backends import HygieneBackend, LandlockBackend, LocalBackend

from .conftest import Shell

_ABI_VERSION = "flink_skills.execution.backends.landlock.abi_version"
_SOCKET = {"x86_64": "41", "aarch64": "198"}[platform.machine()]
_SOCKETS = """
import ctypes, errno, socket
ours, libc = {socket.AF_INET, socket.AF_INET6}, ctypes.CDLL(None)
for family in range(64):
    for kind in range(1, 12):
        try:
            socket.socket(family, kind).close()
            if family not in ours:
                print("open", family, kind)
        except OSError as error:
            if family not in ours and error.errno != errno.EACCES:
                print("not filtered", family, kind, error)
    for upper in (1 << 32, 1 << 63):
        if libc.syscall({number}, ctypes.c_ulong(upper | family), 1, 0) >= 0:
            print("open with upper bits", family)
for family in ours:
    socket.socket(family, socket.SOCK_STREAM).bind(("", 0))
    socket.socket(family, socket.SOCK_DGRAM).bind(("", 0))
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    for attempt in (lambda: one.connect("\\0flink-skills-test"), one.listen):
        try:
            attempt()
            print("a pair turns into another socket", kind)
        except OSError:
            pass
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
    try:
        print("open pair", socket.socketpair(socket.AF_UNIX, kind))
    except PermissionError:
        pass
print("over")
"""


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("kind", "abi"),
    [(HygieneBackend, 0), (LandlockBackend, 0), (LandlockBackend, 5), (LandlockBackend, 2)],
    ids=["hygiene", "as-here", "abi-5", "abi-2"],
)
async def test_the_network_opens_sockets_of_the_internet_only(
    kind: type[LocalBackend], abi: int, tmp_path: Path
) -> None:
    backend = kind(BackendSettings(network=True))
    with mock.patch(_ABI_VERSION, return_value=abi) if abi else contextlib.nullcontext():
        await backend.start()
    try:
        (tmp_path / "sockets.py").write_text(_SOCKETS.replace("{number}", _SOCKET))
        result = await Shell(backend, tmp_path)(f"{sys.executable} -I -S sockets.py", timeout=60)
    finally:
        await backend.close()
    assert (result.exit_code, result.stdout) == (0, b"over\n"), result
