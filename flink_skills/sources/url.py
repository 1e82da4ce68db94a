"""Skills behind a URL: an archive, a folder, a single SKILL.md or an index of skills, through fsspec."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from dataclasses import replace
from urllib.parse import unquote

from flink_skills.endpoint import links_of, redact
from flink_skills.errors import ConfigError, SourceError
from flink_skills.options import SkillOptions
from flink_skills.skill import Diagnostic
from flink_skills.sources.address import AddressPolicy, protocol_of
from flink_skills.sources.archive import check_pin
from flink_skills.sources.downloads import remote_of
from flink_skills.sources.fetching import Fetch, is_answered, keep, noted
from flink_skills.sources.git import GitAddress, GitRepository, https_form, is_git, repository_form
from flink_skills.sources.path import check_pinned_folder, local_tree
from flink_skills.sources.secrets import has_references, unchained_errors
from flink_skills.sources.skill_source import SkillSource, SourceContext, SourceSpec, SourceTree
from flink_skills.sources.store import Store, StoredTree, remove_tree
from flink_skills.sources.upkeep import FetchRecord
from flink_skills.sources.wellknown import SkillIndex, index_address

_ONE_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/?(?!/)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_FILES_OF_GITHUB = ("archive", "releases", "raw", "zipball", "tarball")
_UNSUPPORTED = {
    "ftp": "FTP sends everything unencrypted; serve the file over https",
    "ftps": "serve the file over https",
    "git": "a repository is not an archive; write git+https://host/repo.git@REF",
}
_NO_SSH = (
    "SSH is not supported, because each TaskManager would need the program ssh, keys and known hosts, whose "
    "configuration can start programs and lead to any address"
)


class UrlSource(SkillSource):
    """A URL of a zip, tar or tar.gz archive, of a bare ``SKILL.md``, of an index of skills, or of a folder: a local one
    (``file://``), or one of an object store or file system, whose URL ends in ``/``.

    Several processes that open the same URL at once download it once; ``skills.store.check`` says when the server is
    asked whether it has changed, where the server can tell. Pinned content that is in the store is never asked for.
    """

    kind = "url"

    def __init__(self, spec: SourceSpec, context: SourceContext) -> None:
        super().__init__(spec, context)
        with unchained_errors():
            self._check()

    def _check(self) -> None:
        spec, context = self.spec, self.context
        _check_shape(spec)
        web = protocol_of(spec.location) in ("http", "https") and len(links_of(spec.location)) == 1
        self._git = GitAddress.parse(spec.location, self.origin) if is_git(spec.location) else None
        url, _, fragment = spec.location.partition("#")
        # A fragment is never sent: without it the same file has the same key. With '@' it is part of a password that
        # is not encoded, and such a URL is refused as a whole.
        self._url = url if web and "@" not in fragment else spec.location
        self._local = _local_path(self._url, self.origin) if protocol_of(self._url) in ("file", "local") else None
        if self._local is not None:
            check_pinned_folder(self._local, spec)
            return
        self._check_remote()
        address = index_address(self._url) if web else None
        self._index = SkillIndex(address, spec, context) if address else None

    def resolve(self) -> list[SourceTree]:
        with unchained_errors():
            return self._resolve()

    def _resolve(self) -> list[SourceTree]:
        began, deadline = time.time(), time.monotonic() + self.context.config.get(SkillOptions.SOURCE_TIMEOUT)
        if self._local is not None:
            return [self._local_tree(self._local, deadline)]
        if self._index is not None:
            return self._index.resolve(began, deadline)
        stored, notes = self._stored(began, deadline)
        remote = self._git is None or not self._git.url.startswith("file:")
        tree = SourceTree.of_store(stored, self.origin, remote=remote, format=self.spec.format)
        found = json.loads(notes or "[]")
        return [
            replace(
                tree, notes=tuple(Diagnostic("D06", "warning", text, "", self.origin, 0, fix) for text, fix in found)
            )
        ]

    def pinned(self) -> SourceSpec:
        """Return the declaration with the commit that the branch or tag of a repository has now.

        Raises :class:`SourceError`.
        """
        if self._git is None or self._git.commit:
            return self.spec
        with unchained_errors():
            deadline = time.monotonic() + self.context.config.get(SkillOptions.SOURCE_TIMEOUT)
            commit = Fetch(self._url, self.origin, self.context).version(deadline)
            pin = f"{'&' if '#' in self._url else '#'}commit={commit}" if commit != self._git.ref else ""
            return replace(self.spec, location=self._url + pin)

    def _check_remote(self) -> None:
        """What can be said of the URL before it is fetched, on a machine that may not have its secrets."""
        for link in links_of(self._url):
            AddressPolicy(self.context.config).check_url(link)
            _check_page(link, self.origin)
            self.context.file_system_options(protocol_of(link) or link.lower(), expanded=False)
        options = self.context.config.get(SkillOptions.SOURCE_OPTIONS)
        context = self.context.without_options() if has_references(options) else self.context
        if self._git is None:
            remote_of(self._url, context)
        else:
            GitRepository(self._git, self.origin, context)

    def _stored(self, began: float, deadline: float) -> tuple[StoredTree, str | None]:
        store, pin = self.context.store, self.spec.sha256
        if pin and (stored := store.open_tree(pin, self.origin)):
            return stored, None
        fetch = Fetch(self._url, self.origin, self.context)
        key = hashlib.sha256(fetch.url.encode()).hexdigest()
        with store.locked(key, deadline, self.origin):
            if pin and (stored := store.open_tree(pin, self.origin)):  # another process was first
                return stored, None
            path = store.record_path(key)
            known = None if pin else self._known(fetch, path, began, deadline)
            return known or self._download(fetch, key, path, deadline)

    def _known(self, fetch: Fetch, path: str, began: float, deadline: float) -> tuple[StoredTree, str | None] | None:
        """What was fetched before, if it is in the store and has not changed."""
        record = FetchRecord.read(path)
        stored = self.context.store.open_tree(record.sha256, self.origin) if record else None
        if record is None or stored is None:
            return None
        if is_answered(record, self.context, began):
            return stored, record.text
        version = fetch.version(deadline)
        if version is None or version != record.version:
            stored.lease.close()
            return None
        noted(replace(record, checked=time.time()), path)
        return stored, record.text

    def _download(self, fetch: Fetch, key: str, path: str, deadline: float) -> tuple[StoredTree, str | None]:
        store: Store = self.context.store
        work = store.work_path(key)
        try:
            target, version = fetch.fetch(work, self.context.limits.download, deadline, self.spec.sha256)
            stored = keep(target, fetch.name, self.origin, self.context, deadline)
            noted(FetchRecord(stored.sha256, version, time.time(), fetch.notes), path)
            return stored, fetch.notes
        finally:
            remove_tree(work)

    def _local_tree(self, path: str, deadline: float) -> SourceTree:
        if os.path.basename(path).lower() != "skill.md" or not os.path.isfile(path):
            return local_tree(path, self.spec, self.context)
        if self.spec.sha256:
            check_pin(path, self.spec.sha256, self.origin)
        try:
            stored = keep(path, "SKILL.md", self.origin, self.context, deadline)
        except OSError as error:
            message = f"skill source {self.origin}: cannot be read: {error.strerror}"
            raise SourceError(message, source=self.origin) from None
        return SourceTree.of_store(stored, self.origin, remote=False, format=self.spec.format)


def _check_shape(spec: SourceSpec) -> None:
    """Raise :class:`ConfigError` for what is no URL, with what was probably meant."""
    url, shown = spec.location, spec.shown
    if not url.strip():
        raise ConfigError("skill source '': is empty; give a URL such as https://host/skills.zip")
    if url != url.strip() or _CONTROL.search(url):
        shown = repr(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", shown).strip())
        message = f"skill source {shown}: has spaces around it, or control characters in it; remove them"
        raise ConfigError(message)
    if form := https_form(url):
        login = "for a private repository with user:${env:TOKEN}@ before the host"
        raise ConfigError(f"skill source {shown}: {_NO_SSH}; write {redact(form)}, {login}")
    protocol = protocol_of(url)
    if protocol in _UNSUPPORTED:
        raise ConfigError(f"skill source {shown}: {protocol} is not supported; {_UNSUPPORTED[protocol]}")
    if protocol and "://" in url:
        return
    if url.startswith(("/", "./", "../", "~")):
        fix = f"write file://{url}" if url.startswith("/") else "a job needs an absolute one"
        raise ConfigError(
            f"skill source {shown}: the value is a path, not a URL; {fix}, or use {SkillOptions.FROM_PATHS.key}"
        )
    found = _ONE_SLASH.match(url)
    fix = f"write {found[1].lower()}://…" if found else "write https://…, s3://… or file:///…"
    if found and found[1].lower() in ("file", "local"):
        fix = "write file:///…"
    raise ConfigError(f"skill source {shown}: the value is not a URL; {fix}")


def _check_page(url: str, shown: str) -> None:
    """Raise :class:`ConfigError` for a page of a GitHub repository, which people take for its files."""
    found = re.match(r"https?://(?:[^/@]*@)?(?:www\.)?github\.com(?:/([^?#]*))?(?:[?#]|\Z)", url, re.IGNORECASE)
    owner, repository, page, *rest = [*(found[1] or "").split("/"), "", "", "", ""] if found else ["", "", "", ""]
    form = repository_form(url)
    if found is None and form:
        raise ConfigError(f"skill source {shown}: the URL is a page of GitLab, not a file; write {form}")
    if found is None or page in _FILES_OF_GITHUB:
        return
    repository = repository.removesuffix(".git") or "<repository>"
    home = f"{owner or '<owner>'}/{repository}"
    branch = (rest[0] if page in ("tree", "blob") else "") or "<branch>"
    fix = f"give its archive, https://codeload.github.com/{home}/zip/refs/heads/{branch}"
    if page == "blob" and rest[1:]:
        fix = (
            f"give the file itself, https://raw.githubusercontent.com/{home}/{'/'.join(part for part in rest if part)}"
        )
    form = form or f"git+https://github.com/{home}.git@{branch}"
    raise ConfigError(f"skill source {shown}: the URL is a page of GitHub, not a file; {fix}, or write {form}")


def _local_path(url: str, shown: str) -> str:
    rest = url.partition("://")[2]
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        message = f"skill source {shown}: a file URL has three slashes and an absolute path: file:///…"
        raise ConfigError(f"{message}; there is no way to other hosts ({redact(host)!r})" if host else message)
    return "/" + unquote(path)
