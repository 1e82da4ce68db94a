"""One server of OpenStack Swift in a process of its own: ``swift_server.py FOLDER KIND``; or ``… FOLDER rings PORT…``.

Swift reads its main configuration from a fixed system path and wants to change to a user of its own: both are set to
the folder and the user of the tests here, before its server starts.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

_MODULES = {"proxy": "proxy", "account": "account", "container": "container", "object": "obj"}


def make_rings(folder: Path, ports: list[int]) -> None:
    """One device, one copy: where accounts, containers and objects are."""
    from swift.common.ring import RingBuilder

    for kind, port in zip(("account", "container", "object"), ports, strict=True):
        builder = RingBuilder(2, 1, 1)
        place = {"region": 1, "zone": 1, "weight": 1, "ip": "127.0.0.1", "port": port, "device": "disk"}
        builder.add_dev({**place, "replication_ip": "127.0.0.1", "replication_port": port})
        builder.rebalance()
        builder.get_ring().save(str(folder / f"{kind}.ring.gz"))


def serve(folder: Path, kind: str) -> None:
    from swift.common import utils, wsgi

    wsgi.drop_privileges = lambda user: None
    utils.SWIFT_CONF_FILE = str(folder / "swift.conf")
    server = importlib.import_module(f"swift.{_MODULES[kind]}.server")
    sys.argv = [f"swift-{kind}-server", str(folder / f"{kind}.conf")]
    sys.exit(server.main())


if __name__ == "__main__":
    if sys.argv[2] == "rings":
        make_rings(Path(sys.argv[1]), [int(port) for port in sys.argv[3:]])
    else:
        serve(Path(sys.argv[1]), sys.argv[2])
