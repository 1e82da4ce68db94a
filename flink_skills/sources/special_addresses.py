"""Addresses that are not public, by the special-purpose registries of IANA.

The list is here, because what ``ipaddress`` calls global differs between the versions of Python. IPv4:
https://www.iana.org/assignments/iana-ipv4-special-registry, IPv6:
https://www.iana.org/assignments/iana-ipv6-special-registry.
"""

from __future__ import annotations

import ipaddress

__all__ = ["is_public"]

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NOT_PUBLIC_4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private use
            "100.64.0.0/10",  # shared, of providers
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # what Azure serves its machines from
            "169.254.0.0/16",  # link local; metadata services of clouds
            "172.16.0.0/12",  # private use
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # relays of 6to4, deprecated
            "192.168.0.0/16",  # private use
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and limited broadcast
        ),
    )
)
# The block of the internet's hosts. Other blocks are loopback, unique local (fc00::/7), link local
# (fe80::/10), site local (fec0::/10), multicast (ff00::/8), discard-only (100::/64), segment routing (5f00::/16) and
# local translation (64:ff9b:1::/48).
_UNICAST_6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    map(
        ipaddress.IPv6Network,
        (
            "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID, identifiers of drones
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, deprecated
            "3fff::/20",  # documentation
        ),
    )
)
# Blocks that have an IPv4 address in their last 32 bits, and lead there: IPv4-compatible, IPv4-mapped,
# IPv4-translated, and the well-known prefix of translators.
_EMBEDDING_6 = tuple(map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
# ISATAP has one behind this interface identifier, in any network. The bit that says "globally unique" may be set.
_ISATAP, _ISATAP_MASK = 0x00005EFE, 0xFDFFFFFF


def is_public(address: _Address) -> bool:
    """Return True if the internet routes ``address``. An IPv4 address in an IPv6 address is judged as such.

    >>> is_public(ipaddress.ip_address("::ffff:0:10.0.0.1")), is_public(ipaddress.ip_address("64:ff9b::8.8.8.8"))
    (False, True)
    """
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in block for block in _NOT_PUBLIC_4)
    inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in block for block in _EMBEDDING_6):
        return is_public(inner)
    if address not in _UNICAST_6 or any(address in block for block in _NOT_PUBLIC_6):
        return False
    is_isatap = (int(address) >> 32) & _ISATAP_MASK == _ISATAP
    return is_public(inner) if is_isatap else True
