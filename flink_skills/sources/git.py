"""Git repositories behind URLs, read through dulwich without the program ``git``.

    git+https://host/team/skills.git@v1.2#subdirectory=ops

The files of one commit become the tar that ``flink-skills pack`` writes, so that the store unpacks them as any archive.
A branch or tag is resolved to a commit. The plan of a job pins the commit as ``commit=``.
"""

from __future__ import annotations

import base64
import json
import re
import tempfile
import time
from importlib.util import find_spec
from io import BytesIO
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import unquote

from flink_skills.endpoint import git_parts
from flink_skills.errors import ConfigError, SkillsError
from flink_skills.sources.entries import ArchiveRefusedError
from flink_skills.sources.remote_system import Connection
from flink_skills.sources.secrets import expand
from flink_skills.sources.skill_source import SourceContext
from flink_skills.sources.tar_archive import write_tar
from flink_skills.sources.transfer_failures import missing_package

_EXAMPLE = "git+https://host/repo.git@REF#subdirectory=PATH"
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PAGE = re.compile(
    r"(?:git\+)?(https?://)(?:[^/@]*@)?"
    r"(?:(?:www\.)?(github\.com/[^/?#]+/[^/?#]+)|([^/?#]+/[^?#]+?)/-)/(tree|blob)/([^/?#]+)/?([^?#]*)",
    re.IGNORECASE,
)
_SSH = re.compile(
    r"(?:(?:git\+)?ssh://(?:[^/@]*@)?([^/:@]+)(?::\d*)?/|[\w.-]+@([\w.-]+):(?!/))([^\s/].*)", re.IGNORECASE
)
_MAX_REFS = 16 << 20
_CHUNK = 1 << 16


def is_git(url: str) -> bool:
    """Return True if a URL is the address of a repository."""
    return url[:4].lower() == "git+"


def repository_form(url: str) -> str:
    """Return the address of the repository for a page of GitHub or GitLab. Return "" for other addresses.

    >>> repository_form("https://github.com/acme/skills/tree/main/ops")
    'git+https://github.com/acme/skills.git@main#subdirectory=ops'
    """
    found = _PAGE.match(url)
    if found is None:
        return ""
    path = found[6].rstrip("/") if found[4].lower() == "tree" else found[6].rpartition("/")[0]
    repository = (found[2] or found[3]).removesuffix(".git")
    return f"git+{found[1]}{repository}.git@{found[5]}" + (f"#subdirectory={path}" if path else "")


def https_form(url: str) -> str:
    """Return the address over HTTPS of a repository whose address is for SSH. Return "" for other addresses.

    >>> https_form("ssh://git@host:2222/team/skills.git@v1"), https_form("git@host:team/skills.git")
    ('git+https://host/team/skills.git@v1', 'git+https://host/team/skills.git')
    """
    found = _SSH.fullmatch(url)
    return f"git+https://{found[1] or found[2]}/{found[3]}" if found else ""


class GitAddress(NamedTuple):
    """The parts of an address. ``url`` has no user, and ``commit`` is the pin of ``ref``."""

    user: str
    url: str
    ref: str
    subdirectory: str
    commit: str

    @classmethod
    def parse(cls, location: str, shown: str) -> GitAddress:
        """Read an address, whose parts can have references. ``shown`` names it in messages.

        Raises :class:`ConfigError`.
        """
        scheme, parts = location.partition("://")[0].lower().removeprefix("git+"), git_parts(location)
        user, host, path, ref, fragment = parts or ("", "", "", "", "")
        words = [word.partition("=") for word in fragment.split("&") if word]
        values = {name: unquote(value).strip("/") for name, _, value in words}
        subdirectory, commit = values.pop("subdirectory", ""), values.pop("commit", "")
        is_wrong = bool(values) or len(words) > bool(subdirectory) + bool(commit)
        folders, page = subdirectory.split("/"), repository_form(location)
        is_unreadable = parts is None or not location.isprintable() or " " in location
        has_host = scheme == "file" and host not in ("", "localhost")
        for problem, reason in (
            (page, f"the URL is a page, not a repository; write {page}"),
            (scheme not in ("https", "http", "file"), f"git+{scheme[:20]} is not supported; write {_EXAMPLE}"),
            (is_unreadable, f"the address is invalid; write {_EXAMPLE}"),
            (has_host, "the address has a host; write git+file:///path/repo.git@REF"),
            (is_wrong, "the part after '#' is invalid; write #subdirectory=PATH&sha256=…"),
            (subdirectory and {"", ".", ".."} & set(folders), "the subdirectory is not a path; write it as ops/skills"),
            (commit and not _COMMIT.fullmatch(commit), "the commit is abbreviated or invalid; write all its digits"),
        ):
            if problem:
                raise ConfigError(f"skill source {shown}: {reason}")
        return cls(user, f"{scheme}://{host}{path}", ref, subdirectory, commit)


class GitRepository(Connection):
    """The files of a commit, as an archive.

    ``notes`` is JSON after a fetch: messages about files without content, and their fixes. It is None without them.

    Raises :class:`ConfigError` for an address that the options forbid, and if dulwich is missing.
    """

    name = "skills.tar"

    def __init__(self, address: GitAddress, shown: str, context: SourceContext) -> None:
        if find_spec("dulwich") is None:
            raise ConfigError(f"skill source {shown}: {missing_package('git+https')}")
        super().__init__(address.url, context, shown=shown)
        self._address = address
        self._client.keeps_home = True
        self.notes: str | None = None

    def version(self, deadline: float) -> str:
        """Return the commit to use: the pinned one, or on refresh that of the branch or tag.

        Raises :class:`SourceError` if the repository has none.
        """
        from flink_skills.sources.git_objects import suggestion

        address, refresh = self._address, self._context.refresh
        ref, transfer = address.ref, self._transfer()
        if _COMMIT.fullmatch(ref) or (address.commit and not refresh):
            return ref if _COMMIT.fullmatch(ref) else address.commit
        names = (f"refs/tags/{ref}", f"refs/heads/{ref}") if ref else ("HEAD",)
        names = (ref,) if ref.startswith("refs/") else names
        refs = self._refs(names, deadline)
        found = {name: refs.get(f"{name}^{{}}", refs[name]) for name in names if name in refs}
        if len(set(found.values())) == 1:
            return found.popitem()[1]
        if found:
            raise transfer.error(f"{ref!r} is a tag and a branch; write {' or '.join(found)} after '@'")
        if not ref:
            raise transfer.error("the repository has no HEAD; write a branch or tag after '@'")
        known = [name.split("/", 2)[2] for name in self._refs(("refs/heads/", "refs/tags/"), deadline)]
        hint = suggestion(ref, [name for name in known if not name.endswith("^{}")])
        fix = "write a name that git ls-remote prints, or all digits of a commit"
        raise transfer.error(f"the repository has no branch or tag {ref!r}{hint}; {fix}")

    def fetch(self, target: str, limit: int, deadline: float) -> str:
        """Write a tar of the files to ``target``, and return the commit.

        Args:
            target: The file to write. Temporary files are in its folder.
            limit: The maximum of bytes that the server sends.
            deadline: Monotonic seconds.

        Raises :class:`SourceError`.
        """
        commit = self.version(deadline)
        self._repeated(deadline, lambda: self._fetch_once(target, commit, limit, deadline), target)
        return commit

    def _fetch_once(self, target: str, commit: str, limit: int, deadline: float) -> None:
        from dulwich.object_store import ObjectStoreGraphWalker

        from flink_skills.sources.git_objects import PackObjects

        transfer, wants, work = self._transfer(target), [commit.encode()], target.rpartition("/")[0]

        def check_time() -> None:
            if time.monotonic() > deadline:
                raise transfer.timed_out()

        with tempfile.TemporaryFile(dir=work) as pack, tempfile.TemporaryFile(dir=work) as scratch:
            path, client = self._git(deadline, limit, work)
            try:
                walker = ObjectStoreGraphWalker([], lambda _: [])
                client.fetch_pack(path, lambda *_, **__: wants, walker, pack.write, depth=1, ref_prefix=[b"HEAD"])
                if pack.tell() > limit:
                    raise transfer.too_large(limit)
                pack.seek(0)
                algorithm = "sha1" if len(commit) == 40 else "sha256"
                objects = PackObjects(pack, scratch, algorithm, self._context.limits, check_time)
                objects.unpack()
                files, notes = objects.contents(objects.tree_of(commit), self._address.subdirectory)
                with open(target, "wb") as file:
                    write_tar(file, files, lambda member: objects.read(member.real))
            except ArchiveRefusedError as refused:
                raise transfer.error(f"{refused}; the repository is refused") from None
            except Exception as error:
                fix = "write a branch or tag that has it, and submit the job again"
                raise self._understood(error, f"the server does not send the commit {commit}; {fix}") from None
        self.notes = json.dumps(notes) if notes else None

    def _refs(self, prefixes: tuple[str, ...], deadline: float) -> dict[str, str]:
        """Return the commits of the refs with a prefix. ``^{}`` after a name is the commit of an annotated tag."""

        def read() -> dict[str, str]:
            path, client = self._git(deadline, _MAX_REFS)
            try:
                refs = client.get_refs(path, ref_prefix=[prefix.encode() for prefix in prefixes]).refs
                found = {name.decode(): sha.decode() for name, sha in refs.items() if sha}
            except Exception as error:
                raise self._understood(error, "the server's response is not valid; check the address") from None
            return {name: sha for name, sha in found.items() if name.startswith(prefixes) and _COMMIT.fullmatch(sha)}

        return self._repeated(deadline, read)

    def _understood(self, error: Exception, reason: str) -> Exception:
        """Return the error to raise for one of dulwich, which can quote the server."""
        from dulwich.errors import NotGitRepository

        if isinstance(error, (SkillsError, OSError)) or type(error).__module__.startswith("aiohttp"):
            return error  # which the caller translates
        is_other = isinstance(error, NotGitRepository)
        reason = "the source is not a git repository; check the address" if is_other else reason
        return self._transfer().error(f"{reason} ({type(error).__name__})")

    def _git(self, deadline: float, limit: int, work: str = "") -> tuple[str, Any]:
        """Return the path of the repository, and the client of dulwich for it."""
        from dulwich.client import AbstractHttpGitClient, LocalGitClient

        if self._http is None:
            return unquote(self.url.partition("://")[2]), LocalGitClient()
        finished, answered, system = self._finished, self._answered, self._open()[0]

        class Client(AbstractHttpGitClient):  # type: ignore[misc]
            """The protocol of dulwich over the connections of other sources."""

            def _http_request(self, url: str, headers: Any = None, data: Any = None, **_: Any) -> Any:
                file: Any = tempfile.TemporaryFile(dir=work) if work else BytesIO()  # noqa: SIM115 (dulwich closes it)
                found = finished(system, answered(url, headers, data, file, limit), deadline)
                file.seek(0)
                return found, file.read

        return "", Client(self.url, thin_packs=False)

    async def _answered(self, url: str, headers: Any, data: Any, file: Any, limit: int) -> Any:
        """Write a response to ``file``. Return its properties, as dulwich expects them."""
        transfer, session = self._transfer(), await self._open()[0].set_session()
        sent = {name: value for name, value in headers.items() if name != "Content-Length"}
        if self._address.user:
            user, _, password = map(unquote, self._address.user.partition(":"))
            login = f"{expand(user)}:{expand(password)}".encode()
            sent["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        method, follow = ("POST", False) if data else ("GET", True)
        async with session.request(method, url, headers=sent, data=data, allow_redirects=follow) as response:
            response.raise_for_status()
            kind = response.headers.get("Content-Type", "")
            if not kind.startswith("application/x-git-upload-pack-") or self._client.encoding not in ("", "identity"):
                raise transfer.error("the server does not speak Git's smart HTTP protocol; check the address")
            async for piece in response.content.iter_chunked(_CHUNK):
                if file.tell() + len(piece) > limit:
                    raise transfer.too_large(limit)
                file.write(piece)
            moved = str(response.url) if response.history else ""
            return SimpleNamespace(content_type=kind, redirect_location=moved, close=file.close)
