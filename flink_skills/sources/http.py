"""An aiohttp client that checks where each connection leads, also after redirects and name look-ups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from flink_skills.errors import ConfigError, SourceError
from flink_skills.sources.address import AddressPolicy

if TYPE_CHECKING:
    import aiohttp

__all__ = ["GuardedClient"]

_VERSION_HEADERS = ("ETag", "Last-Modified", "Content-Length")


class GuardedClient:
    """The ``get_client`` function for fsspec's http file system.

    A name is judged by the addresses that the connection then uses, so that it cannot mean one thing when it
    is checked and another when it is connected to. ``shown`` is the source in messages.

    ``version`` holds what the last answer said about the version of the file. With ``head_only``, no request
    but HEAD is sent (fsspec falls back to GET, which is a download for the server).
    """

    def __init__(self, policy: AddressPolicy, shown: str) -> None:
        self._policy = policy
        self._shown = shown
        self.version: dict[str, str] = {}
        self.head_only = False

    async def __call__(self, *, loop: Any = None, **options: Any) -> aiohttp.ClientSession:
        import aiohttp
        from aiohttp.abc import AbstractResolver
        from aiohttp.resolver import ThreadedResolver

        policy, shown = self._policy, self._shown

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

        traces = aiohttp.TraceConfig()
        traces.on_request_start.append(self._on_start)
        traces.on_request_redirect.append(self._on_redirect)
        traces.on_request_end.append(self._on_end)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(resolver=Resolver()),
            trace_configs=[traces, *options.pop("trace_configs", [])],
            **options,
        )

    async def _on_start(self, _session: Any, _context: Any, parameters: Any) -> None:
        if self.head_only and parameters.method != "HEAD":
            raise SourceError(f"skill source {self._shown}: does not answer HEAD", source=self._shown)

    async def _on_redirect(self, _session: Any, _context: Any, parameters: Any) -> None:
        headers = parameters.response.headers
        target = headers.get("Location") or headers.get("URI") or ""
        try:
            self._policy.check_url(urljoin(str(parameters.response.url), target))
        except ConfigError as error:
            message = f"skill source {self._shown}: redirects to an address that is not allowed: {error}"
            raise SourceError(message, source=self._shown) from None

    async def _on_end(self, _session: Any, _context: Any, parameters: Any) -> None:
        headers = parameters.response.headers
        self.version = {name: headers[name] for name in _VERSION_HEADERS if name in headers}
