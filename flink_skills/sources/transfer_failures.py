"""One error for whatever a storage library raises: the cause, whether a retry can help, and the fix.

The libraries' own texts quote URLs, headers and answers of servers: none of it is passed on but error codes that are
single words, such as ``SignatureDoesNotMatch``.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flink_skills.endpoint import tls_fix
from flink_skills.errors import SourceError
from flink_skills.options import SkillOptions
from flink_skills.sources.protocols import protocol_named

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound", "InvalidBucketName"})
_OTHER_REGION = frozenset(
    {"AuthorizationHeaderMalformed", "PermanentRedirect", "TemporaryRedirect", "Redirect", "IllegalLocationConstraint"}
)
_UNREACHABLE = frozenset({
    "ClientConnectorDNSError", "ClientConnectorError", "ConnectionRefusedError", "ConnectTimeout",
    "ConnectTimeoutError", "EndpointConnectionError", "NewConnectionError", "gaierror",
})  # fmt: skip
_UNTRUSTED = frozenset({"ClientConnectorCertificateError", "SSLCertVerificationError"})
_NO_HTTP = frozenset({"BadHttpMessage", "BadHttpMethod", "BadStatusLine", "InvalidHeader", "LineTooLong"})
_NO_ADDRESS = frozenset({"InvalidURL", "ParamValidationError"})
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]{2,60}")
_MAX_CAUSES = 12


class DiskError(SourceError):
    """The disk does not take the file: the server is not to be asked again for that."""


class ChangedError(SourceError):
    """A file is not the one that a listing named: only a new listing helps."""


@dataclass(frozen=True)
class Transfer:
    """What messages about one transfer need to know.

    ``target`` is the file that is written, ``seconds`` the whole deadline, ``stall`` the longest wait for a byte,
    ``disk_error`` the store's error for a disk that fails.
    """

    shown: str
    protocol: str
    anonymous: bool
    target: str
    seconds: float
    stall: float
    disk_error: Callable[[OSError, str], SourceError]

    def timed_out(self) -> SourceError:
        key = SkillOptions.SOURCE_TIMEOUT.key
        return self.error(
            f"the source was not read within {self.seconds:g} s; try again, or raise {key}", retryable=True
        )

    def too_large(self, limit: int) -> SourceError:
        key = SkillOptions.LIMIT_DOWNLOAD.key
        return self.error(f"the source exceeds the limit of {limit} bytes; reduce it, or raise {key}")

    def error(self, reason: str, *, retryable: bool = False) -> SourceError:
        return SourceError(f"skill source {self.shown}: {reason}", source=self.shown, retryable=retryable)

    def translated(self, error: BaseException) -> SourceError:
        """The error to raise for one that a library raised."""
        causes = list(_causes(error))
        for cause in causes:
            if isinstance(cause, SourceError):
                return cause
        for cause in causes:
            if isinstance(cause, OSError) and (cause.errno in _DISK_FULL or self._is_target(cause)):
                found = self.disk_error(cause, self.shown)
                return DiskError(str(found), source=self.shown, retryable=found.retryable)
        names = {kind.__name__ for cause in causes for kind in type(cause).__mro__}
        status = next(filter(None, map(_status, causes)), None)
        code = next(filter(None, map(_code, causes)), "")
        if fix := tls_fix(self.shown, " ".join(map(str, causes))):
            return self.error(fix)
        return (
            self._of_answer(error, causes, names, status, code)
            or self._of_connection(names)
            or self._of_status(status)
            or self._of_set_up(error, causes)
            # Resets, cut bodies and protocol errors have as many types as there are libraries.
            or self.error(f"the transfer failed ({type(error).__name__}); try again", retryable=True)
        )

    def _of_answer(
        self, error: BaseException, causes: list[BaseException], names: set[str], status: int | None, code: str
    ) -> SourceError | None:
        """What the server said about the address and the credentials."""
        detail = f" ({code})" if code else ""
        credentials = protocol_named(self.protocol).credentials
        key = SkillOptions.SOURCE_OPTIONS.key
        if names & _NO_HTTP and "PayloadEncodingError" not in names:  # which is a body that was cut
            return self.error(
                "the server's response is not valid HTTP; try again, or check the address", retryable=True
            )
        if code in _OTHER_REGION or status in (301, 302, 307, 308):
            return self.error(f"the bucket is in another region{detail}; set 'region' and 'endpoint' in {key}")
        if code in _NO_BUCKET or any("bucket does not exist" in str(cause) for cause in causes):
            return self.error("the bucket does not exist; check the bucket's name, 'endpoint' and 'region'")
        if "NoCredentialsError" in names or ("Credentials" in type(error).__name__ and status is None):
            return self.error(
                f"there are no credentials for it; use {credentials}, or 'anonymous': true in {key} for public data"
            )
        if "FileNotFoundError" in names or status in (404, 410):
            return self.error("the source does not exist; check the address")
        refused = isinstance(error, OSError) and str(error).startswith("Forbidden")  # gcsfs has no type for it
        # Some S3 interfaces take a request without signature for none of theirs.
        unsigned = self.anonymous and status == 400
        if refused or unsigned or "PermissionError" in names or status in (401, 403):
            if self.anonymous:
                return self.error(f"access without credentials is refused{detail}; use {credentials}")
            return self.error(f"access is refused{detail}; check {credentials}")
        if status == 400 and self.protocol in ("s3", "s3a"):  # which has no text when only headers were asked for
            return self.error(
                f"the server does not take the request (400){detail}; check 'region' and 'endpoint' in {key}"
            )
        return None

    def _of_connection(self, names: set[str]) -> SourceError | None:
        if "TooManyRedirects" in names:
            return self.error("the server redirects repeatedly; check the address")
        if names & _UNTRUSTED:
            return self.error("the certificate of its server is not trusted; check the address and the certificates")
        if names & _UNREACHABLE:
            fix = "check the address, 'endpoint' and the network, or try again"
            return self.error(f"the server is unreachable; {fix}", retryable=True)
        if any(name.endswith(("TimeoutError", "Timeout")) for name in names):
            fix = f"try again, or raise {SkillOptions.SOURCE_TIMEOUT.key}"
            return self.error(f"the server sent nothing for {self.stall:.3g} s; {fix}", retryable=True)
        return None

    def _of_status(self, status: int | None) -> SourceError | None:
        if status is None or status < 400:
            return None
        retryable = (status >= 500 and status != 501) or status in (408, 425, 429)
        return self.error(
            f"the server returned {status}" + ("; try again" if retryable else "; check the address"),
            retryable=retryable,
        )

    def _of_set_up(self, error: BaseException, causes: list[BaseException]) -> SourceError | None:
        """What is wrong on this machine."""
        name, key = type(error).__name__, SkillOptions.SOURCE_OPTIONS.key
        if any(isinstance(cause, ImportError) for cause in causes):
            return self.error(missing_package(self.protocol))
        if self.protocol == "hdfs" and any(re.search("libhdfs|libjvm|CLASSPATH", str(cause)) for cause in causes):
            fix = "set JAVA_HOME, HADOOP_HOME and CLASSPATH, or use webhdfs://"
            return self.error(f"hdfs needs the libraries of Hadoop on this machine; {fix}")
        if any(kind.__name__ in _NO_ADDRESS for cause in causes for kind in type(cause).__mro__):
            return self.error("the address is invalid; check its host, bucket and path")
        wrong = isinstance(error, (TypeError, AttributeError, LookupError, ValueError)) or "Validation" in name
        return self.error(f"the source cannot be opened ({name}); check {key}") if wrong else None

    def _is_target(self, error: OSError) -> bool:
        return bool(self.target) and str(error.filename or "").startswith(self.target)


def missing_package(protocol: str) -> str:
    """What to install for a protocol."""
    return f"{protocol} needs a package that is missing: pip install {protocol_named(protocol).install}"


def is_absent(error: BaseException, target: str) -> bool:
    """Return True if the store has no such file, or none of the version that was asked for.

    ``target`` is the file that was written, which may be missing too.
    """
    causes = list(_causes(error))
    if any(str(getattr(cause, "filename", None) or "").startswith(target) for cause in causes):
        return False
    names = {kind.__name__ for cause in causes for kind in type(cause).__mro__}
    statuses = {_status(cause) for cause in causes}
    return bool(names & {"FileNotFoundError", "FileExistsError"} or statuses & {404, 410, 412})


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, what it was raised from, and what libraries keep in attributes of their own."""
    waiting, seen = [error], 0
    while waiting and seen < _MAX_CAUSES:
        found = waiting.pop(0)
        if not isinstance(found, BaseException):
            continue
        seen += 1
        yield found
        waiting += [found.__cause__ or (None if found.__suppress_context__ else found.__context__)]
        waiting += [getattr(found, name, None) for name in ("inner_exception", "exception")]


def _status(error: BaseException) -> int | None:
    response: Any = getattr(error, "response", None)
    if isinstance(response, Mapping):
        answered = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        answered = getattr(response, "status_code", None)
    # Of the object itself: properties may be deprecated and say so.
    numbers = (answered, *(vars(error).get(name) for name in ("status", "status_code", "code")))
    for number in numbers:
        if isinstance(number, (int, str)) and str(number).isdigit() and 100 <= int(number) < 600:
            return int(number)
    return None


def _code(error: BaseException) -> str:
    """The store's own word for what is wrong."""
    response: Any = getattr(error, "response", None)
    words = [response.get("Error", {}).get("Code")] if isinstance(response, Mapping) else []
    words += [getattr(getattr(error, "error_code", None), "value", getattr(error, "error_code", None))]
    words += [vars(error).get("code")]
    return next((word for word in words if isinstance(word, str) and _WORD.fullmatch(word)), "")
