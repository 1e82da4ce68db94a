"""Tell each storage library to try once and not to wait for ever.

The download repeats what failed, within one deadline. Libraries that repeat on their own below it multiply: three
tries of s3fs times five of botocore took half a minute and a dozen requests for one object that hangs.

What a library has no option for is set on the object that it made. Where a release no longer has such an attribute,
its own habit comes back, and the one deadline still holds.
"""

from __future__ import annotations

import math
from functools import partial
from types import MethodType
from typing import Any

__all__ = ["patient_options", "settle"]


def patient_options(protocol: str, options: dict[str, Any], stall: float) -> dict[str, Any]:
    """The options of a file system with its library's time limits and number of tries; what was given wins.

    ``stall``: most seconds to connect, and without a byte.
    """
    if protocol in ("http", "https"):
        client = options.get("client_kwargs") or {}
        return {**options, "client_kwargs": {"timeout": _client_timeout(stall), **client}}
    if protocol in ("s3", "s3a"):
        config = options.get("config_kwargs") or {}
        once = {
            "connect_timeout": stall,
            "read_timeout": stall,
            "retries": {"total_max_attempts": 1, "mode": "standard"},
        }
        # One stream: parts side by side would each be tried again, and each count for itself against the limit.
        return {"max_concurrency": 1, **options, "config_kwargs": {**once, **config}}
    if protocol in ("gs", "gcs"):
        return {"requests_timeout": _client_timeout(stall), **options}
    if protocol in ("abfs", "abfss", "az"):
        seconds = math.ceil(stall)
        return {"connection_timeout": seconds, "read_timeout": seconds, "max_concurrency": 1, **options}
    return options


def settle(protocol: str, system: Any, stall: float) -> None:
    """The same for what a library takes no option for."""
    if protocol in ("http", "https", "s3", "s3a"):
        system.close_session = _close_soon
    if protocol in ("s3", "s3a"):
        system.retries = 1
    elif protocol in ("gs", "gcs"):
        _settle_gcs(system)
    elif protocol in ("abfs", "abfss", "az"):
        _settle_azure(system, stall)
    elif protocol == "oss":
        _settle_oss(system, stall)
    elif protocol == "webhdfs":
        system.session.request = partial(system.session.request, timeout=(stall, stall))


def _close_soon(loop: Any, session: Any) -> None:
    """Close what a file system leaves, without waiting for it.

    The libraries wait, and a garbage collection may run this anywhere: also under a lock that the loop needs to go on,
    where each session that is left costs its whole time-out.
    """
    if loop is None or not loop.is_running():
        return

    async def close() -> None:
        await (session.close() if hasattr(session, "close") else session.__aexit__(None, None, None))

    loop.call_soon_threadsafe(lambda: loop.create_task(close()))


def _client_timeout(stall: float) -> Any:
    import aiohttp

    return aiohttp.ClientTimeout(total=None, sock_connect=stall, sock_read=stall)


def _settle_gcs(system: Any) -> None:
    for name in ("_request", "_get_file_request"):
        # A decorator that repeats a fixed number of times, and what is in it.
        once = getattr(getattr(type(system), name, None), "__wrapped__", None)
        if once is not None:
            setattr(system, name, MethodType(once, system))
    look, one_object = getattr(system, "_info", None), getattr(system, "_get_object", None)
    if look is not None and one_object is not None:

        async def info(path: str, **named: Any) -> Any:
            """Ask for the object alone, and list what may be a folder only where there is none."""
            try:
                return await one_object(path)
            except FileNotFoundError:
                return await look(path, **named)

        system._info = info
    if hasattr(system, "_get_file_request"):
        system._get_file = system._get_file_request  # without one more look before the read


def _settle_azure(system: Any, stall: float) -> None:
    client = getattr(system, "service_client", None)
    retries = getattr(getattr(client, "_config", None), "retry_policy", None)
    if retries is not None:
        retries.total_retries = 0
    transport = getattr(getattr(client, "_pipeline", None), "_transport", None)
    connection = getattr(transport, "connection_config", None)
    if connection is not None:
        connection.timeout = connection.read_timeout = stall


def _settle_oss(system: Any, stall: float) -> None:
    """Ask for the object alone: the library lists its whole folder, several times, and does not tell the entity tag."""
    many = getattr(system, "_call_oss", None)
    if many is None:
        return

    def once(*arguments: Any, **named: Any) -> Any:
        return many(*arguments, **named, retry=1, timeout=stall)

    def info(path: str) -> dict[str, Any]:
        bucket, key = system.split_path(path)
        if not key or key.endswith("/"):
            return {"name": path, "type": "directory", "size": 0}
        head = once("head_object", key, bucket=bucket)
        return {"name": path, "type": "file", "size": head.content_length, "ETag": head.headers.get("ETag")}

    def get_file(path: str, target: str, callback: Any) -> None:
        bucket, key = system.split_path(path)

        def progress(done: int, _total: int | None) -> None:
            callback.absolute_update(done)

        once("get_object_to_file", key, target, bucket=bucket, progress_callback=progress)

    system.info, system.get_file = info, get_file
