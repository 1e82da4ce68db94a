"""Protocols for skill URLs: packages, credentials, and option names in their libraries.

``skills.source.options`` accepts the same names for every store, because users do not know its library: ``endpoint``,
``region``, ``anonymous``, ``key`` and ``secret``. The library's option names are passed unchanged.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MethodType
from typing import Any
from urllib.parse import urlsplit

from flink_skills.endpoint import check_endpoint
from flink_skills.errors import ConfigError
from flink_skills.options import SkillOptions

# gcsfs's own word for access without credentials.
_ANONYMOUS_TOKEN = "anon"  # noqa: S105
_WORDS = ("endpoint", "region", "anonymous", "key", "secret")


def single_attempt_options(protocol: str, options: dict[str, Any], stall: float) -> dict[str, Any]:
    """Return a file system's options with time limits and one attempt. The user's options take precedence.

    ``stall`` is the maximum in seconds to connect, and without a byte.
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
        # One stream: concurrent parts would be retried separately, and each would have the whole limit.
        return {"max_concurrency": 1, **options, "config_kwargs": {**once, **config}}
    if protocol in ("gs", "gcs"):
        return {"requests_timeout": _client_timeout(stall), **options}
    if protocol in ("abfs", "abfss", "az"):
        seconds = math.ceil(stall)
        return {"connection_timeout": seconds, "read_timeout": seconds, "max_concurrency": 1, **options}
    return options


def disable_retries(protocol: str, system: Any, stall: float) -> None:
    """Limit the attempts of a library that has no option for it."""
    if protocol in ("http", "https", "s3", "s3a"):
        system.close_session = _close_soon
    if protocol in ("s3", "s3a"):
        system.retries = 1
    elif protocol in ("gs", "gcs"):
        _limit_gcs(system)
    elif protocol in ("abfs", "abfss", "az"):
        _limit_azure(system, stall)
    elif protocol == "oss":
        _limit_oss(system, stall)
    elif protocol == "webhdfs":
        system.session.request = partial(system.session.request, timeout=(stall, stall))


def _close_soon(loop: Any, session: Any) -> None:
    """Close a file system's session without waiting.

    The libraries wait. A garbage collection can run this under a lock that the loop needs, and each session then takes
    its whole timeout.
    """
    if loop is None or not loop.is_running():
        return

    async def close() -> None:
        await (session.close() if hasattr(session, "close") else session.__aexit__(None, None, None))

    loop.call_soon_threadsafe(lambda: loop.create_task(close()))


def _client_timeout(stall: float) -> Any:
    import aiohttp

    return aiohttp.ClientTimeout(total=None, sock_connect=stall, sock_read=stall)


def _limit_gcs(system: Any) -> None:
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


def _limit_azure(system: Any, stall: float) -> None:
    client = getattr(system, "service_client", None)
    retries = getattr(getattr(client, "_config", None), "retry_policy", None)
    if retries is not None:
        retries.total_retries = 0
    transport = getattr(getattr(client, "_pipeline", None), "_transport", None)
    connection = getattr(transport, "connection_config", None)
    if connection is not None:
        connection.timeout = connection.read_timeout = stall


def _limit_oss(system: Any, stall: float) -> None:
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


@dataclass(frozen=True)
class Protocol:
    """One family of URLs.

    ``names`` are its schemes, the first one its name in ``skills.source.options``. ``install`` is what pip needs.
    ``credentials`` says where they come from, for messages. ``words`` are the plain words that mean something here,
    ``translate`` gives the library's options for them.
    """

    names: tuple[str, ...]
    install: str
    credentials: str = "the credentials in its address or of this machine"
    words: tuple[str, ...] = ()
    translate: Callable[[dict[str, Any]], dict[str, Any]] = dict


def protocol_named(name: str) -> Protocol:
    """Return the protocol for a scheme. One that only fsspec supports has no plain names.

    >>> protocol_named("s3a").names[0]
    's3'
    """
    for protocol in _PROTOCOLS:
        if name in protocol.names:
            return protocol
    return Protocol((name,), f"<the fsspec package for {name}>")


def options_keys(name: str) -> tuple[str, ...]:
    """Return the keys in ``skills.source.options`` for a scheme: its own, then its family's."""
    return (name, *(other for other in protocol_named(name).names if other != name))


def library_options(name: str, declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options by the names in the protocol's library.

    Raises :class:`ConfigError` for a plain word that means nothing there or has no usable value.

    >>> library_options("s3", {"endpoint": "https://minio.example", "anonymous": True, "requester_pays": True})
    {'requester_pays': True, 'endpoint_url': 'https://minio.example', 'anon': True}
    """
    protocol = protocol_named(name)
    if not protocol.words:
        return dict(declared)
    ours = {word: value for word, value in declared.items() if word in _WORDS}
    for word in ours:
        if word not in protocol.words:
            understood = ", ".join(protocol.words)
            raise _wrong(name, f"{word!r} means nothing there; the words for it are {understood}")
    options = {word: value for word, value in declared.items() if word not in _WORDS}
    for word, value in protocol.translate(_checked(name, ours)).items():
        theirs = options.get(word)
        if theirs is None:
            options[word] = value
        elif isinstance(theirs, Mapping) and isinstance(value, Mapping):
            options[word] = {**value, **theirs}
        else:
            raise _wrong(name, f"{word!r} says the same as another word there; keep one of them")
    return options


def is_anonymous(name: str, options: Mapping[str, Any]) -> bool:
    """Return True if these library options request access without credentials."""
    if protocol_named(name).names[0] == "oss":
        return not options.get("key")
    return bool(options.get("anon")) or options.get("token") == _ANONYMOUS_TOKEN


def check_here(name: str, options: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` if a requirement is missing on the host that fetches."""
    protocol = protocol_named(name).names[0]
    if protocol == "oss" and not (options.get("endpoint") or os.environ.get("OSS_ENDPOINT")):
        raise _wrong(name, "'region' (such as cn-hangzhou) or 'endpoint' is required; set one of them, or OSS_ENDPOINT")
    token = options.get("token")
    # The library takes what is no file for an access token, and sends it to be checked.
    if protocol == "gs" and isinstance(token, str) and "/" in token and not os.path.isfile(token):
        raise _wrong(name, "the key file does not exist; copy it to every host that runs the job")


def _checked(name: str, ours: Mapping[str, Any]) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    for word, value in ours.items():
        if word == "anonymous":
            if str(value).lower() not in ("true", "false"):
                raise _wrong(name, "'anonymous' is true or false")
            if str(value).lower() == "true":
                checked[word] = True
        elif not isinstance(value, str) or not value.strip():
            raise _wrong(name, f"{word!r} needs a text that is not empty")
        else:
            checked[word] = value.strip()
    if checked.get("anonymous") and {"key", "secret"} & set(checked):
        raise _wrong(name, "'anonymous' goes without 'key' and 'secret'; remove one or the other")
    endpoint = checked.get("endpoint", "")
    if endpoint and name not in ("hdfs", "webhdfs"):
        place = f"option {SkillOptions.SOURCE_OPTIONS.key}, for {name}: 'endpoint'"
        check_endpoint(endpoint, place, "https://storage.example.org", references=True)
    return checked


def _both(name: str, words: Mapping[str, Any]) -> None:
    if ("key" in words) != ("secret" in words):
        raise _wrong(name, "'key' and 'secret' belong together; give both")


def _wrong(name: str, reason: str) -> ConfigError:
    return ConfigError(f"option {SkillOptions.SOURCE_OPTIONS.key}, for {name}: {reason}")


def _s3(words: dict[str, Any]) -> dict[str, Any]:
    _both("s3", words)
    names = {"endpoint": "endpoint_url", "anonymous": "anon", "key": "key", "secret": "secret"}
    options = {names[word]: value for word, value in words.items() if word in names}
    if region := words.get("region"):
        options["client_kwargs"] = {"region_name": region}
    return options


def _gs(words: dict[str, Any]) -> dict[str, Any]:
    options = {"endpoint_url": words["endpoint"]} if "endpoint" in words else {}
    if words.get("anonymous"):
        options["token"] = _ANONYMOUS_TOKEN
    elif "key" in words:
        options["token"] = _service_account(words["key"])
    return options


def _service_account(key: str) -> Any:
    """A key file's text, or its path."""
    if not key.startswith("{"):
        return key
    try:
        return json.loads(key)
    except ValueError:
        raise _wrong(
            "gs", "'key' is not valid JSON; set it to the content of a service account's key file, or its path"
        ) from None


def _abfs(words: dict[str, Any]) -> dict[str, Any]:
    endpoint, name, key = (words.get(word) for word in ("endpoint", "key", "secret"))
    anonymous = {"anon": True} if words.get("anonymous") else {}
    if endpoint and (key or anonymous):
        # An address that is no account's own host name can only be given to the library in this form.
        _both("abfs", words)
        parts = {"AccountName": name, "AccountKey": key, "BlobEndpoint": endpoint.rstrip("/")}
        return {**anonymous, "connection_string": ";".join(f"{k}={v}" for k, v in parts.items() if v)}
    options = {**anonymous, **({"account_name": name} if name else {}), **({"account_key": key} if key else {})}
    if endpoint:
        host = urlsplit(endpoint).netloc
        options.update(account_host=host, account_name=name or host.partition(".")[0])
    return options


def _oss(words: dict[str, Any]) -> dict[str, Any]:
    _both("oss", words)
    options: dict[str, Any] = {word: value for word, value in words.items() if word in ("endpoint", "key", "secret")}
    if "region" in words and "endpoint" not in words:
        options["endpoint"] = f"https://oss-{words['region']}.aliyuncs.com"
    if "key" not in words and not words.get("anonymous"):
        # The names that the store's own tools read; its fsspec library reads none.
        names = {"key": "OSS_ACCESS_KEY_ID", "secret": "OSS_ACCESS_KEY_SECRET", "token": "OSS_SESSION_TOKEN"}
        options.update({word: os.environ[name] for word, name in names.items() if os.environ.get(name)})
    return options


def _hdfs(words: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if endpoint := words.get("endpoint"):
        try:
            address = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
            host, port = address.hostname, address.port
        except ValueError:
            host, port = None, None
        if not host:
            raise _wrong("hdfs", "'endpoint' is host:port of the name node")
        options["host"] = host
        if port:
            options["port"] = port
        if address.scheme == "https":
            options["use_https"] = True
    names = {"key": "user", "secret": "password"}
    return {**options, **{names[word]: value for word, value in words.items() if word in names}}


_PROTOCOLS = (
    Protocol(("https", "http"), "'flink-skills[http]'", "the user or token in its URL"),
    Protocol(
        ("s3", "s3a"),
        "'flink-skills[s3]'",
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or the role) of this machine, or 'key' and 'secret'",
        _WORDS,
        _s3,
    ),
    Protocol(
        ("gs", "gcs"),
        "gcsfs",
        "GOOGLE_APPLICATION_CREDENTIALS (or the service account) of this machine, or 'key' with a key file's path",
        ("endpoint", "anonymous", "key"),
        _gs,
    ),
    Protocol(
        ("abfs", "abfss", "az"),
        "adlfs",
        "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (or the managed identity) of this machine, or 'key' "
        "(account) and 'secret' (its key)",
        ("endpoint", "anonymous", "key", "secret"),
        _abfs,
    ),
    Protocol(
        ("oss",),
        "ossfs",
        "OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET of this machine, or 'key' and 'secret'",
        _WORDS,
        _oss,
    ),
    Protocol(("hdfs",), "pyarrow", "the user and Kerberos ticket of this machine", ("endpoint", "key"), _hdfs),
    Protocol(
        ("webhdfs",),
        "requests",
        "'key' (user) and 'secret' (password), or the Kerberos ticket of this machine",
        ("endpoint", "key", "secret"),
        _hdfs,
    ),
    Protocol(("sftp", "ssh"), "paramiko"),
    Protocol(("git+https", "git+http", "git+file"), "'flink-skills[git]'"),
    Protocol(
        ("oci",), "'flink-skills[http]'", "'key' and 'secret' of its host under 'oci', or a login file with 'auths'"
    ),
)
