"""The hosts and protocols that URLs of sources may lead to (format rule S09)."""

from __future__ import annotations

import pytest

from flink_skills.errors import ConfigError, SourceError
from flink_skills.options import SkillConfig
from flink_skills.sources import AddressPolicy, AllowedPrefixes, host_of, is_reserved


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Example.ORG./x", "example.org"),
        ("https://u:p@example.org:8443", "example.org"),
        ("https://b\u00fccher.example/x", "xn--bcher-kva.example"),
        ("https://B\u00dcCHER.example/x", "xn--bcher-kva.example"),
        ("https://\uff11\uff12\uff17.0.0.1/", "127.0.0.1"),
        ("https://127\u30020\u30020\u30021/", "127.0.0.1"),
        ("https://[::1]:80/", "::1"),
        ("https://[FE80::1%25eth0]/", "fe80::1"),
    ],
)
def test_hosts_have_one_spelling(url: str, host: str) -> None:
    assert host_of(url) == host


@pytest.mark.parametrize(
    "host",
    [
        "",
        ":80",
        "exa mple.org",
        "%31%32%37.0.0.1",
        "a\\b",
        "a:b",
        "a:99999",
        "[::1",
        "[x]",
        "[v1.x]",
        "..",
        "-",
        "\u2100.org",
    ],
)
def test_what_cannot_be_a_host(host: str) -> None:
    with pytest.raises(ConfigError, match="skill source https://"):
        host_of(f"https://{host}/x")


RESERVED = [
    *("127.0.0.1", "127.1", "0x7f000001", "0x7f.1", "0177.0.0.1", "2130706433", "0", "0.0.0.0"),
    *("10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.0.8", "198.18.0.1"),
    *("224.0.0.1", "255.255.255.255", "240.0.0.1"),
    *("::1", "::", "[::1]", "fe80::1%eth0", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "2001:db8::1"),
    *("::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1", "::127.0.0.1", "2002:7f00:1::", "2002:a00:1::1"),
    *("64:ff9b::10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2001:0:1::"),
    # IPv4-translated, 6to4, Teredo and ISATAP, with a public and with a private address in them.
    *("::ffff:0:10.0.0.1", "::ffff:0:7f00:1", "2002:808:808::", "2001:0:808:808::f7f7:f7f7", "2001::1"),
    *("2606:4700::5efe:10.0.0.1", "2606:4700::200:5efe:a9fe:a9fe", "2606:4700:0:1:0:5efe:7f00:1"),
    # Local translation, site local, discard-only, dummy, segment routing, not allocated.
    *("64:ff9b:1::8.8.8.8", "fec0::1", "feff::1", "100::1", "100:0:0:1::1", "5f00::1", "4000::1", "200::1"),
    # Benchmarks, ORCHID, drones, documentation, relays of 6to4, machines of Azure, providers.
    *("2001:2::1", "2001:10::1", "2001:20::1", "2001:30::1", "3fff::1", "3fff:fff::1", "192.88.99.1", "198.19.255.255"),
    *("192.0.2.1", "198.51.100.1", "203.0.113.1", "192.0.0.9", "168.63.129.16", "100.127.255.255", "0.1.2.3"),
]
GLOBAL = [
    *("8.8.8.8", "1.1.1.1", "0x08080808", "100.63.255.255", "100.128.0.1", "192.0.1.1", "198.17.255.255", "198.20.0.1"),
    *("2606:4700::1111", "::ffff:8.8.8.8", "::ffff:0:8.8.8.8", "64:ff9b::808:808", "2606:4700::5efe:8.8.8.8"),
    *("2001:200::1", "2001:4860:4860::8888", "2003::1", "2a00::1", "3ffe:ffff::1", "192.31.196.1", "2620:4f:8000::1"),
]


@pytest.mark.parametrize("address", RESERVED)
def test_addresses_that_are_not_of_the_internet(address: str) -> None:
    assert is_reserved(address)
    with pytest.raises(SourceError, match=r"skills\.source\.allow-private: true"):
        AddressPolicy(SkillConfig()).check_addresses(["8.8.8.8", address], "x")
    AddressPolicy(SkillConfig({"skills.source.allow-private": True})).check_addresses([address], "x")


@pytest.mark.parametrize("address", [*GLOBAL, "example.org", "a.b"])
def test_addresses_of_the_internet(address: str) -> None:
    assert not is_reserved(address)


def policy(**options: object) -> AddressPolicy:
    return AddressPolicy(SkillConfig({f"skills.source.{name.replace('_', '-')}": options[name] for name in options}))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://example.org/s.zip", "skills.source.allow-http: true"),
        ("HTTP://example.org/s.zip", "skills.source.allow-http: true"),
        ("https://127.0.0.1/s.zip", "skills.source.allow-private: true"),
        ("https://127\u30020\u30020\u30021/s.zip", "skills.source.allow-private: true"),
        ("https://localhost/s.zip", "skills.source.allow-private: true"),
        ("https://api.localhost./s.zip", "skills.source.allow-private: true"),
        ("https://[::ffff:127.0.0.1]/s.zip", "skills.source.allow-private: true"),
        ("https://u:p@2130706433/s.zip", "skills.source.allow-private: true"),
        ("https:///s.zip", "no host"),
    ],
)
def test_what_is_refused_by_default_names_the_option(url: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policy().check_url(url)
    assert said in str(caught.value)


def test_what_the_options_allow() -> None:
    policy(allow_http=True, allow_private=True).check_url("http://localhost/x")
    policy().check_url("s3://10.0.0.1/x")  # http(s) only
    policy().check_url("https://${env:HOST}/x")  # known later
    with pytest.raises(ConfigError, match="allow-http"):
        policy().check_url("http://${env:HOST}/x")


@pytest.mark.parametrize(
    ("hosts", "url", "allowed"),
    [
        ("skills.example.org", "https://skills.example.org/x", True),
        ("Skills.Example.org.", "https://SKILLS.example.ORG.:8443/x", True),
        ("skills.example.org", "https://example.org/x", False),
        ("skills.example.org", "https://askills.example.org/x", False),
        ("skills.example.org", "https://skills.example.org.evil.example/x", False),
        ("skills.example.org", "https://skills.example.org@evil.example/x", False),
        ("*.example.org", "https://a.b.example.org/x", True),
        ("*.example.org", "https://example.org/x", False),
        ("*.example.org", "https://evilexample.org/x", False),
        ("a.example;b\u00fccher.example", "https://xn--bcher-kva.example/x", True),
        ("2606:4700::1111", "https://[2606:4700:0::1111]/x", True),
        ("[2606:4700:0::1111]", "https://[2606:4700::1111]/x", True),
    ],
)
def test_allowed_hosts(hosts: str, url: str, allowed: bool) -> None:
    checked = policy(allowed_hosts=hosts)
    if allowed:
        checked.check_url(url)
        return
    with pytest.raises(ConfigError, match=r"is not one of skills\.source\.allowed-hosts; add it there"):
        checked.check_url(url)


@pytest.mark.parametrize(
    "host", ["https://example.org", "*", "*.", "a b", "example.org:80", "ex*mple.org", "u:pw@host"]
)
def test_allowed_hosts_that_are_none(host: str) -> None:
    with pytest.raises(ConfigError, match=r"option skills\.source\.allowed-hosts: .* is not a valid host") as caught:
        policy(allowed_hosts=[host])
    assert "pw" not in str(caught.value)


def test_steps_to_other_hosts() -> None:
    policy().check_step("example.org", "https://example.org:8443/x")
    policy(allow_redirects=True).check_step("example.org", "https://cdn.example/x")
    policy(allowed_hosts="example.org;cdn.example").check_step("example.org", "https://cdn.example/x")
    for checked, url, said in (
        (policy(), "https://cdn.example/x?sig=s3cret", "add the host to skills.source.allowed-hosts or set skills.so"),
        (policy(allowed_hosts="example.org", allow_redirects=True), "https://cdn.example/x", "is not one of"),
        (policy(allow_redirects=True), "https://10.0.0.1/x", "allow-private"),
        (policy(allow_redirects=True), "http://example.org/x", "allow-http"),
    ):
        with pytest.raises(ConfigError, match=said.replace(".", r"\.")) as caught:
            checked.check_step("example.org", url)
        assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("prefix", "url"),
    [
        ("https://good.example/inbox/", "https://good.example/inbox/a.csv"),
        ("https://good.example/inbox", "https://GOOD.example.:443/inbox/x/a.csv?sig=1#f"),
        ("https://good.example", "https://good.example/a"),
        ("https://good.example/", "https://good.example/a//b"),
        ("https://good.example/a%20b/", "https://good.example/a%20b/c"),
        ("http://good.example:80/", "http://good.example/a"),
        ("https://good.example:8443/", "https://good.example:8443/a"),
        ("https://git.example/api/", "https://git.example/api/group%2Fproject/raw"),
        ("https://[2001:db8::1]/", "https://[2001:0db8:0::1]:443/a"),
        ("s3://bucket", "s3://bucket/key"),
        ("s3://bucket/in/", "s3a://bucket/in/a%20b"),
        ("gs://bucket/", "gcs://bucket/key"),
        ("abfss://box@account.dfs.core.windows.net/in", "abfss://box@Account.dfs.core.windows.net/in/a"),
        ("artifact://", "artifact://out/a.txt@0123456789abcdef"),
        ("artifact://out/", "artifact://out/a.txt"),
    ],
)
def test_what_is_under_a_prefix_is_allowed(prefix: str, url: str) -> None:
    AllowedPrefixes([prefix]).check(url)


@pytest.mark.parametrize(
    ("prefix", "url"),
    [
        ("https://good.example/", "https://good.example@evil.example/"),
        ("https://good.example/", "https://user:pw@good.example/a"),
        ("https://good.example/", "https://good.example.evil.example/a"),
        ("https://good.example/", "https://evil.example/https://good.example/"),
        ("https://good.example/", "https://evil.example\\@good.example/"),
        ("https://good.example/", "https://good.example:8443/a"),
        ("https://good.example/", "http://good.example/a"),
        ("https://good.example/", "https:good.example/a"),
        ("https://good.example/", "https://good.example\n.evil.example/a"),
        ("https://good.example/", "https://good.example:99999/a"),
        ("https://good.example/", "simplecache::https://good.example/a"),
        ("https://good.example/", "https://good.example/a::https://evil.example/"),
        ("https://good.example/", "https://${env:HOST}/a"),
        ("https://good.example/", f"https://good.example/{'a' * 5000}"),
        ("https://good.example/in/", "https://good.example/in2/a"),
        ("https://good.example/in/", "https://good.example/IN/a"),
        ("https://good.example/in/", "https://good.example//in/a"),
        ("https://good.example/in/", "https://good.example/in/../a"),
        ("https://good.example/in/", "https://good.example/in/%2e%2E/a"),
        ("https://good.example/in/", "https://good.example/in/%252e%252e/a"),
        ("https://good.example/in/", "https://good.example/in/x%2f..%2f..%2fa"),
        ("https://good.example/in/", "https://good.example/in/x%5c..%5ca"),
        ("https://good.example/in/", "https://good.example/in/..;x=1/a"),
        ("https://good.example/in/", "https://good.example/in%2f/a"),
        ("s3://bucket", "s3://bucket-evil/key"),
        ("s3://bucket/", "s3://Bucket/key"),
        ("s3://bucket/", "s3://user@bucket/key"),
        ("s3://bucket/", "s3:///bucket/key"),
        ("s3://bucket/in/", "s3://bucket/in/../key"),
        ("s3://bucket/in", "s3://bucket/inner"),
        ("artifact://out", "artifact://other/a"),
        ("artifact://", "file:///etc/passwd"),
    ],
)
def test_what_is_not_under_a_prefix_is_refused(prefix: str, url: str) -> None:
    assert not AllowedPrefixes([prefix]).allows(url)


@pytest.mark.parametrize(
    "prefix",
    [
        "https://",
        "s3://",
        "file:///tmp",
        "bucket/",
        "https://u:p@h/",
        "https://h/?a=1",
        "https://h/..",
        "https://h/a b",
    ],
)
def test_a_prefix_that_cannot_be_used(prefix: str) -> None:
    with pytest.raises(ConfigError, match=r"option skills\.files\.allowed"):
        AllowedPrefixes([prefix])


def test_the_error_names_the_option_and_a_prefix_and_no_secret() -> None:
    with pytest.raises(ConfigError) as caught:
        AllowedPrefixes(["s3://other"]).check("https://h.example/a.csv?X-Amz-Signature=SECRET")
    assert "skills.files.allowed; to allow it, add https://h.example/ or" in str(caught.value)
    with pytest.raises(ConfigError) as other:
        AllowedPrefixes([]).check("https://me:SECRET@h.example/a.csv")
    assert "SECRET" not in f"{caught.value} {other.value}"
