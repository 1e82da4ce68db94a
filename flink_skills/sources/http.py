"""An aiohttp client that checks where each connection leads, also after redirects and name look-ups."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from flink_skills.endpoint import redact_text
from flink_skills.errors import ConfigError, SourceError
from flink_skills.sources.address import AddressPolicy, host_of

if TYPE_CHECKING:
    import aiohttp

__all__ = ["GuardedClient"]

_VERSION_HEADERS = ("ETag", "Last-Modified", "Content-Length")
# What a request to another host, or to the same one without encryption, may still carry: whatever else the options
# set was meant for the first one.
_HARMLESS = frozenset({"accept", "accept-encoding", "range", "user-agent", "if-none-match", "if-modified-since"})


class GuardedClient:
    """The ``get_client`` function for fsspec's http file system.

    A name is judged by the addresses that the connection then uses, so that it cannot mean one thing when it
    is checked and another when it is connected to. ``shown`` is the source in messages.

    ``version`` holds what the last answer said about the version of the file, ``encoding`` how it came. With
    ``head_only``, no request but HEAD is sent (fsspec falls back to GET, which is a download for the server).
    """

    def __init__(self, policy: AddressPolicy, shown: str) -> None:
        self._policy = policy
        self._shown = shown
        self._home, self._encrypted = "", True
        self.version: dict[str, str] = {}
        self.encoding = ""
        self.head_only = False
        # Here and not with the first client: fsspec logs the URL before it asks for one.
        logging.getLogger("fsspec.http").addFilter(_WITHOUT_SECRETS)

    async def __call__(self, *, loop: Any = None, **options: Any) -> aiohttp.ClientSession:
        import aiohttp
        from aiohttp.abc import AbstractResolver
        from aiohttp.resolver import ThreadedResolver

        policy, shown, step = self._policy, self._shown, self._step

        class Resolver(AbstractResolver):  # type: ignore[misc]
            """Names to addresses that the policy lets pass."""

            def __init__(self) -> None:
                self._names = ThreadedResolver()

            async def resolve(self, host: str, *arguments: Any, **named: Any) -> Any:
                found = await self._names.resolve(host, *arguments, **named)
                policy.check_addresses([address["host"] for address in found], shown)
                return found

            async def close(self) -> None:
                await self._names.close()

        class Request(aiohttp.ClientRequest):  # type: ignore[misc]
            """One hop: made with the very URL that is then connected to."""

            def __init__(self, method: str, url: Any, **named: Any) -> None:
                super().__init__(method, url, **step(url, named))

        traces = aiohttp.TraceConfig()
        traces.on_request_start.append(self._on_start)
        traces.on_request_redirect.append(self._on_redirect)
        traces.on_request_end.append(self._on_end)
        options.update(
            connector=aiohttp.TCPConnector(resolver=Resolver()),
            request_class=Request,
            trace_configs=[traces, *options.pop("trace_configs", [])],
            # The bytes of the file are wanted, and some servers take a tar.gz for a tar in transit.
            auto_decompress=False,
        )
        options["headers"] = {"Accept-Encoding": "identity", **(options.get("headers") or {})}
        return aiohttp.ClientSession(**options)

    def _step(self, url: Any, request: dict[str, Any]) -> dict[str, Any]:
        """Check one hop and take from its request what is not for the host that it goes to."""
        at_home = False
        try:
            at_home = host_of(str(url)) == self._home
            self._policy.check_step(self._home, str(url))
        except ConfigError as error:
            reason = str(error) if at_home else self._refused(error)
            raise SourceError(reason, source=self._shown) from None
        if at_home and (url.scheme == "https" or not self._encrypted):
            return request
        headers = request.get("headers") or {}
        kept = {name: value for name, value in headers.items() if name.lower() in _HARMLESS}
        return {**request, "headers": kept, "auth": None, "cookies": None}

    async def _on_start(self, _session: Any, _context: Any, parameters: Any) -> None:
        try:
            self._home, self._encrypted = host_of(str(parameters.url)), parameters.url.scheme == "https"
        except ConfigError as error:
            raise SourceError(str(error), source=self._shown) from None
        if self.head_only and parameters.method != "HEAD":
            raise SourceError(f"skill source {self._shown}: does not answer HEAD", source=self._shown)

    async def _on_redirect(self, _session: Any, _context: Any, parameters: Any) -> None:
        from yarl import URL

        headers = parameters.response.headers
        target = headers.get("Location") or headers.get("URI") or ""
        try:
            url = str(parameters.response.url.join(URL(target)))
            if not url.startswith(("http://", "https://")):
                raise ConfigError("the redirect is not an http(s) URL")
            self._policy.check_step(self._home, url)
        except (ConfigError, ValueError) as error:
            reason = error if isinstance(error, ConfigError) else "the URL cannot be parsed"
            raise SourceError(self._refused(reason), source=self._shown) from None

    def _refused(self, reason: ConfigError | str) -> str:
        text = str(reason).removeprefix("skill source ")
        return f"skill source {self._shown}: redirects to an address that is not allowed: {text}"

    async def _on_end(self, _session: Any, _context: Any, parameters: Any) -> None:
        headers, status = parameters.response.headers, parameters.response.status
        if 200 < status < 400 and not self.head_only:  # a redirect to nowhere, a part, nothing at all
            raise SourceError(
                f"skill source {self._shown}: the server returned {status} instead of the file; check the address",
                source=self._shown,
            )
        self.encoding = headers.get("Content-Encoding", "")
        self.version = {name: headers[name] for name in _VERSION_HEADERS if name in headers}


class _WithoutSecrets(logging.Filter):
    """fsspec writes whole URLs, and errors that quote them, into its debug log."""

    def filter(self, record: logging.LogRecord) -> bool:
        problem = record.exc_info[0] if record.exc_info else None
        record.msg = redact_text(record.getMessage()) + (f" ({problem.__name__})" if problem else "")
        record.args, record.exc_info, record.exc_text = (), None, None
        return True


_WITHOUT_SECRETS = _WithoutSecrets()
