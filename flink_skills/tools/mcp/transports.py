"""Opens the streams to an MCP server. The protocol on them is the package ``mcp``'s."""

from __future__ import annotations

import json
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import parse_qs

from flink_skills.errors import ConfigError, ExecutionError, SkillsError
from flink_skills.skill.text import clean
from flink_skills.sources.secrets import Secret, expand, has_references, replacements
from flink_skills.tools.commands.hidden import HiddenValues
from flink_skills.tools.mcp.parameters import (
    ConnectionParams,
    LiteralText,
    McpClientCredentials,
    PluginProgram,
    SseConnectionParams,
    StdioConnectionParams,
    check_http_url,
)
from flink_skills.tools.mcp.programs import StderrLogger, program
from flink_skills.tools.mcp.server_messages import MAX_ANSWER, AddressCheck, checked_messages, limited_client

if TYPE_CHECKING:
    from flink_skills.tools.commands.runner import ShellRunner

_MAX_REASON = 300
_MAX_ERROR_LENGTH = 500
# Messages of the package for a status without a response. They have no class or code of their own.
_STATUS_TEXTS = ("Session terminated", "Server returned an error response")
#: Statuses below 500 of a server that is overloaded or not ready.
RETRIED_STATUSES = (408, 425, 429)


class McpSignInError(ExecutionError):
    """The worker gets no token for an MCP server. ``retryable``: it may get one later."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


def need_mcp() -> None:
    """Raises :class:`ConfigError` where the package ``mcp`` is not installed."""
    try:
        import mcp  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"MCP servers need the extra mcp: pip install 'flink-skills[mcp]' ({error})") from error


class TransportReports(NamedTuple):
    """What a transport observes.

    Attributes:
        hidden: Receives the values of references.
        stderr: Receives the stderr of a program.
        on_end: Receives the reason why there will be no more, from transports that have one.
        on_status: Receives the number and the text of each HTTP status of the server.
        on_omitted: Receives the name of a tool that is none, and the reason.
        check: Receives addresses before they are connected to. None: all are allowed.
    """

    hidden: HiddenValues
    stderr: StderrLogger
    on_end: Callable[[str], None]
    on_status: Callable[[int, str], None]
    on_omitted: Callable[[str, str], None]
    check: AddressCheck | None = None


@asynccontextmanager
async def transport(
    params: ConnectionParams,
    name: str,
    shell: ShellRunner | None,
    reports: TransportReports,
) -> AsyncIterator[Any]:
    """The read and the write stream of a connection.

    Args:
        params: How to reach the server.
        name: The server's name in messages.
        shell: Runs programs in the sandbox.
        reports: Receives what else the transport observes.

    Raises :class:`ConfigError` for a reference that cannot be read, and what the transports raise.
    """
    opened = _opened(params, name, shell, reports)
    async with checked_messages(opened, reports.on_end, reports.on_omitted) as streams:
        yield streams


def _opened(
    params: ConnectionParams,
    name: str,
    shell: ShellRunner | None,
    reports: TransportReports,
) -> AbstractAsyncContextManager[Any]:
    hidden, stderr, on_end, on_status, *_ = reports
    if isinstance(params, StdioConnectionParams):
        server = params.server_params
        env = {key: _expanded(value, hidden) for key, value in server.env.items()}
        command = [_expanded(word, hidden) for word in (server.command, *server.args)]
        cwd = _expanded(server.cwd, hidden) or None
        if not params.sandbox:
            return program(command, env, cwd, name=name, shell=None, stderr=stderr, on_end=on_end)
        if shell is None:
            raise ConfigError(
                f"the MCP server {name!r} runs in the sandbox, and this job runs no commands: set "
                "skills.shell.enabled to true, or give StdioConnectionParams(sandbox=False)"
            )
        for key, value in env.items():
            if value != server.env[key]:
                shell.hidden.add(f"mcp.{name}.{key}", value)
        plugin = server if isinstance(server, PluginProgram) else None
        return program(command, env, cwd, name=name, shell=shell, stderr=stderr, on_end=on_end, plugin=plugin)
    url = _expanded(params.url, hidden)
    check_http_url(url, f"url of the MCP server {name}")
    headers = {key: _expanded(value, hidden) for key, value in params.headers.items()}
    if params.auth is not None:
        auth = _sign_in(params.auth, url, params.timeout, reports)
    else:
        auth = _renewed_headers(params.headers, hidden)
    client = partial(limited_client, url=url, on_status=on_status, check=reports.check)
    if isinstance(params, SseConnectionParams):
        from mcp.client.sse import sse_client

        return sse_client(url, headers, params.timeout, params.sse_read_timeout, client, auth)
    return _streamable(url, headers, params, client, auth)


class _Tokens:
    """The tokens of a connection. They are stored nowhere else, and hidden in messages."""

    def __init__(self, hidden: HiddenValues) -> None:
        self._hidden = hidden
        self._tokens: Any = None

    async def get_tokens(self) -> Any:
        return self._tokens

    async def set_tokens(self, tokens: Any) -> None:
        for name in ("access_token", "refresh_token"):
            if getattr(tokens, name, None):
                self._hidden.add(f"OAuth {name}", getattr(tokens, name))
        self._tokens = tokens

    async def get_client_info(self) -> None:
        return None

    async def set_client_info(self, client_info: Any) -> None:
        """Do nothing: the client is configured."""


def _provider(auth: McpClientCredentials, url: str, hidden: HiddenValues) -> Any:
    """Return the package's provider of tokens. Raises :class:`ConfigError` for a reference that cannot be read."""
    from mcp.client.auth.extensions.client_credentials import (
        ClientCredentialsOAuthProvider,
        PrivateKeyJWTOAuthProvider,
        SignedJWTParameters,
    )

    client_id, scope = _expanded(auth.client_id, hidden), " ".join(auth.scopes) or None
    arguments: dict[str, Any] = {"server_url": url, "storage": _Tokens(hidden), "client_id": client_id, "scope": scope}
    provider: Any
    with warnings.catch_warnings():
        # Without an issuer, the server of the tools names the one that receives the credentials, as docs/mcp.md says.
        warnings.simplefilter("ignore")
        if auth.client_secret:
            provider = ClientCredentialsOAuthProvider(
                **arguments,
                client_secret=_expanded(auth.client_secret, hidden),
                token_endpoint_auth_method=cast(Any, auth.token_endpoint_auth_method),
                issuer=auth.issuer or None,
            )
        else:
            signed = SignedJWTParameters(
                issuer=client_id,
                subject=client_id,
                signing_key=_expanded(auth.private_key, hidden),
                signing_algorithm=auth.signing_algorithm,
            )
            provider = PrivateKeyJWTOAuthProvider(
                **arguments, assertion_provider=signed.create_assertion_provider(), issuer=auth.issuer or None
            )
    perform = provider._perform_authorization

    async def perform_with_scopes() -> Any:
        # The package requests the scopes that the server names instead.
        if scope is not None:
            provider.context.client_metadata.scope = scope
        return await perform()

    provider._perform_authorization = perform_with_scopes
    return provider


def _sign_in(auth: McpClientCredentials, url: str, timeout: float, reports: TransportReports) -> Any:
    """Return what adds tokens to requests: the package's provider, which holds its lock while a token is requested and
    not during the calls, and whose failures end the connection with their reason."""
    import httpx2

    provider, hidden = _provider(auth, url, reports.hidden), reports.hidden
    wrong = f"Check {'client_secret' if auth.client_secret else 'private_key'}, client_id, issuer and scopes in auth"

    def failed(reason: str, *, retryable: bool) -> McpSignInError:
        fix = "Check the authorization server" if retryable else wrong
        # The package would log this failure with the whole response.
        error = McpSignInError(f"sign-in failed: {hidden.in_text(reason).rstrip('.')}. {fix}", retryable=retryable)
        reports.on_end(str(error))
        return error

    async def answer_of(request: httpx2.Request) -> httpx2.Response:
        is_token = request.method == "POST"
        if is_token:
            # Servers repeat what they receive in their errors.
            hidden.add("OAuth client", request.headers.get("authorization", "").removeprefix("Basic "))
            for value in parse_qs((await request.aread()).decode("utf-8", "replace")).get("client_assertion", ()):
                hidden.add("OAuth assertion", value)
        try:
            async with limited_client(timeout=httpx2.Timeout(timeout), check=reports.check) as client:
                response: httpx2.Response = await client.send(request)
        except httpx2.HTTPError as error:
            raise failed(f"{request.url} cannot be reached ({type(error).__name__}: {error})", retryable=True) from None
        if is_token and not response.has_redirect_location and (problem := _token_problem(response)):
            status = response.status_code
            raise failed(
                f"{request.url} gave no token: {problem}", retryable=status >= 500 or status in RETRIED_STATUSES
            )
        return response

    class SignIn(httpx2.Auth):
        async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            context = provider.context
            refused = context.current_tokens
            if context.is_token_valid():
                provider._add_auth_header(request)
            response = yield request
            if response.status_code not in (401, 403):
                return
            async with aclosing(provider.async_auth_flow(request)) as flow:
                try:
                    following = await flow.__anext__()
                    # Until a token replaces the refused one. A concurrent request may have requested it.
                    while following is not request or context.current_tokens is refused:
                        reply = response if following is request else await answer_of(following)
                        following = await flow.asend(reply)
                except StopAsyncIteration:
                    return
                except McpSignInError:
                    raise
                except Exception as error:
                    words = " ".join(str(error).split())[:_MAX_REASON]
                    raise failed(f"{type(error).__name__}: {words}", retryable=False) from None
            provider._add_auth_header(request)
            yield request

    return SignIn()


def _token_problem(response: Any) -> str:
    """Return why a response has no token. Return an empty string if it has one.

    What the server writes beyond the fields of OAuth is not shown: it may contain a token.
    """
    from mcp.shared.auth import OAuthToken
    from pydantic import ValidationError

    status = f"HTTP {response.status_code} {response.reason_phrase}"
    try:
        if response.status_code in (200, 201):
            OAuthToken.model_validate_json(response.content)
            return ""
        fields = json.loads(response.content)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[0]
        return f"{status}: {'.'.join(map(str, found['loc']))}: {found['msg']}"
    except (ValueError, RecursionError):
        fields = None
    words = [fields.get(name) for name in ("error", "error_description")] if isinstance(fields, dict) else []
    text = ": ".join(" ".join(word.split()) for word in words if isinstance(word, str) and word)
    return f"{status} {clean(text)[:_MAX_REASON]}".rstrip()


def _renewed_headers(headers: Mapping[str, str], hidden: HiddenValues) -> Any:
    """Return what adds the headers with references to each request, with the present values of files.

    A request that the server rejects with 401 is repeated one time if a file has another value. Return None if no
    header has a reference.
    """
    secrets = {
        name: Secret(text)
        for name, text in headers.items()
        if has_references(text) and not isinstance(text, LiteralText)
    }
    if not secrets:
        return None
    import httpx2

    class RenewedHeaders(httpx2.Auth):
        async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            sent = {name: secret.value for name, secret in secrets.items()}
            response = yield with_headers(request, sent)
            if response.status_code == 401:
                renewed = {name: secret.reread() for name, secret in secrets.items()}
                if renewed != sent:
                    yield with_headers(request, renewed)

    def with_headers(request: httpx2.Request, values: Mapping[str, str]) -> httpx2.Request:
        for name, value in values.items():
            if request.headers.get(name) != value:
                _hide(headers[name], hidden)
                request.headers[name] = value
        return request

    return RenewedHeaders()


@asynccontextmanager
async def _streamable(
    url: str, headers: Mapping[str, str], params: Any, client_of: Callable[..., Any], auth: Any
) -> AsyncIterator[Any]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx2.Timeout(params.timeout, read=params.sse_read_timeout)
    async with (
        client_of(headers, timeout, auth) as client,
        streamable_http_client(
            url,
            http_client=client,
            terminate_on_close=params.terminate_on_close,
            max_sse_event_size=MAX_ANSWER,
        ) as streams,
    ):
        yield streams


def _expanded(text: str, hidden: HiddenValues) -> str:
    """``text`` with the values of its references, which are hidden from now on."""
    if isinstance(text, LiteralText):
        return text
    _hide(text, hidden)
    return expand(text)


def _hide(text: str, hidden: HiddenValues) -> None:
    for value, reference in replacements(text):
        hidden.add(reference, value)


def reports_changes(client: Any, watched: str) -> bool:
    """Return True if the server reports changes of a list."""
    return bool(getattr(getattr(client.server_capabilities, f"{watched}s", None), "list_changed", False))


def is_closed(error: Any) -> bool:
    """Return True if an ``MCPError`` reports the end of the connection."""
    from mcp.types import CONNECTION_CLOSED

    return bool(error.code == CONNECTION_CLOSED and error.message == "Connection closed")


def is_broken(error: Any) -> bool:
    """Return True if an ``MCPError`` reports that a request got no response."""
    from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT

    return error.code in (CONNECTION_CLOSED, REQUEST_TIMEOUT) or error.message in _STATUS_TEXTS


def is_end(error: BaseException) -> bool:
    """Return True if an error only states that the other end has gone."""
    first = first_of(error)
    return is_lost(first) or (hasattr(first, "code") and hasattr(first, "message") and is_closed(first))


def is_lost(error: BaseException) -> bool:
    """Return True for an error of streams and sockets."""
    import anyio
    import httpx2

    broken = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, httpx2.TransportError)
    return isinstance(first_of(error), (OSError, EOFError, *broken))


def first_of(error: BaseException) -> BaseException:
    """Return the first error of nested groups."""
    while getattr(error, "exceptions", ()):
        error = error.exceptions[0]  # type: ignore[attr-defined]
    return error


def describe_error(error: BaseException) -> str:
    """Return the first error as one short line. A server can have written it."""
    first = first_of(error)
    text = " ".join(str(first).split())
    if isinstance(first, SkillsError):
        return text
    shown = f"{type(first).__name__}: {text}" if text else type(first).__name__
    return shown if len(shown) <= _MAX_ERROR_LENGTH else shown[:_MAX_ERROR_LENGTH] + "…"
