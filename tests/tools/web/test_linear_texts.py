"""Headers and bodies whose decoding takes long unless its time is linear in their length."""

from __future__ import annotations

import pytest

from flink_skills.tools.web import charset_of, decode
from tests.kit.growth import grows_linearly


def test_a_header_is_read_in_linear_time() -> None:
    assert grows_linearly(charset_of, lambda size: "text/html" + ";" * size, 100_000)


@pytest.mark.parametrize("charset", ["cp1253", "iso2022_jp", "utf-16", "gb18030"])
def test_a_body_in_pieces_is_the_same_text(charset: str) -> None:
    body = "a\u03b1\u00e9\u65e5".encode(charset, "ignore") * 40_000 + b"\xff"
    assert decode(body, charset, html=False) == body.decode(charset, "replace")
