"""A real Spark Connect server with Delta, of PySpark's own jars, for as long as it is needed."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from sessionizer.jobs.spark import cache_folder
from tests.few_rows import FOR_FEW_ROWS

WITH_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
PATIENCE = 120


@contextmanager
def connect_server(
    folder: Path, settings: Mapping[str, str] = WITH_DELTA, tuning: Mapping[str, str] = FOR_FEW_ROWS
) -> Iterator[str]:
    """Its URL. Delta's jars are those that some session has fetched before."""
    port, home, log = free_port(), Path(pyspark.__file__).parent, folder / "server.log"
    jars = sorted(map(str, (cache_folder() / "jars").glob("*.jar")))
    assert jars, "make a local session first, which fetches Delta"
    told = {
        "spark.databricks.delta.snapshotPartitions": "2",
        **tuning,
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.port": str(port),
        **settings,
    }
    with log.open("w") as out:
        process = subprocess.Popen(
            [
                *(str(home / "bin" / "spark-submit"), "--class", SERVER, "--jars", ",".join(jars)),
                *("--master", "local[2]", "--driver-memory", "3g"),
                *[part for name, value in told.items() for part in ("--conf", f"{name}={value}")],
                "spark-internal",
            ],
            env=os.environ | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "TZ": "UTC"},
            cwd=folder,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            deadline = time.monotonic() + PATIENCE
            while not _listens(port):
                is_up = process.poll() is None and time.monotonic() < deadline
                assert is_up, log.read_text()[-3000:]
                time.sleep(0.2)
            yield f"sc://localhost:{port}"
        finally:
            process.terminate()
            process.wait(30)


def free_port() -> int:
    """A port that nobody uses."""
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0
