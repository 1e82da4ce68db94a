"""A bucket on loopback behind a proxy that counts what is fetched of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

from tests.sources.object_stores.buckets import Endpoint
from tests.sources.object_stores.faults import FaultyProxy, faulty_proxy

__all__ = ["SECRET", "CountedBucket", "counted_bucket"]

BUCKET = "skills"
SECRET = "pl4nted-s3-secret"


@dataclass
class CountedBucket:
    """``options`` is what ``skills.source.options`` must be to read it."""

    origin: Endpoint
    proxy: FaultyProxy

    @property
    def options(self) -> str:
        return json.dumps({"s3": self.origin.at(self.proxy.url).options()})

    def put(self, key: str, data: bytes) -> str:
        """Put an object there; its URL."""
        self.origin.put(BUCKET, key, data)
        return f"s3://{BUCKET}/{key}"

    def downloads(self, key: str) -> int:
        """How often the object was fetched."""
        path = f"/{BUCKET}/{key}"
        return sum(method == "GET" and asked.partition("?")[0] == path for method, asked in self.proxy.requests)


@contextlib.contextmanager
def counted_bucket() -> Iterator[CountedBucket]:
    """S3 as moto plays it: any key will do, and the secret is one that a test can look for."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = Endpoint(f"http://{host}:{port}", "us-east-1", "any-key", SECRET)
        endpoint.make_bucket(BUCKET)
        with faulty_proxy(endpoint.url) as proxy:
            yield CountedBucket(endpoint, proxy)
    finally:
        server.stop()
