"""Azure's blob storage, as Microsoft's emulator plays it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sources.object_stores.azurite import AzureAccount, azurite
from tests.sources.object_stores.faults import Fault, FaultyProxy, faulty_proxy
from tests.sources.object_stores.reading import SKILL, Reader, zip_bytes

URL = "abfs://skills/team/skills.zip"


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureAccount]:
    with azurite(tmp_path_factory.mktemp("azurite")) as made:
        made.make_container("skills")
        made.make_container("public", public=True)
        yield made


@pytest.fixture
def proxy(account: AzureAccount) -> Iterator[FaultyProxy]:
    with faulty_proxy(f"http://127.0.0.1:{account.port}") as between:
        yield between


@pytest.fixture
def azure(account: AzureAccount, proxy: FaultyProxy, reader: Reader) -> Reader:
    account.put("skills", "team/skills.zip", zip_bytes())
    reader.options = {"abfs": account.options(proxy.url)}
    return reader


def reads(proxy: FaultyProxy) -> int:
    """Requests for content, which is all that is not asked for in a listing or a head."""
    return sum(
        1 for method, path in proxy.requests if method == "GET" and "comp=" not in path and "restype=" not in path
    )


def test_skills_from_a_container(azure: Reader, account: AzureAccount, proxy: FaultyProxy) -> None:
    first = azure.resolve(URL)
    assert Path(first.path, "greet/SKILL.md").read_bytes() == SKILL
    assert reads(proxy) == 1
    assert azure.resolve(URL).path == first.path
    assert reads(proxy) == 1
    account.put("skills", "team/skills.zip", zip_bytes({"other/SKILL.md": SKILL.replace(b"greet", b"other")}))
    assert azure.resolve(URL).path != first.path
    assert reads(proxy) == 2


def test_other_schemes_take_the_same_options(azure: Reader) -> None:
    assert azure.fetch("az://skills/team/skills.zip") == zip_bytes()


def test_a_public_blob_needs_no_credentials(azure: Reader, account: AzureAccount) -> None:
    account.put("public", "s.zip", b"public")
    azure.options["abfs"] = {"endpoint": azure.options["abfs"]["endpoint"], "anonymous": True}
    assert azure.fetch("abfs://public/s.zip") == b"public"


WRONG = base64.b64encode(b"wr0ng-s3cret").decode()


@pytest.mark.parametrize(
    ("url", "changed", "said"),
    [
        ("abfs://skills/none.zip", {}, "the source does not exist; check the address"),
        ("abfs://no-such-container/x.zip", {}, "does not exist; check"),
        (URL, {"secret": WRONG}, "access is refused (AuthorizationFailure); check AZURE_STORAGE_ACCOUNT_NAME"),
        (URL, {"key": None, "secret": None, "anonymous": True}, "access without credentials is refused"),
    ],
)
def test_refusals(azure: Reader, url: str, changed: dict[str, Any], said: str) -> None:
    words = {**azure.options["abfs"], **changed}
    azure.options["abfs"] = {word: value for word, value in words.items() if value is not None}
    error = azure.failure(url)
    assert said in str(error)
    assert not error.retryable
    assert WRONG not in str(error)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("status", status=503), "the server returned 503; try again"),
        (Fault("hang"), "sent nothing for"),
        (Fault("reset"), "try again"),
    ],
)
def test_faults_that_stay(azure: Reader, proxy: FaultyProxy, fault: Fault, said: str) -> None:
    azure.seconds = 6
    proxy.faulty = lambda method: method == "GET"
    proxy.plan = lambda number: fault
    error = azure.failure(URL)
    assert said in str(error)
    assert error.retryable
    assert 1 < proxy.count("GET") <= 4 * (2 if fault.kind == "reset" else 1)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", ["cut", "status", "hang", "hang-in-body", "reset"])
def test_faults_that_end_in_time(azure: Reader, proxy: FaultyProxy, kind: Any) -> None:
    proxy.faulty = lambda method: method == "GET"
    proxy.plan = lambda number: Fault(kind, after=10) if number == 1 else Fault()
    assert azure.fetch(URL) == zip_bytes()
    assert proxy.count("GET") <= 3
