"""Networks that misbehave, before an S3 interface and a web server: one error, in time, told apart, no secrets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.kit.waiting import MARGIN, wait_until
from tests.sources.object_stores.buckets import Endpoint
from tests.sources.object_stores.faults import Fault, FaultyProxy, faulty_proxy
from tests.sources.object_stores.reading import SKILL, Reader, zip_bytes
from tests.sources.web import Page, Web

BODY = bytes(range(256)) * 400
SECRET = "t0ken-s3cret"
ATTEMPTS = 4

pytestmark = pytest.mark.usefixtures("impatient")


@dataclass
class Place:
    """A file behind a faulty proxy. ``looks``: requests of one attempt before the file's own."""

    url: str
    shown: str
    proxy: FaultyProxy
    reader: Reader
    looks: int

    def always(self, fault: Fault) -> None:
        self.proxy.plan = lambda number: fault

    def first(self, count: int, fault: Fault) -> None:
        self.proxy.plan = lambda number: fault if number <= count else Fault()


@pytest.fixture(params=["web", "moto"])
def place(request: pytest.FixtureRequest, reader: Reader) -> Iterator[Place]:
    reader.seconds = 20  # no deadline ends these but where a test says so
    if request.param == "web":
        web = Web()
        try:
            web.pages["/f.bin"] = Page(BODY, headers={"ETag": '"1"'})
            with faulty_proxy(web.url) as proxy:
                url = proxy.url.replace("//", f"//user:{SECRET}@") + f"/f.bin?token={SECRET}"
                yield Place(url, f"{proxy.url}/f.bin", proxy, reader, 0)
        finally:
            web.close()
        return
    endpoint: Endpoint = request.getfixturevalue(request.param)
    endpoint.put("skills", "f.bin", BODY)
    endpoint.put("skills", "skills.zip", zip_bytes({"greet/SKILL.md": SKILL, "greet/data.bin": BODY}))
    with faulty_proxy(endpoint.url) as proxy:
        reader.options = {"s3": endpoint.at(proxy.url).options()}
        yield Place("s3://skills/f.bin", "s3://skills/f.bin", proxy, reader, 1)


FAULTS = {
    "cut": (Fault("cut", after=5000), "the transfer failed"),
    "503": (Fault("status", status=503), "the server returned 503; try again"),
    "500": (Fault("status", status=500), "the server returned 500; try again"),
    "429": (Fault("status", status=429), "the server returned 429; try again"),
    "hang": (Fault("hang"), "the server sent nothing for"),
    "hang-in-body": (Fault("hang-in-body", after=5000), "the server sent nothing for"),
    "reset": (Fault("reset"), "try again"),
    "reset-in-body": (Fault("reset", after=5000), "the transfer failed"),
    "garbage": (Fault("garbage"), "try again"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_stays(place: Place, fault: str) -> None:
    happens, said = FAULTS[fault]
    place.proxy.faulty = lambda method: method == "GET"
    place.always(happens)
    error = place.reader.failure(place.url)
    assert said in str(error)
    assert str(error).startswith(f"skill source {place.shown}: ")
    assert error.source == place.shown
    assert error.retryable
    for secret in (SECRET, "swift-secret", "any-secret", "Signature"):
        assert secret not in str(error) + error.source
    assert error.__suppress_context__, "the library's own error, which quotes URLs, must not be shown below it"
    # Tries do not multiply, whatever libraries do below. (HTTP clients send a request again, at once, whose connection
    # was closed before any answer: RFC 9112, section 9.3.1.)
    assert 1 < place.proxy.count("GET") <= ATTEMPTS * (2 if fault == "reset" else 1)
    assert place.proxy.count("HEAD") <= place.looks * ATTEMPTS


@pytest.mark.parametrize("fault", ["cut", "503", "hang-in-body", "reset"])
@pytest.mark.parametrize("place", ["swift"], indirect=True)
def test_a_real_store_behind_a_fault_that_ends(place: Place, fault: str) -> None:
    place.first(1, FAULTS[fault][0])
    place.proxy.faulty = lambda method: method == "GET"
    tree = place.reader.resolve(place.url.replace("f.bin", "skills.zip"))
    assert Path(tree.path, "greet/SKILL.md").read_bytes() == SKILL


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_ends_in_time(place: Place, fault: str) -> None:
    place.first(2, FAULTS[fault][0])
    assert place.reader.fetch(place.url) == BODY
    assert place.proxy.count() <= (place.looks + 1) * 3 * (2 if fault == "reset" else 1)


def test_an_answer_that_is_final_is_not_asked_for_again(place: Place) -> None:
    place.always(Fault("status", status=501))
    error = place.reader.failure(place.url)
    assert "the server returned 501; check the address" in str(error)
    assert not error.retryable
    assert place.proxy.count() == 1


def test_a_slow_body_within_the_deadline(place: Place) -> None:
    place.always(Fault("slow", pause=0.002))
    assert place.reader.fetch(place.url) == BODY


def test_a_body_that_is_slow_for_ever_ends_with_the_deadline(place: Place) -> None:
    place.reader.seconds = 3
    place.proxy.faulty = lambda method: method == "GET"
    place.always(Fault("slow", pause=0.2))
    error = place.reader.failure(place.url)
    assert "the source was not read within 3 s; try again, or raise skills.source.timeout" in str(error)
    assert error.retryable
    assert place.proxy.count("GET") <= 1


def test_a_server_that_always_hangs_holds_nothing_beyond_the_deadline(place: Place) -> None:
    place.reader.seconds = 1
    place.always(Fault("hang"))
    assert place.reader.failure(place.url).retryable
    wait_until(lambda: not any(thread.name == "flink-skills-download" for thread in threading.enumerate()))
    wait_until(lambda: not place.proxy.open_connections())
    # Not all that the attempts may ask: the deadline cut them short.
    assert place.proxy.count() < ATTEMPTS * (place.looks + 1)


def test_a_look_at_the_version_has_the_same_deadline(place: Place) -> None:
    place.reader.seconds = 1
    place.always(Fault("hang"))
    began = time.monotonic()
    if place.looks:
        with pytest.raises(Exception, match="try again"):
            place.reader.version(place.url)
    else:
        assert place.reader.version(place.url) is None
    assert time.monotonic() - began < 1 + MARGIN


def test_an_open_goes_on_after_faults(place: Place, tmp_path: Path) -> None:
    place.first(3, Fault("status", status=503))
    # The retries take longer while attacks of other tests load the processors.
    reader = replace(place.reader, seconds=20 + MARGIN)
    assert reader.version(place.url) is None or place.looks
    assert reader.fetch(place.url) == BODY
    assert not (tmp_path / "store").exists()
