"""The DAG `verify` by `airflow dags test`, by a command of one's own and where something is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.airflow.conftest import QUICK, ROOT, Deployment

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module", autouse=True)
def four_sessions(deployment: Deployment) -> None:
    deployment.sessionizer("run")


def test_verify_by_spark_submit(deployment: Deployment) -> None:
    cache = subprocess.run(
        [sys.executable, "-c", "from sessionizer.jobs.spark import cache_folder; print(cache_folder())"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    jars = ",".join(str(jar) for jar in sorted((Path(cache.stdout.strip()) / "jars").glob("*.jar")))
    submit = Path(sys.executable).with_name("spark-submit")
    command = (
        f"env PYTHONPATH={ROOT} PYSPARK_PYTHON={sys.executable} {submit} --master local[1] --driver-memory 1g "
        f"--driver-java-options '{QUICK}' --conf spark.ui.enabled=false --jars {jars} "
        f"{ROOT / 'sessionizer' / 'jobs' / 'cli.py'}"
    )
    deployment.environment["SESSIONIZER_COMMAND"], local = command, deployment.environment["SESSIONIZER_COMMAND"]
    try:
        done = deployment.test_dag("verify", sample="100%")
    finally:
        deployment.environment["SESSIONIZER_COMMAND"] = local
    assert done["state"] == "success", done["said"]
    verdict = done["xcoms"]["verify"]
    assert (verdict["clean"], verdict["sessions"], verdict["events"]) == (True, 4, 5)


def test_verify_fails_at_once_and_says_what_is_wrong(deployment: Deployment) -> None:
    sessions = DeltaTable(deployment.folder / "lake" / "sessions")
    one = "\"user\" = 'ann' AND event_count = 2"
    sessions.update(predicate=one, new_values={"total": 99.0})
    deployment.environment["SESSIONIZER_RETRIES"] = "3"
    try:
        done = deployment.test_dag("verify", sample="100%")
    finally:
        deployment.environment["SESSIONIZER_RETRIES"] = "0"
        sessions.update(predicate=one, new_values={"total": 3.0})
    assert (done["state"], done["tasks"]) == ("failed", {"verify": ["failed"]})
    assert "sessionizer verify ended with exit code 1: 1 of 4 sessions differ from their events" in done["said"]
    (wrong,) = done["xcoms"]["verify.failed"]["differences"]
    assert "total" in json.dumps(wrong)
