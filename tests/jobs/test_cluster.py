"""The command line on a Spark standalone cluster: submitted with `--py-files`, and run from that archive."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from jobs.spark import cache_folder

ROOT = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
CONFIG = """
source: {table: warehouse/events, key: [user]}
sessions: {table: warehouse/sessions}
session: {max_duration: 1h}
aggregates: [{name: total, fn: sum, of: amount}]
"""
CLICKS = "user,event_time,amount\nann,2026-01-01T10:00:00Z,1\nann,2026-01-01T10:20:00Z,2\nbob,2026-01-03T10:00:00Z,4\n"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@contextmanager
def daemon(log: Path, *arguments: str) -> Iterator[None]:
    """A process of Spark's; it ends with the block."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            [SPARK / "bin" / "spark-class", *arguments],
            stdout=said,
            stderr=subprocess.STDOUT,
            env=os.environ | {"SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=log.parent,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def said(log: Path, pattern: str) -> str:
    """What the pattern finds in a log, as soon as it is there."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if found := re.search(pattern, log.read_text(encoding="utf-8", errors="replace")):
            return found.group(1)
        time.sleep(0.2)
    raise AssertionError(f"{pattern} is not in {log.read_text(encoding='utf-8', errors='replace')}")


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a master that has a worker of one core."""
    logs = tmp_path_factory.mktemp("cluster")
    with ExitStack() as running:
        web = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        running.enter_context(daemon(logs / "master.log", f"{DEPLOY}.master.Master", *web))
        url = said(logs / "master.log", r"Starting Spark master at (spark://\S+)")
        small = ("--cores", "1", "--memory", "1g", "--work-dir", str(logs / "work"))
        running.enter_context(daemon(logs / "worker.log", f"{DEPLOY}.worker.Worker", *web, *small, url))
        said(logs / "worker.log", r"(Successfully registered with master)")
        yield url


@pytest.mark.usefixtures("spark")  # it has fetched Delta's jars
def test_a_job_is_submitted_with_its_packages_in_an_archive(master: str, tmp_path: Path) -> None:
    sources, packages = tmp_path / "sources", ("jobs", "lib", "tables")
    for name in packages:
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    (sources / "lib" / "__init__.py").write_text('__version__ = "of the archive"\n')
    shutil.make_archive(str(tmp_path / "sessionizer"), "zip", sources)
    shutil.move(sources / "jobs" / "cli.py", tmp_path / "cli.py")
    shutil.rmtree(sources)
    (tmp_path / "sessionizer.yaml").write_text(CONFIG)
    (tmp_path / "clicks.csv").write_text(CLICKS)
    hidden = ("PYTHON", "SESSIONIZER", "PYSPARK", "SPARK")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}

    def submit(*arguments: str) -> str:
        settings = ("spark.driver.host=127.0.0.1", "spark.ui.enabled=false", "spark.sql.shuffle.partitions=1")
        done = subprocess.run(
            [
                *(str(SPARK / "bin" / "spark-submit"), "--master", master),
                *("--driver-memory", "1g", "--executor-memory", "512m"),
                *(word for setting in settings for word in ("--conf", setting)),
                *("--jars", ",".join(str(jar) for jar in sorted((cache_folder() / "jars").glob("*.jar")))),
                *("--py-files", "sessionizer.zip", "cli.py", *arguments),
            ],
            cwd=tmp_path,
            env=clean | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    submit("ingest", "clicks.csv", "--format", "csv", "--schema", "amount double")
    submit("init")
    (run,) = json.loads(submit("run", "--json"))["runs"]
    assert (run["accepted"], run["sessions_created"], run["sessions_finalised"]) == (3, 2, 1)
    query = "SELECT user, event_count, total, product_version FROM final_sessions JOIN runs USING (run_id)"
    assert submit("sql", "--csv", query) == "user,event_count,total,product_version\nann,2,3.0,of the archive\n"
