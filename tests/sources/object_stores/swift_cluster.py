"""OpenStack Swift with its S3 interface: a real object store that checks keys and signatures, in four processes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.kit.ports import free_ports
from tests.sources.object_stores.buckets import Endpoint
from tests.sources.object_stores.servers import Server, running

_RUNNER = str(Path(__file__).with_name("swift_server.py"))
_MAIN = """
[swift-hash]
swift_hash_path_suffix = tests
swift_hash_path_prefix = tests

[storage-policy:0]
name = one
default = yes
"""
_STORAGE = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
swift_dir = {folder}
devices = {folder}
mount_check = false
disable_fallocate = true
fallocate_reserve = 0

[pipeline:main]
pipeline = {kind}-server

[app:{kind}-server]
use = egg:swift#{kind}
"""
_PROXY = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
swift_dir = {folder}

[pipeline:main]
pipeline = catch_errors proxy-logging cache s3api tempauth slo versioned_writes symlink proxy-logging proxy-server

[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
allow_account_management = true

[filter:catch_errors]
use = egg:swift#catch_errors

[filter:proxy-logging]
use = egg:swift#proxy_logging

[filter:cache]
use = egg:swift#memcache
# There is none: a port that nothing listens on.
memcache_servers = 127.0.0.1:1

[filter:s3api]
use = egg:swift#s3api
location = {region}
s3_acl = true
min_segment_size = 1

[filter:tempauth]
use = egg:swift#tempauth
user_skills_writer = {secret} .admin

[filter:slo]
use = egg:swift#slo

[filter:symlink]
use = egg:swift#symlink

[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_object_versioning = true
"""
_REGION = "eu-tests-1"
_SECRET = "swift-secret-of-the-tests"


@contextlib.contextmanager
def swift_cluster(folder: Path) -> Iterator[Endpoint]:
    """The four servers, with their data below ``folder``; stopped in the end."""
    ports = dict(zip(("account", "container", "object", "proxy"), free_ports(4), strict=True))
    (folder / "disk").mkdir(parents=True)
    (folder / "swift.conf").write_text(_MAIN)
    for kind, port in ports.items():
        form = _PROXY if kind == "proxy" else _STORAGE
        text = form.format(kind=kind, port=port, folder=folder, region=_REGION, secret=_SECRET)
        (folder / f"{kind}.conf").write_text(text)
    rings = [str(ports[kind]) for kind in ("account", "container", "object")]
    subprocess.run([sys.executable, _RUNNER, str(folder), "rings", *rings], check=True, capture_output=True)
    servers = [
        Server([sys.executable, _RUNNER, str(folder), kind], port, folder / f"{kind}.log")
        for kind, port in ports.items()
    ]
    with running(*servers):
        yield Endpoint(servers[-1].url, _REGION, "skills:writer", _SECRET)
