"""Client of OCI registries: distribution specification 1.1, with its tokens.

Each request obeys the rules of web servers. Credentials are for one host. A token server of another host receives them
only if the options allow that host.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

from flink_skills.errors import ConfigError, SourceError
from flink_skills.options import SkillOptions
from flink_skills.sources.address import AddressPolicy, host_of
from flink_skills.sources.remote_system import GuardedClient, RemoteSystem
from flink_skills.sources.skill_source import SourceContext
from flink_skills.sources.transfer_failures import missing_package

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = (MANIFEST, "application/vnd.docker.distribution.manifest.v2+json")
_ACCEPT = {"Accept": ", ".join((*INDEXES, *MANIFESTS))}
_MAX_DOCUMENT = 4 << 20  # the size that registries must support
_CHUNK = 1 << 16
_HUB = ("docker.io", "index.docker.io")
_HUB_HOST, _HUB_TOKENS = "registry-1.docker.io", "auth.docker.io"
_FIELD = re.compile(r'([A-Za-z_]{1,40})="([^"\\]{0,2000})"')
_OPTION = SkillOptions.SOURCE_OPTIONS.key


class Repository(NamedTuple):
    """A repository: its registry (a host, or host:port) and its name there."""

    host: str
    name: str

    @property
    def served(self) -> Repository:
        """The repository as it is requested. Docker Hub has another host, and a namespace for names without one."""
        is_hub = self.host in _HUB
        return Repository(_HUB_HOST, self.name if "/" in self.name else f"library/{self.name}") if is_hub else self


class Document(NamedTuple):
    """A manifest or an index."""

    digest: str
    data: bytes
    media_type: str


class _Login(NamedTuple):
    """A value for the header ``Authorization``, or a token of an identity. ``problem`` is the reason for neither."""

    basic: str = ""
    identity: str = ""
    problem: str = ""


class Registry(RemoteSystem):
    """Requests to registries for one source.

    ``user`` are the user and the password in the address of ``repository``. ``actions`` are ``pull`` or ``pull,push``.

    Raises :class:`ConfigError` for a registry that the options forbid.
    """

    def __init__(self, repository: Repository, user: str, shown: str, context: SourceContext, actions: str = "pull"):
        super().__init__(f"https://{repository.host}", shown, "oci", context)
        self._repository, self._user, self._actions = repository, user, actions
        self._policy = AddressPolicy(context.config)
        try:
            self._policy.check_url(f"https://{repository.served.host}/")
        except ConfigError as error:
            raise ConfigError(f"skill source {shown}: {str(error).partition(': ')[2]}") from None
        self._options(expanded=False)
        if find_spec("aiohttp") is None:
            raise ConfigError(f"skill source {shown}: {missing_package('oci')}")
        self._bases: dict[str, str] = {}
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._authorizations: dict[Repository, str] = {}

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], deadline: float, target: str = "") -> T:
        """Return what ``work`` returns. A transient failure is tried again until the deadline.

        ``target`` is the folder that it writes to. Raises :class:`SourceError`.
        """

        async def limited() -> T:
            self._turn = asyncio.Lock()
            try:
                return await asyncio.wait_for(work(), max(0.0, deadline - time.monotonic()))
            finally:
                for session in self._sessions.values():
                    await session.close()
                self._sessions.clear()

        return self._repeated(deadline, lambda: asyncio.run(limited()), target)

    def error(self, reason: str, *, retryable: bool = False) -> SourceError:
        """Return an error that names the source."""
        return self._transfer().error(reason, retryable=retryable)

    def translated(self, error: Exception) -> SourceError:
        """Return the error of the source for one of a library."""
        return self._transfer().translated(error)

    async def resolve(self, repository: Repository, tag: str) -> str:
        """Return the digest that a tag has now."""
        async with self._request("HEAD", repository, f"manifests/{tag}", headers=_ACCEPT) as response:
            digest = response.headers.get("Docker-Content-Digest", "")
        is_valid = re.fullmatch("sha256:[0-9a-f]{64}", digest)
        return str(digest) if is_valid else (await self.document(repository, tag)).digest

    async def document(self, repository: Repository, reference: str, size: int | None = None) -> Document:
        """Return the manifest or index with a tag or digest. The content must have the digest, and ``size`` bytes."""
        async with self._request("GET", repository, f"manifests/{reference}", headers=_ACCEPT) as response:
            data = await self._read(response)
            media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        algorithm = reference.partition(":")[0] if ":" in reference else "sha256"
        digest = f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"
        declared = reference if ":" in reference else response.headers.get("Docker-Content-Digest") or digest
        if digest != declared or size not in (None, len(data)):
            found = f"a manifest with {len(data)} bytes and the digest {digest}"
            raise self.error(f"the registry returned {found} instead of {declared[:140]}; check the registry")
        return Document(digest, data, media_type)

    async def blob(self, repository: Repository, digest: str, size: int, target: str) -> None:
        """Write a blob to ``target``, unless an attempt before did. It must have the digest and the size."""
        if os.path.exists(target):  # noqa: ASYNC240 - on a local disk
            return
        algorithm, count = digest.partition(":")[0], 0
        hashed = hashlib.new(algorithm)
        async with self._request("GET", repository, f"blobs/{digest}") as response:
            with open(f"{target}.part", "wb") as file:  # noqa: ASYNC230 - as above
                async for data in response.content.iter_chunked(_CHUNK):
                    count += len(data)
                    if count > size:
                        break
                    hashed.update(data)
                    file.write(data)
        if count != size:
            what = f"{'more than ' * (count > size)}{min(count, size)} bytes"
            raise self.error(f"{what} came of the {size} of the blob {digest}; try again", retryable=count < size)
        if hashed.hexdigest() != digest.partition(":")[2]:
            found = f"{algorithm}:{hashed.hexdigest()}"
            raise self.error(f"the registry returned the blob {found} instead of {digest}; check the registry")
        os.replace(f"{target}.part", target)

    async def upload(self, repository: Repository, data: bytes) -> None:
        """Write a blob to the registry, unless it has it."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        async with self._request("HEAD", repository, f"blobs/{digest}", accepts=(200, 404)) as response:
            if response.status == 200:
                return
        async with self._request("POST", repository, "blobs/uploads/", accepts=(202,)) as response:
            url = urljoin(str(response.url), response.headers.get("Location", ""))
        self._check_step(repository, url, "the address for uploads")
        url += f"{'&' if '?' in url else '?'}digest={digest}"
        headers = {"Content-Type": "application/octet-stream"}
        async with self._request("PUT", repository, url, accepts=(201,), headers=headers, data=data):
            pass

    async def publish(self, repository: Repository, reference: str, data: bytes) -> None:
        """Write a manifest to the registry, under a tag or its digest."""
        headers, path = {"Content-Type": MANIFEST}, f"manifests/{reference}"
        async with self._request("PUT", repository, path, accepts=(201,), headers=headers, data=data):
            pass

    @asynccontextmanager
    async def _request(
        self, method: str, repository: Repository, path: str, accepts: tuple[int, ...] = (200,), **options: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, with a token if the registry asks for one. ``path`` can be a whole URL."""
        place = repository.served
        base = await self._base(place.host)
        url = path if "://" in path else f"{base}/v2/{place.name}/{path}"
        follow, headers = method in ("GET", "HEAD"), options.pop("headers", {})
        for is_last in (False, True):
            own = self._authorizations.get(place, "")
            authorization = {"Authorization": own} if own and _origin(url) == base else {}
            session = await self._session(url)
            async with session.request(
                method, url, headers={**headers, **authorization}, allow_redirects=follow, **options
            ) as response:
                if response.status in (401, 403) and _origin(str(response.url)) == base:
                    if is_last:
                        raise self._refused(place, response.status)
                    async with self._turn:
                        if self._authorizations.get(place, "") == own:
                            self._authorizations[place] = await self._authorized(place, base, response)
                    continue
                if response.status not in accepts:
                    response.raise_for_status()
                    raise self.error(f"the registry returned {response.status} for {method}; check the address")
                yield response
                return

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        data = bytearray()
        async for piece in response.content.iter_chunked(_CHUNK):
            data += piece
            if len(data) > _MAX_DOCUMENT:
                raise self.error(f"the registry returned a manifest or token of more than {_MAX_DOCUMENT} bytes")
        return bytes(data)

    async def _session(self, url: str) -> aiohttp.ClientSession:
        """Return the session for the server of a URL. One for each, because it forwards credentials to its own only."""
        import aiohttp

        origin = _origin(url)
        if origin not in self._sessions:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._stall(), sock_read=self._stall())
            client = _Client(self._policy, self.shown)
            self._sessions[origin] = await client(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        return self._sessions[origin]

    async def _base(self, host: str) -> str:
        """Return the address of a registry: https, or http if it is allowed and the host does not speak TLS."""
        import aiohttp

        if host not in self._bases:
            self._check_step(self._repository, f"https://{host}/", "the registry")
            name, scheme = host_of(f"https://{host}/"), "https"
            try:
                if self._policy.allow_http and re.match(r"localhost\Z|127\.|::1\Z", name):
                    scheme = "http"
                elif self._policy.allow_http:
                    async with (await self._session(f"https://{host}")).get(f"https://{host}/v2/"):
                        pass
            except aiohttp.ClientConnectorCertificateError:
                raise
            except aiohttp.ClientConnectorError:
                scheme = "http"
            self._bases[host] = f"{scheme}://{host}"
        return self._bases[host]

    def _check_step(self, repository: Repository, url: str, what: str) -> None:
        """Raise :class:`SourceError` if the options forbid to follow the registry to another host."""
        home = host_of(f"https://{repository.served.host}/")
        try:
            self._policy.check_step(_HUB_TOKENS if (home, host_of(url)) == (_HUB_HOST, _HUB_TOKENS) else home, url)
        except ConfigError as error:
            raise self.error(f"{what} is not allowed: {str(error).removeprefix('skill source ')}") from None

    async def _authorized(self, place: Repository, base: str, response: aiohttp.ClientResponse) -> str:
        """Return the header that a registry asks for."""
        challenge = ", ".join(response.headers.getall("WWW-Authenticate", []))
        login = self._login(place)
        bearer = re.search(r"\bBearer\s+(.*)", challenge, re.IGNORECASE)
        if bearer is None:
            if not login.basic or not re.search(r"\bBasic\b", challenge, re.IGNORECASE):
                raise self._refused(place, response.status)
            return login.basic
        fields = dict(_FIELD.findall(bearer[1]))
        realm = fields.get("realm", "")
        if not realm.startswith(("https://", f"{urlsplit(base).scheme}://")):
            raise self.error("the address of the registry's token server is not https; check the registry")
        self._check_step(place, realm, "the registry's token server")
        # The scope is the source's own: a registry must not obtain tokens for others.
        asked = {"service": fields.get("service", ""), "scope": f"repository:{place.name}:{self._actions}"}
        session = await self._session(realm)
        if login.identity:
            form = {
                **asked,
                "grant_type": "refresh_token",
                "refresh_token": login.identity,
                "client_id": "flink-skills",
            }
            request = session.post(realm, data=form, allow_redirects=False)
        else:
            headers = {"Authorization": login.basic} if login.basic else {}
            url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(asked)}"
            request = session.get(url, headers=headers, allow_redirects=False)
        async with request as answer:
            if answer.status in (400, 401, 403):
                raise self._refused(place, answer.status)
            answer.raise_for_status()
            data = await self._read(answer)
        try:
            found = json.loads(data)
            token = str(found.get("token") or found.get("access_token") or "")
        except (ValueError, AttributeError, RecursionError):
            token = ""
        if not token or not token.isascii() or not token.isprintable():
            raise self.error("the registry's token server returned no token; check the registry")
        return f"Bearer {token}"

    def _refused(self, place: Repository, status: int) -> SourceError:
        login = self._login(place)
        text = "access is refused" if any(login) else "access without credentials is refused"
        fix = f"set 'key' and 'secret' of {self._repository.host} under 'oci' in {_OPTION}, or use a login file"
        return self.error(f"{text} ({status}); {login.problem or fix}")

    def _options(self, *, expanded: bool = True) -> dict[str, Any]:
        """Return the options for registries: ``login-file``, and ``key`` and ``secret`` by host."""
        options = self._context.file_system_options("oci", expanded=expanded)
        for name, value in options.items():
            if not ((name == "login-file" and isinstance(value, str)) or _is_login(value)):
                example = '{"oci": {"registry.example.org": {"key": "me", "secret": "${env:TOKEN}"}}}'
                raise ConfigError(
                    f"option {_OPTION}, for oci: {name[:80]!r} needs a host and its login; write {example}"
                )
        return options

    def _login(self, place: Repository) -> _Login:
        """Return the credentials for a host: of the address, of the options, or of a login file."""
        own, options = self._repository, self._options()
        if self._user and place.host == own.served.host:
            return _basic(*self._user.partition(":")[::2])
        host = own.host if place.host == own.served.host else place.host
        if host in options:
            return _Login() if options[host].get("anonymous") else _basic(options[host]["key"], options[host]["secret"])
        folder = os.environ.get("DOCKER_CONFIG") or os.path.join(os.path.expanduser("~"), ".docker")
        path = options.get("login-file") or os.environ.get("REGISTRY_AUTH_FILE") or os.path.join(folder, "config.json")
        if not os.path.isfile(path):
            return _Login(problem=f"the login file {path} is missing; write it" if "login-file" in options else "")
        return _login_in(path, host, place.name)


class _Client(GuardedClient):
    """Client whose caller checks the status."""

    async def _on_end(self, _session: Any, _context: Any, parameters: Any) -> None:
        """Accept each status."""


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _is_login(value: Any) -> bool:
    is_dict = isinstance(value, dict) and all(value.values())
    return is_dict and (set(value) == {"anonymous"} or (set(value) == {"key", "secret"}))


def _basic(user: str, password: str) -> _Login:
    return _Login("Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())


def _login_in(path: str, host: str, name: str) -> _Login:
    """Return the credentials for a repository in a login file. No credential helper is started."""
    try:
        found = json.loads(Path(path).read_bytes()[:_MAX_DOCUMENT])
        helper = (found.get("credHelpers") or {}).get(host) or found.get("credsStore")
        # A key is a host or a URL such as https://index.docker.io/v1/, and can have the beginning of a name.
        logins = {re.sub(r"\A\w+://|/v[12]/?\Z", "", key): login for key, login in (found.get("auths") or {}).items()}
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        name = type(error).__name__
        return _Login(problem=f"the login file {path} is not a readable object with 'auths' ({type(error).__name__})")
    parts = name.split("/")
    places = ["/".join((host, *parts[:count])) for count in range(len(parts), -1, -1)]
    places += _HUB if host in _HUB else ()
    entry = next((logins[place] for place in places if isinstance(logins.get(place), dict) and logins[place]), None)
    if entry is None:
        reason = f"the login file {path} names the credential helper {str(helper)[:40]!r}, which is not started"
        return _Login(problem=f"{reason}; write the login to 'auths', or to 'oci' in {_OPTION}" if helper else "")
    if entry.get("identitytoken"):
        return _Login(identity=str(entry["identitytoken"]))
    auth = str(entry.get("auth") or "")
    if re.fullmatch(r"[A-Za-z0-9+/]+=*", auth):
        return _Login(f"Basic {auth}")
    return _basic(str(entry.get("username", "")), str(entry.get("password", "")))
