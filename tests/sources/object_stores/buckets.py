"""An S3 interface as the tests see it: where it is, who may write, and how to put something there."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Endpoint:
    """``url`` with the credentials of one who may write there."""

    url: str
    region: str
    key: str
    secret: str

    def at(self, url: str) -> Endpoint:
        """The same behind another address, such as a proxy's."""
        return replace(self, url=url)

    def options(self, **changed: Any) -> dict[str, Any]:
        """What ``skills.source.options`` has for "s3"; None takes a word out."""
        words = {"endpoint": self.url, "region": self.region, "key": self.key, "secret": self.secret, **changed}
        return {word: value for word, value in words.items() if value is not None}

    @functools.cache  # noqa: B019 - there are a few endpoints in a test run, and a client takes half a second
    def client(self) -> Any:
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=self.region,
            aws_access_key_id=self.key,
            aws_secret_access_key=self.secret,
            config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
        )

    def make_bucket(self, name: str) -> None:
        where = {} if self.region == "us-east-1" else {"LocationConstraint": self.region}
        self.client().create_bucket(Bucket=name, **({"CreateBucketConfiguration": where} if where else {}))

    def put(self, bucket: str, key: str, data: bytes) -> None:
        self.client().put_object(Bucket=bucket, Key=key, Body=data)

    def remove(self, bucket: str, key: str) -> None:
        self.client().delete_object(Bucket=bucket, Key=key)

    def put_in_parts(self, bucket: str, key: str, *parts: bytes) -> None:
        """A multipart upload: its ETag is not the digest of its content."""
        client = self.client()
        upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
        done = []
        for number, data in enumerate(parts, 1):
            part = client.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=data)
            done.append({"PartNumber": number, "ETag": part["ETag"]})
        client.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": done})
