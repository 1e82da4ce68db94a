"""Rows 18 to 25: sockets of all kinds, to listeners of the suite's own."""

from __future__ import annotations

import errno
import socket

from tests.execution.escape.probes.kit import Target, attempt

ALL = "NLPH"
_WITHIN_SECONDS = 3
_MPTCP = 262
_SCTP = 132
_MSG_FASTOPEN = 0x20000000
_TCP_FASTOPEN_CONNECT = 30


def _connect(family: int, kind: int, address: object, protocol: int = 0) -> object:
    with socket.socket(family, kind, protocol) as client:
        client.settimeout(_WITHIN_SECONDS)
        client.connect(address)  # type: ignore[arg-type]
        return client.send(b"hello")


@attempt(18, ALL, proof="heard:tcp4")
def tcp_to_127_0_0_1(target: Target) -> object:
    return _connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", target.ports["tcp4"]))


@attempt(18, ALL, needs=("ipv6",), proof="heard:tcp6")
def tcp_to_localhost_of_ipv6(target: Target) -> object:
    return _connect(socket.AF_INET6, socket.SOCK_STREAM, ("::1", target.ports["tcp6"]))


@attempt(18, ALL, needs=("ipv6",), proof="heard:mapped")
def tcp_to_a_mapped_address(target: Target) -> object:
    return _connect(socket.AF_INET6, socket.SOCK_STREAM, ("::ffff:127.0.0.1", target.ports["mapped"]))


@attempt(18, ALL, needs=("address",), proof="heard:own")
def tcp_to_the_address_of_the_pod(target: Target) -> object:
    return _connect(socket.AF_INET, socket.SOCK_STREAM, (target.address, target.ports["own"]))


@attempt(19, ALL, needs=("mptcp",), proof="heard:mptcp")
def multipath_tcp(target: Target) -> object:
    return _connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", target.ports["mptcp"]), _MPTCP)


@attempt(19, ALL, needs=("sctp",))
def sctp(target: Target) -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, _SCTP).fileno()


@attempt(19, ALL, needs=("smc",))
def smc(target: Target) -> object:
    return socket.socket(43, socket.SOCK_STREAM, 0).fileno()


@attempt(20, ALL, proof="heard:fast")
def send_while_connecting(target: Target) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
        client.settimeout(_WITHIN_SECONDS)
        return client.sendto(b"hello", _MSG_FASTOPEN, ("127.0.0.1", target.ports["fast"]))


@attempt(20, ALL, proof="heard:lazy")
def connect_while_sending(target: Target) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
        client.settimeout(_WITHIN_SECONDS)
        client.setsockopt(socket.IPPROTO_TCP, _TCP_FASTOPEN_CONNECT, 1)
        client.connect(("127.0.0.1", target.ports["lazy"]))
        return client.send(b"hello")


@attempt(21, ALL, proof="heard:udp")
def udp(target: Target) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        return client.sendto(b"hello", ("127.0.0.1", target.ports["udp"]))


@attempt(21, ALL, proof="heard:dns")
def ask_a_name_server(target: Target) -> object:
    query = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\6canary\7example\0\0\1\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", target.ports["dns"]))
        return client.send(query)


@attempt(21, ALL, needs=("ping",))
def ping_socket(target: Target) -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP).fileno()


@attempt(21, ALL, needs=("root",))
def raw_socket(target: Target) -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).fileno()


@attempt(21, ALL, needs=("root",))
def packet_socket(target: Target) -> object:
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW).fileno()


@attempt(22, ALL, proof="heard:unix")
def unix_socket_outside(target: Target) -> object:
    return _connect(socket.AF_UNIX, socket.SOCK_STREAM, target.paths["unix"])


@attempt(22, ALL, proof="heard:docker")
def socket_of_a_container_engine(target: Target) -> object:
    return _connect(socket.AF_UNIX, socket.SOCK_STREAM, target.paths["docker"])


@attempt(22, ALL, proof="heard:datagram")
def unix_datagram_outside(target: Target) -> object:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        return client.sendto(b"hello", target.paths["datagram"])


@attempt(22, ALL, proof="heard:datagram2")
def unix_datagram_from_a_pair(target: Target) -> object:
    # Pairs are allowed, and a datagram socket of a pair might be used to send elsewhere.
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        return one.sendto(b"hello", target.paths["datagram2"])
    except OSError as error:
        if error.errno != errno.EISCONN:
            raise
        one.connect(target.paths["datagram2"])
        return one.send(b"hello")


@attempt(23, ALL, proof="heard:abstract")
def abstract_socket(target: Target) -> object:
    return _connect(socket.AF_UNIX, socket.SOCK_STREAM, target.paths["abstract"])


@attempt(23, ALL, proof="heard:abstract2")
def abstract_datagram_from_a_pair(target: Target) -> object:
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.connect(target.paths["abstract2"])
    return one.send(b"hello")


@attempt(24, ALL, needs=("vsock",))
def vsock(target: Target) -> object:
    return socket.socket(40, socket.SOCK_STREAM, 0).fileno()


@attempt(24, ALL)
def netlink(target: Target) -> object:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as client:
        client.bind((0, 0))
        return True


@attempt(24, ALL, needs=("alg",))
def alg(target: Target) -> object:
    return socket.socket(38, socket.SOCK_SEQPACKET, 0).fileno()


@attempt(25, ALL)
def bind_and_listen(target: Target) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        return server.getsockname()


@attempt(25, ALL)
def listen_without_bind(target: Target) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.listen()
        return server.getsockname()


@attempt(25, ALL)
def bind_udp(target: Target) -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()


@attempt(25, ALL)
def bind_a_path(target: Target) -> object:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind("socket-of-a-command")
        server.listen()
        return True


@attempt(25, ALL)
def bind_an_abstract_name(target: Target) -> object:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind("\0escape-" + target.mark)
        server.listen()
        return True
