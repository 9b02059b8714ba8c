"""An S3 server of this machine: moto, in a process of its own, which keeps what it is given in memory."""

import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3

from tests.processes import wait_until

HOST = "127.0.0.1"
REGION = "eu-central-1"
BUCKET = "lake"
SECRET = "hush-do-not-tell"
PACKAGE = "org.apache.hadoop:hadoop-aws:3.5.0"  # of the Hadoop that PySpark brings
VARIABLES = (
    "AWS_ENDPOINT_URL",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_REGION",
    "AWS_EC2_METADATA_DISABLED",
)


class Server:
    """A server with one bucket, and what its clients need to know."""

    def __init__(self, url: str) -> None:
        self.url = url
        values = (url, "AKIALAKE", SECRET, REGION, "true")  # the last: no client asks the network who it is
        self.environment = dict(zip(VARIABLES, values, strict=True))

    @property
    def client(self) -> Any:
        """Amazon's own."""
        key, secret = self.environment["AWS_ACCESS_KEY_ID"], self.environment["AWS_SECRET_ACCESS_KEY"]
        return boto3.client(
            "s3", endpoint_url=self.url, region_name=REGION, aws_access_key_id=key, aws_secret_access_key=secret
        )

    def make(self, bucket: str) -> None:
        self.client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})

    def put(self, folder: Path, below: str) -> None:
        """The files of a folder, but locks, below this name in the bucket."""
        client = self.client
        for file in sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.endswith((".lock", ".crc"))):
            client.put_object(Bucket=BUCKET, Key=f"{below}/{file.relative_to(folder)}", Body=file.read_bytes())

    def keys(self, below: str = "") -> set[str]:
        """The names of all objects there."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=below)
        return {found["Key"] for page in pages for found in page.get("Contents", [])}

    @contextmanager
    def asking_who(self) -> Iterator[None]:
        """Inside it the server knows nobody: each request is refused, as it is with keys that were taken back."""
        self._asks("0")
        try:
            yield
        finally:
            self._asks("inf")

    def _asks(self, after: str) -> None:
        url = f"{self.url}/moto-api/reset-auth"
        with urllib.request.urlopen(
            urllib.request.Request(url, after.encode(), {"Content-Type": "text/plain"})
        ) as answer:
            assert answer.status == 200


@contextmanager
def serving(log: Path) -> Iterator[Server]:
    """A server with an empty bucket, for as long as it is needed."""
    port = _free_port()
    with log.open("w") as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)], stdout=told, stderr=told, env=os.environ
        )
        try:
            wait_until(f"the server does not listen: {log}", lambda: _listens(port))
            server = Server(f"http://{HOST}:{port}")
            server.make(BUCKET)
            yield server
        finally:
            process.terminate()
            process.wait(30)


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind((HOST, 0))
        return int(asked.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex((HOST, port)) == 0
