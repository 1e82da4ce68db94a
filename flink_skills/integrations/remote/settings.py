"""The options of the backend, and where they come from when they are not set."""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from flink_skills.endpoint import check_endpoint, redact
from flink_skills.errors import ConfigError, UnknownNameError
from flink_skills.options.option import parse_duration

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_FAMILY = "skills.shell.remote."
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True)
class RemoteSettings:
    """Where sandboxes are made, and from what.

    Attributes:
        url: Address of the sandbox router.
        api: Address of the Kubernetes API.
        namespace: Where the sandboxes are.
        template: The SandboxTemplate that they are made from.
        warm_pool: The SandboxWarmPool to take them from; empty: the first one of the template.
        port: The port that the runtime in a sandbox listens on.
        token: Token for the API; empty: that of the service account, read again for each request as it changes.
        router_token: Token for the router; empty: none is sent.
        ca_file: Certificates by which to know the API and the router; empty: the service account's or the system's.
        start_timeout: Seconds until a sandbox has to be ready.
        idle_timeout: Seconds without a command after which a sandbox is given back.
        account: The folder of the service account.
    """

    url: str
    api: str
    namespace: str
    template: str
    warm_pool: str = ""
    port: int = 8888
    token: str = field(default="", repr=False)
    router_token: str = field(default="", repr=False)
    ca_file: str = ""
    start_timeout: float = 120.0
    idle_timeout: float = 900.0
    account: Path = SERVICE_ACCOUNT

    @classmethod
    def read(
        cls, options: Mapping[str, str], environ: Mapping[str, str], account: Path = SERVICE_ACCOUNT
    ) -> RemoteSettings:
        """The settings that ``options`` (``skills.shell.remote.<name>``) say. Raises :class:`ConfigError`."""
        known = [of.name.replace("_", "-") for of in fields(cls) if of.name != "account"]
        for name in options:
            if name not in known:
                raise UnknownNameError("option", name, known, place=_FAMILY + "*")
        values = {name: str(value).strip() for name, value in options.items() if str(value).strip()}
        token = values.get("token", "")
        if not token and not (account / "token").is_file():
            raise ConfigError(
                f"option {_FAMILY}token is not set and this worker has no service account token ({account / 'token'}): "
                "set it, or run the pod with a service account and automountServiceAccountToken: true"
            )
        return cls(
            url=_address(values, "url", "http://sandbox-router-svc.agent-sandbox-system.svc:8080"),
            api=_address({"api": values.get("api") or _own_api(environ)}, "api", "https://kubernetes.default.svc"),
            namespace=_name(values, "namespace", _LABEL, "default"),
            template=_name(values, "template", _SUBDOMAIN),
            warm_pool=_name(values, "warm-pool", _SUBDOMAIN, ""),
            port=_port(values.get("port", "8888")),
            token=token,
            router_token=values.get("router-token", ""),
            ca_file=values.get("ca-file", ""),
            start_timeout=_seconds(values, "start-timeout", 120.0),
            idle_timeout=_seconds(values, "idle-timeout", 900.0),
            account=account,
        )

    def bearer(self) -> str:
        """The token for the API as it is now. Raises :class:`ConfigError` when it cannot be read."""
        if self.token:
            return self.token
        try:
            return (self.account / "token").read_text("utf-8").strip()
        except OSError as error:
            raise ConfigError(
                f"the service account token {self.account / 'token'} cannot be read ({error.strerror}): "
                f"set {_FAMILY}token"
            ) from error

    def tls(self) -> ssl.SSLContext:
        """What servers are checked against. Raises :class:`ConfigError`."""
        file = self.ca_file or (str(self.account / "ca.crt") if (self.account / "ca.crt").is_file() else "")
        try:
            # The system's own certificates stay: a router may be behind a public name.
            context = ssl.create_default_context()
            if file:
                context.load_verify_locations(file)
        except OSError as error:
            raise ConfigError(
                f"option {_FAMILY}ca-file: the file {file} does not contain usable certificates: {error}"
            ) from error
        return context


def _own_api(environ: Mapping[str, str]) -> str:
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError(
            f"option {_FAMILY}api is not set and this worker does not run in a pod (KUBERNETES_SERVICE_HOST is empty): "
            "write the address of the Kubernetes API, such as https://10.0.0.1:6443"
        )
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _address(values: Mapping[str, str], name: str, example: str) -> str:
    text = values.get(name, "")
    parts = check_endpoint(text, f"option {_FAMILY}{name}", example, credentials=False)
    if parts.query or parts.fragment:
        raise ConfigError(
            f"option {_FAMILY}{name} cannot be used: it has a query or a fragment ({redact(text)}). "
            f"Leave it out, as in {example}."
        )
    if name == "api" and parts.scheme == "http" and not _is_loopback(str(parts.hostname)):
        raise ConfigError(
            f"option {_FAMILY}api: {redact(text)!r} would send the token without encryption: "
            f"write https://{parts.netloc}"
        )
    return text.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _name(values: Mapping[str, str], name: str, shape: re.Pattern[str], default: str | None = None) -> str:
    text = values.get(name, default)
    if text is None:
        raise ConfigError(f"option {_FAMILY}{name} is not set: write the name of a SandboxTemplate")
    if text and not shape.fullmatch(text):
        raise ConfigError(
            f"option {_FAMILY}{name}: {text!r} is not a valid Kubernetes name: use lowercase letters, digits and '-' "
            "between them"
        )
    return text


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise ConfigError(f"option {_FAMILY}port: {text!r} is not a valid port: write a number from 1 to 65535")
    return int(text)


def _seconds(values: Mapping[str, str], name: str, default: float) -> float:
    try:
        seconds = parse_duration(values.get(name, default))
    except ValueError as error:
        raise ConfigError(f"option {_FAMILY}{name}: {values[name]!r}: {error}") from error
    if seconds <= 0:
        raise ConfigError(f"option {_FAMILY}{name}: {values[name]!r} is not above 0: write a duration such as '2 min'")
    return seconds
