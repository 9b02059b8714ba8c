"""A real Spark cluster on this machine: a master and two workers of one core each, from the classes pyspark brings."""

import os
import socket
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import pyspark

from tests.processes import alive, wait_until

HOST = "127.0.0.1"
EXECUTOR = "CoarseGrainedExecutorBackend"
SPARK = Path(pyspark.__file__).parent
NAME = "org.apache.spark.deploy"


class Cluster(AbstractContextManager["Cluster"]):
    """Started and stopped by `with`."""

    def __init__(self, folder: Path) -> None:
        """folder: where the workers keep what their executors need, and everyone's log."""
        self.folder = folder
        self.url = f"spark://{HOST}:{free_port()}"
        self.log = (folder / "log").open("ab")
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Cluster":
        self._start("master.Master", "--host", HOST, "--port", self.url.rpartition(":")[2], "--webui-port", "0")
        for number in range(2):
            place = ("--work-dir", str(self.folder / f"worker-{number}"), "--webui-port", "0")
            self._start("worker.Worker", "--host", HOST, "--cores", "1", "--memory", "1g", *place, self.url)
        wait_until("the workers do not register", lambda: self._said().count("Registering worker") == 2)
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(60)
        self.log.close()

    @property
    def settings(self) -> dict[str, str]:
        """What a driver needs to work here, as in the section `spark` of a configuration."""
        return {
            "spark.master": self.url,
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.executor.memory": "1g",
            "spark.executor.cores": "1",
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.ui.enabled": "false",
        }

    def executors(self) -> list[int]:
        """Ids of the processes that work for drivers now."""
        workers = {process.pid for process in self.processes}
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and alive(int(folder.name)):
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in workers and EXECUTOR in (folder / "cmdline").read_text():
                    found.append(int(folder.name))
        return found

    def has_executors(self, but: list[int] | None = None) -> bool:
        """Whether two are there, none of which is one of these."""
        there = self.executors()
        return len(there) == 2 and not set(there) & set(but or [])

    def _start(self, name: str, *arguments: str) -> None:
        environment = os.environ | {"SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "256m"}
        command = [str(SPARK / "bin" / "spark-class"), f"{NAME}.{name}", *arguments]
        self.processes.append(subprocess.Popen(command, env=environment, stdout=self.log, stderr=self.log))

    def _said(self) -> str:
        return (self.folder / "log").read_text()


def free_port() -> int:
    """One that nobody listens at."""
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])
