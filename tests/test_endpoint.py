"""The part of an address that may be shown, and the check of addresses that users declare."""

import traceback

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flink_skills.endpoint import check_endpoint, redact, redact_text, user_of
from flink_skills.errors import ConfigError

# No letter of a secret is in the public parts: one that shows is found, wherever it stands.
SECRETS = st.text("QXZéλ漢/?#@:.=&%+ '\"[]{}<>~", min_size=1, max_size=10)
BEGINS = SECRETS | st.sampled_from(["", "123/"])
PASSWORDS = st.builds("{}K{}".format, BEGINS, BEGINS)
# Where a password with an '@' and a quote or a space ends in a text cannot be decided.
IN_TEXT = st.text("KQXZ19é/?#:. '\"<>()[]", max_size=10) | st.text("KQXZ19é/?#@:.()[]", max_size=10)
USERS = st.text("WJéλ漢/?#@:.~", max_size=8).map("U{}".format)
HOSTS = st.sampled_from(
    ["host", "api.example.org", "localhost", "10.1.2.3", "[::1]", "[fe80::1%25eth0]", "bücher.example", "${env:host}"]
)
PORTS = st.sampled_from(["", ":1", ":8443", ":65535", ":${env:port}"])
PATHS = st.text("abc012-._~/%!$()*,;", max_size=10).map(lambda path: f"/{path}" if path else "")
SCHEMES = st.sampled_from(["http", "https", "s3", "hdfs", "git+https", "simplecache::https", "zip://a/b.zip::https"])
ASIDE = st.none() | st.builds("KQ{}".format, SECRETS)
HIDDEN = set("UWJKQXZéλ漢")


def shows(text: str) -> set[str]:
    return HIDDEN & set(text.replace("bücher", ""))


@given(SCHEMES, USERS, st.none() | PASSWORDS, HOSTS, PORTS, PATHS, ASIDE, ASIDE)
def test_neither_user_nor_password_nor_query_nor_fragment_is_shown(
    scheme: str,
    user: str,
    password: str | None,
    host: str,
    port: str,
    path: str,
    query: str | None,
    fragment: str | None,
) -> None:
    if password is None:
        # Without a password, "a.zip/x@" may be the host and the begin of a path.
        assume("/" not in user or "." not in user)
        assume(scheme.rpartition("::")[2].startswith(("http", "git")) or not set("/?#") & set(user))
    url = f"{scheme}://{user}{'' if password is None else ':' + password}@{host}{port}{path}"
    url += "" if query is None else f"?{query}"
    url += "" if fragment is None else f"#{fragment}"
    shown = redact(url)
    assert not shows(shown), url
    assert shown.startswith(f"{scheme}://"), url
    assert redact(shown) == shown, url
    assert not shows(redact_text(shown)), url


@given(
    SCHEMES,
    USERS.filter(lambda user: not set("/?#@:") & set(user)),
    st.text("KQXZ19éλ漢/?#:.&%+ ", min_size=1, max_size=10).filter(lambda text: not text[0].isdigit()),
    HOSTS,
    PORTS,
    PATHS,
)
def test_scheme_host_port_and_path_are_shown(
    scheme: str, user: str, password: str, host: str, port: str, path: str
) -> None:
    assume(password[0] not in "/?#")  # then "user:" may be a host with an empty port
    assert redact(f"{scheme}://{user}:{password}@{host}{port}{path}?Q#Q") == f"{scheme}://{host}{port}{path}"


@given(HOSTS, PORTS, PATHS, SECRETS)
def test_a_query_is_not_shown_without_a_user(host: str, port: str, path: str, query: str) -> None:
    for sign in "?#":
        shown = redact(f"https://{host}{port}{path}{sign}x=K{query}")
        assert not shows(shown)
        assert shown.startswith("https://")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host/a.zip", "https://host/a.zip"),
        ("https://u:p@host:8443/a.zip?X-Amz-Signature=1#x", "https://host:8443/a.zip"),
        ("https://u:p/w@host/a.zip", "https://host/a.zip"),
        ("https://u:p?w@host/a.zip", "https://host/a.zip"),
        ("https://u:p#w@host/a.zip", "https://host/a.zip"),
        ("https://u:p@w@host/a.zip", "https://host/a.zip"),
        ("https://u:12/34@host/a.zip", "https://…@host/a.zip"),
        ("https://u:p::w@host/a.zip", "https://host/a.zip"),
        ("https://to/ken@host/a.zip", "https://…@host/a.zip"),
        ("https://token@host?x", "https://host"),
        ("https://me:SECRET", "https://…"),
        ("s3://bucket/key@2.zip", "s3://bucket/key@2.zip"),
        ("file:///opt/key@2.zip", "file:///opt/key@2.zip"),
        ("https://cdn.example.org/user/repo@v1/a.zip?mail=a@b", "https://cdn.example.org/user/repo@v1/a.zip"),
        ("http://localhost:8443/@scope/a.zip", "http://localhost:8443/@scope/a.zip"),
        ("https://host:8443/a@b.zip", "https://…@b.zip"),
        ("https://host:8443/a.zip?mail=a@b", "https://…"),
        ("https://host:bad/a.zip?mail=a@b", "https://…"),
        ("https://u:p@[::1]:8443/a.zip?t=1", "https://[::1]:8443/a.zip"),
        ("simplecache::https://u:p@host/a.zip?t=1", "simplecache::https://host/a.zip"),
        ("zip://a?b::s3://k:s@bucket/x.zip", "zip://a::s3://bucket/x.zip"),
        ("https://${env:USER}:${file:/run/pw}@host/a?t=${env:T}", "https://host/a"),
        ("http://${env:HOST}:${env:PORT}/v1", "http://${env:HOST}:${env:PORT}/v1"),
        ("u:p@host", "host"),
        ("", ""),
    ],
)
def test_the_part_of_a_url_that_is_shown(url: str, shown: str) -> None:
    assert redact(url) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "404, message='x', url='https://u:p@host/a?sig=1' and <s3://k:s@b/c?d> at host:80",
            "404, message='x', url='https://host/a' and <s3://b/c> at host:80",
        ),
        ("see (https://u:K/Q@host/a), [https://u:K@host].", "see (https://host/a), [https://host]."),
        ("'https://u:K Q@host/a' failed", "'https://host/a' failed"),
        ("https://u:K'Q\"X<Z>@host/a failed", "https://host/a failed"),
        ("https://host:8080: no answer for me@example.org", "https://host:8080: no answer for me@example.org"),
        ("https://host: no answer for me@example.org", "https://host: no answer for me@example.org"),
        ("urls: https://host/a?K,https://u:K@host/b.", "urls: https://…"),
        ("proxy //u:K/Q@host/a", "proxy host/a"),
    ],
)
def test_urls_in_the_texts_of_libraries_are_redacted(text: str, shown: str) -> None:
    assert redact_text(text) == shown


@pytest.mark.parametrize("around", ["'{}'", '"{}"', "({})", "[{}]", "<{}>", "{}: no answer", "at {}, then", "x={}"])
@given(USERS.filter(lambda user: not set("/?#@:") & set(user)), IN_TEXT)
def test_no_password_in_a_text_is_shown(around: str, user: str, password: str) -> None:
    shown = redact_text(around.format(f"https://{user}:K{password}@host/a"))
    assert not shows(shown.replace("no answer", "")), shown


@pytest.mark.parametrize(
    ("url", "user"),
    [("https://host/a", ""), ("https://u:p/w@host/a", "u:p/w"), ("zip://a::https://u:p@host/a", "u:p")],
)
def test_user_of(url: str, user: str) -> None:
    assert user_of(url) == user


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (7, "expected a string, got int"),
        ("http://${env:HOST}/v1", "a reference such as ${env:NAME} is not replaced there"),
        ("", "does not start with http:// or https://"),
        ("host:8000", "does not start with http:// or https://. Write"),
        ("ftp://me:SECRET@host", "does not start with http:// or https:// (ftp://host)"),
        ("https://", "the host is missing"),
        ("https://me:SECRET@", "the host is missing"),
        ("https://[::1/SECRET", "the host is missing or cannot be parsed"),
        ("https://me:SECRET@host:99999/v1", "the port is not a number from 1 to 65535"),
        ("https://me:SECRET@host:0/v1", "the port is not a number from 1 to 65535"),
        ("https://me:SECRET", "the port is not a number from 1 to 65535 (https://…)"),
        ("https://me:SECRET@host:8o/v1", "the port is not a number from 1 to 65535"),
        ("https://me:SECRET/x@host/v1", "an unescaped '/', '?' or '#' (https://host/v1). Write %2F"),
        ("https://me:SECRET@x@host/v1", "more than one '@' (https://host/v1). Write %40"),
        ("https://me:SEC RET@host/v1", "spaces or control characters (https://host/v1)"),
        ("https://ho st/v1?key=SECRET", "spaces or control characters (https://…)"),
        ("https://me:SECRET@ho<st/v1", "the host contains invalid characters (https://…)"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_showing_it(url: object, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_endpoint(url, "model 'm': base_url", "http://localhost:8000/v1")
    error = raised.value
    assert str(error).startswith("model 'm': base_url cannot be used: ")
    assert problem in str(error)
    assert str(error).endswith(", as in http://localhost:8000/v1.")
    assert error.__cause__ is None
    assert error.__context__ is None
    shown = "".join(traceback.format_exception_only(error))
    assert "SEC" not in shown and "RET" not in shown


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8000/v1",
        "HTTPS://me:pw@host",
        "http://[::1]:8000",
        "https://bücher.example/a b".replace(" ", "%20"),
        "https://server.example.org/@scope/name/mcp",
        "http://${env:HOST}:${env:PORT}/${env:PATH}",
        "https://${env:ME}:${file:/run/pw}@host",
    ],
)
def test_an_address_that_can_be_used(url: str) -> None:
    assert check_endpoint(url, "x", "y", references=True).hostname


def test_credentials_can_be_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^x cannot be used: the address contains a user or a password \(https://host\)"
    ):
        check_endpoint("https://me:SECRET@host", "x", "y", credentials=False)
