"""What reads tables in an object store without Spark; and what it says of a store that it cannot use."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.status import status_without_spark
from tests.s3.server import BUCKET, SECRET, Server
from tests.shell import Shell
from tests.warehouse import FIRST_EVENTS, MORE_EVENTS, Warehouse

TABLES = ("events", "sessions", "rejected_events", "runs")
NOWHERE = "http://127.0.0.1:9"  # where nobody listens
SOON = 20  # seconds, on a busy machine


@pytest.fixture(scope="module")
def made(spark: SparkSession, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A warehouse on the disk, and a copy of it in the store, below `copied`."""
    made = Warehouse(spark, tmp_path_factory.mktemp("lake"), time={"allowed_lateness": "1h"})
    made.append(FIRST_EVENTS)
    made.init()
    made.run()
    made.append(MORE_EVENTS)
    made.run()
    for name in TABLES:
        server.put(made.folder / name, f"copied/{name}")
    return made


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("sessionizer.jobs.spark.spark_session", started)


Files = Callable[..., Path]


@pytest.fixture
def config(tmp_path: Path) -> Files:
    """Writes the config of the copy, with other sections in place of its own."""

    def write(bucket: str = BUCKET, scheme: str = "s3a", **sections: Any) -> Path:
        place = f"{scheme}://{bucket}/copied"
        fields = {
            "source": {"table": f"{place}/events", "key": ["user"], "event_time": "at"},
            "sessions": {"table": f"{place}/sessions"},
            "session": {"gap": "30m"},
            "time": {"allowed_lateness": "1h"},
            "aggregates": [{"name": "total", "fn": "sum", "of": "n"}],
        }
        file = tmp_path / "sessionizer.yaml"
        file.write_text(yaml.safe_dump(fields | sections))
        return file

    return write


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    return Shell(capsys, monkeypatch, tmp_path)


@pytest.mark.broad
def test_readers_of_tables_in_a_store_start_no_spark(
    made: Warehouse, config: Files, shell: Shell, no_spark: None
) -> None:
    on_disk = status_without_spark(made.config)
    for scheme in ("s3a", "s3"):
        config(scheme=scheme)
        assert shell.json("check-config")["looked_at_tables"]
        status = shell.json("status")
        assert [status[name] for name in ("sessions", "events")] == [on_disk[name] for name in ("sessions", "events")]
        assert {row["table"]: row["rows"] for row in shell.json("show")["tables"]}["events"] == 12
        totals = shell.json("sql", "--engine", "duckdb", "SELECT sum(event_count) AS n FROM sessions")
        assert totals == [{"n": 9}]  # one is late, one has no key, one has no time
        assert {row["user"] for row in shell.json("sessions", "--key", "bob")} == {"bob"}
        assert shell.json("report", "-o", "page.html")
        code, out, err = shell("run")
        assert (code, err) == (0, ""), out


def refused(shell: Shell, *command: str) -> str:
    """What a command says of the store, soon and in one sentence; nothing of the secret."""
    begun = time.monotonic()
    code, out, err = shell(*command)
    assert (code, out, "Traceback" in err, SECRET in err) == (3, "", False, False), err
    assert len(err.strip().split(". ")) <= 2, err
    assert time.monotonic() - begun < SOON
    return " ".join(err.split())


COMMANDS = (("status",), ("run",), ("init",), ("show",))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_bucket_that_is_not_there(
    server: Server, config: Files, shell: Shell, no_spark: None, command: tuple[str, ...]
) -> None:
    config(bucket="nobodys")
    assert "the bucket does not exist. make it" in refused(shell, *command).lower()


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_store_that_is_not_reached(
    server: Server,
    config: Files,
    shell: Shell,
    no_spark: None,
    command: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", NOWHERE)
    config()
    assert "the object store was not reached" in refused(shell, *command)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_credentials_that_were_taken_back(
    server: Server, config: Files, shell: Shell, no_spark: None, command: tuple[str, ...]
) -> None:
    config()
    with server.asking_who():
        assert "does not know these credentials" in refused(shell, *command)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_credentials(
    server: Server,
    config: Files,
    shell: Shell,
    no_spark: None,
    command: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", NOWHERE)  # what a machine of Amazon's would tell
    config()
    assert "there are no credentials for the object store" in refused(shell, *command)


@pytest.mark.slow
def test_what_the_config_says_counts_before_the_variables(
    made: Warehouse, config: Files, shell: Shell, no_spark: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {
        name: os.environ[name] for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    }
    monkeypatch.setenv("AWS_ENDPOINT_URL", NOWHERE)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    names = ("endpoint", "access.key", "secret.key")
    spark = {f"spark.hadoop.fs.s3a.{name}": v for name, v in zip(names, environment.values(), strict=True)}
    config(spark=spark)
    assert shell.json("show")
    config(spark=spark | {"spark.hadoop.fs.s3a.aws.credentials.provider": "com.example.Ours"})
    assert not shell.json("check-config")["looked_at_tables"]  # which is Spark's own way


@pytest.mark.slow
def test_files_that_are_not_in_the_store(server: Server, config: Files, shell: Shell, no_spark: None) -> None:
    config()
    for place in ("s3://lake/none.csv", "s3a://lake/none/", "s3://nobodys/clicks.csv", "gs://lake/clicks.csv"):
        code, out, err = shell("ingest", place)
        assert (code, out) == (2, ""), err
        assert place in " ".join(err.split())
