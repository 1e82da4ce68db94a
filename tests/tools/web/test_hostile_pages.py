"""Servers that lie, drip and pack, and pages that are broken or made to cost time."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib

import pytest

from flink_skills.tools.web import WebError, to_markdown
from tests.kit.waiting import MARGIN
from tests.tools.web.conftest import Fetch, code_of
from tests.tools.web.site import Site, Visit

MIB = 1024 * 1024


@pytest.mark.row("J24", "J26")
async def test_a_body_that_is_announced_too_large_is_read_up_to_the_limit(site: Site, fetch: Fetch) -> None:
    site.page("/", b"x" * 2000, "text/plain", Content_Length="999999999999999")
    result = await fetch(site.at(), max_response_bytes=1000)
    assert (result.value["bytes"], result.value["truncated"]) == (1000, True)
    assert "more than 1000 bytes" in result.value["note"]


@pytest.mark.row("J24", "J26")
async def test_a_body_without_end_is_left(site: Site, fetch: Fetch) -> None:
    sent = 0

    async def endless(visit: Visit) -> None:
        nonlocal sent
        await visit.head(Content_Type="text/plain")
        while True:
            await visit.send(b"x" * 65_536)
            sent += 65_536

    site.pages["/"] = endless
    value = (await fetch(site.at(), {"max_length": 0}, max_response_bytes=MIB)).value
    assert (value["bytes"], value["truncated"]) == (MIB, True)
    # Beside what was read there are the buffers of both ends.
    assert sent < 64 * MIB


@pytest.mark.row("J26")
async def test_lies_about_the_length(site: Site, fetch: Fetch) -> None:
    site.page("/more", b"0123456789", "text/plain", Content_Length="20")
    assert code_of(await fetch(site.at("/more"))) == "HTTP_ERROR"
    site.page("/less", b"0123456789", "text/plain", Content_Length="4")
    assert (await fetch(site.at("/less"))).value["content"] == "0123"
    for number, length in enumerate(("-1", "ten", "4, 5", "9" * 26)):
        site.page(f"/{number}", b"0123456789", "text/plain", Content_Length=length)
        assert code_of(await fetch(site.at(f"/{number}"))) == "HTTP_ERROR"


@pytest.mark.row("J24", "J26")
async def test_a_server_that_drips_ends_at_the_deadline(site: Site, fetch: Fetch) -> None:
    dripped = asyncio.Event()

    async def drip(visit: Visit) -> None:
        await visit.head(Content_Type="text/plain")
        dripped.set()
        await site.drip(visit, b".")

    site.pages["/"] = drip
    started = time.monotonic()
    result = await fetch(site.at(), timeout=0.2)
    assert code_of(result) == "HTTP_ERROR"
    assert "within 0.2 s" in result.value["error"]
    assert dripped.is_set()
    assert time.monotonic() - started < MARGIN


@pytest.mark.row("J24", "J26")
async def test_redirects_share_the_deadline(site: Site, fetch: Fetch) -> None:
    async def again(visit: Visit) -> None:
        await visit.reply(b"", status="302 Found", Location="/")

    site.pages["/"] = again
    result = await fetch(site.at(), timeout=0.2, max_redirects=1_000_000)
    assert "within 0.2 s" in result.value["error"]


@pytest.mark.row("J24")
async def test_a_server_that_never_answers_and_one_that_is_no_web_server(site: Site, fetch: Fetch) -> None:
    async def silent(visit: Visit) -> None:
        await site.closed.wait()

    async def noise(visit: Visit) -> None:
        await visit.send(b"220 mail ready\r\n" * 10)

    async def headers_for_ever(visit: Visit) -> None:
        await visit.send(b"HTTP/1.1 200 OK\r\n")
        while True:
            await visit.send(b"X-More: " + b"y" * 1000 + b"\r\n")

    site.pages |= {"/silent": silent, "/noise": noise, "/headers": headers_for_ever}
    assert "within 0.2 s" in (await fetch(site.at("/silent"), timeout=0.2)).value["error"]
    assert code_of(await fetch(site.at("/noise"))) == "HTTP_ERROR"
    assert code_of(await fetch(site.at("/headers"))) == "HTTP_ERROR"


@pytest.mark.row("J24", "J26")
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_what_is_packed_counts_as_it_unpacks(coding: str, site: Site, fetch: Fetch) -> None:
    large = b"a" * (100 * MIB)
    bomb = gzip.compress(large, 1) if coding == "gzip" else zlib.compress(large, 1)
    assert len(bomb) < MIB
    site.page("/", bomb, "text/plain", Content_Encoding=coding)
    result = await fetch(site.at(), {"max_length": 0}, max_response_bytes=MIB)
    assert (result.value["bytes"], result.value["truncated"]) == (MIB, True)
    fits = gzip.compress(b"a" * MIB) if coding == "gzip" else zlib.compress(b"a" * MIB)
    site.page("/fits", fits, "text/plain", Content_Encoding=coding)
    assert (await fetch(site.at("/fits"), {"max_length": 0}, max_response_bytes=MIB)).value["truncated"] is False


@pytest.mark.row("J26")
async def test_broken_and_strange_packing(site: Site, fetch: Fetch) -> None:
    packed = gzip.compress(b"0123456789" * 1000)
    for path, body, coding in (
        ("/plain", b"not packed at all", "gzip"),
        ("/cut", packed[:-20], "gzip"),
        ("/changed", packed[:30] + b"\xff\xff" + packed[32:], "gzip"),
        ("/twice", gzip.compress(packed), "gzip, gzip"),
        ("/unknown", b"whatever", "br"),
        ("/unknown2", b"whatever", "aes"),
    ):
        site.page(path, body, "text/plain", Content_Encoding=coding)
        result = await fetch(site.at(path))
        assert code_of(result) == "DECODE_ERROR", path
        assert result.value["status_code"] == 200
    raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    site.page("/raw", raw.compress(b"raw deflate") + raw.flush(), "text/plain", Content_Encoding="deflate")
    assert (await fetch(site.at("/raw"))).value["content"] == "raw deflate"
    site.page("/same", b"as it is", "text/plain", Content_Encoding="identity")
    assert (await fetch(site.at("/same"))).value["content"] == "as it is"


@pytest.mark.row("J27")
@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("grün".encode("latin-1"), "text/plain; charset=ISO-8859-1", "grün"),
        ("“x”".encode("cp1252"), "text/plain; charset=iso-8859-1", "“x”"),
        ("日本".encode("shift_jis"), "text/plain; charset=Shift_JIS", "日本"),
        ("日本".encode("euc-jp"), 'text/plain; charset="euc-jp"', "日本"),
        ("grün".encode("utf-16"), "text/plain; charset=latin-1", "grün"),
        ("plain".encode("utf-16-le"), "text/plain; charset=utf-16le", "plain"),
        (b"\xef\xbb\xbfgr\xc3\xbcn", "text/plain", "grün"),
        (b"<meta charset=windows-1251><p>" + "привет".encode("cp1251"), "text/html", "привет"),
        (
            b'<meta http-equiv=x content="text/html; charset=koi8-r"><p>' + "привет".encode("koi8-r"),
            "text/html",
            "привет",
        ),
        (b"<?xml version='1.0' encoding='ISO-8859-1'?><a>\xfc</a>", "application/xml", "<a>ü</a>"),
        (b"gr\xc3\xbcn \xff\xfe end", "text/plain; charset=utf-8", "grün \ufffd\ufffd end"),
        ("grün".encode(), "text/plain; charset=no-such", "grün"),
        # Names that Python knows and no page may use: the first takes hours for a page made for it.
        (b"a-b-ccc", "text/plain; charset=punycode", "a-b-ccc"),
        (b"\\u0041", "text/plain; charset=unicode_escape", "\\u0041"),
        (b"+AGE-", "text/plain; charset=utf-7", "+AGE-"),
        (b"68690a", "text/plain; charset=hex", "68690a"),
    ],
)
async def test_charsets(body: bytes, kind: str, text: str, site: Site, fetch: Fetch) -> None:
    site.page("/", body, kind)
    assert text in (await fetch(site.at())).value["content"]


@pytest.mark.row("J27")
async def test_bytes_of_no_charset_are_guessed(site: Site, fetch: Fetch) -> None:
    sentence = "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 20
    site.page("/", sentence.encode("cp1251"), "text/plain")
    assert "французских" in (await fetch(site.at())).value["content"]


@pytest.mark.row("J27")
@pytest.mark.parametrize(
    "page",
    [
        "<b>" * 1000 + "found",
        "<table><tr><td>" * 400 + "found",
        "<ul><li>" * 900 + "found",
        "<blockquote>" * 2000 + "found",
        "found" + "<a href='" * 100_000,
        "found" + "<!--" * 100_000,
        "found" + "<" * 200_000,
        "found<script>" + "<script>" * 100_000,
        "found" + "&amp" * 100_000,
        "found<p " + " ".join(f"a{number}=1" for number in range(20_000)) + ">",
    ],
    ids=lambda page: page[:12] + page[-4:],
)
async def test_pages_that_are_made_to_cost_time(page: str, site: Site, fetch: Fetch) -> None:
    site.page("/", page)
    result = await fetch(site.at(), {"max_length": 0})
    assert not result.is_error
    assert "found" in result.value["content"]


@pytest.mark.row("J26")
@pytest.mark.parametrize(
    "page", ["<div>" * 50_000 + "lost", "<b>" * 3000 + "lost", "seen" + "<ul><li>" * 2000 + "lost"]
)
async def test_a_page_that_is_too_deep_to_be_read_is_not_read_in_part(page: str, site: Site, fetch: Fetch) -> None:
    site.page("/", page)
    result = await fetch(site.at())
    assert (code_of(result), result.value["content"]) == ("DECODE_ERROR", "")


@pytest.mark.row("J27")
@pytest.mark.parametrize("page", ["", " ", "<!-- -->", "<html></html>", "<p>\ud83d".encode("utf-8", "surrogatepass")])
async def test_pages_with_nothing_in_them(page: str | bytes, site: Site, fetch: Fetch) -> None:
    site.page("/", page)
    assert not (await fetch(site.at())).is_error


@pytest.mark.row("J27")
async def test_of_a_very_long_page_the_beginning(site: Site, fetch: Fetch) -> None:
    site.page("/", "<p>first" + "<p>word" * 60_000)
    content = (await fetch(site.at(), {"max_length": 0}, timeout=60)).value["content"]
    assert content.startswith("first")


@pytest.mark.row("J26")
async def test_long_runs_of_space_cost_no_time(site: Site, fetch: Fetch) -> None:
    for number, space in enumerate((" ", "\t", "\n", "&#32;")):
        site.page(f"/{number}", f"<p>One{space * 30_000}two</p>".encode(), "text/html")
        assert (await fetch(site.at(f"/{number}"))).value["content"] == "One two"


@pytest.mark.row("J26")
async def test_a_page_that_holds_the_converter_ends_it_and_nothing_else() -> None:
    slow = "<ol>" + "<li>a" * 30_000
    converting = asyncio.create_task(asyncio.to_thread(to_markdown, slow, "http://127.0.0.1/", seconds=0.3))
    ticks = 0
    while not converting.done():
        await asyncio.sleep(0.01)
        ticks += 1
    with pytest.raises(WebError, match=r"takes more than 0\.3 s of CPU time to convert to text") as failure:
        await converting
    assert failure.value.code == "DECODE_ERROR"
    # The page would hold Python's lock for this time and longer.
    assert ticks > 10
    assert to_markdown("<h1>Next</h1>", "http://127.0.0.1/") == "# Next"
