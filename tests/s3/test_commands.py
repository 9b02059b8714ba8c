"""All commands upon tables in an object store, and a death amid them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sessionizer.jobs.config_file import load_config
from sessionizer.lib.config import Config
from tests.few_rows import FOR_FEW_ROWS
from tests.processes import Worker
from tests.s3.server import BUCKET, PACKAGE, SECRET, Server

SETTINGS = FOR_FEW_ROWS | {"spark.jars.packages": PACKAGE}
FIRST = "user,at,n\nann,2026-01-01 08:00:00,1\nann,2026-01-01 08:10:00,2\nbob,2026-01-01 10:50:00,3\n"
SECOND = "user,at,n\nann,2026-01-01 08:20:00,4\nbob,2026-01-01 12:00:00,5\ntorn\n"
THIRD = "user,at,n\ncat,2026-01-02 12:00:00,6\n"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def way(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server, and the variables that lead processes to it."""
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return server


class Lake:
    """Tables below one name in the bucket, and a process that does commands upon them."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        place = f"s3a://{BUCKET}/{name}"
        fields: dict[str, Any] = {
            "source": {"table": f"{place}/events", "key": ["user"], "event_time": "at"},
            "sessions": {"table": f"{place}/sessions"},
            "session": {"gap": "30m"},
            "time": {"allowed_lateness": "1d"},
            "aggregates": [{"name": "total", "fn": "sum", "of": "n"}],
            "sliding": {"table": f"{place}/windows", "time_difference": "10m", "grace": "2d"},
        }
        (folder / "sessionizer.yaml").write_text(yaml.safe_dump(fields))
        self.config: Config = load_config(folder / "sessionizer.yaml")
        self.worker = self.begun()

    def begun(self) -> Worker:
        return Worker(self.folder / "log", SETTINGS)

    def __call__(self, *arguments: str) -> str:
        """What a command prints."""
        code, out, err = self.worker.do("command", self.config, folder=str(self.folder), arguments=list(arguments))
        assert code == 0, (arguments, out, err)
        assert SECRET not in out + err
        return str(out)

    def file(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name

    def totals(self) -> list[list[Any]]:
        query = "SELECT user, event_count, total FROM sessions ORDER BY user, session_start"
        lines = self("sql", "--engine", "duckdb", "--csv", query).splitlines()
        return [line.split(",") for line in lines[1:]]

    def killed(self, job: str, nth: int, *, after: bool) -> None:
        """The job dies at this write, and its process with it; another takes its place."""
        self.worker.wait_ready().ask(job, self.config, (nth, after, []))
        assert self.worker.ended() == -9
        self.worker.kill()
        self.worker.close()
        self.worker = self.begun()


@pytest.fixture
def lake(way: Server, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    made = Lake(tmp_path, request.node.name)
    yield made
    made.worker.close()
    assert SECRET not in made.worker.log.read_text()


def test_a_life_in_a_store(way: Server, lake: Lake) -> None:
    typed = ("--schema", "n int")
    assert "3 events added" in lake("ingest", lake.file("first.csv", FIRST), *typed)
    lake("init")
    lake("run")
    lake("slide")
    assert lake.totals() == [["ann", "2", "3"], ["bob", "1", "3"]]
    # The second half comes from the store itself: a folder of files, one of them known already.
    for name, text in (("1.csv", FIRST), ("2.csv", SECOND), ("_SUCCESS", "")):
        way.client.put_object(Bucket=BUCKET, Key=f"{lake.name}/inbox/{name}", Body=text.encode())
    told = lake("ingest", f"s3://{BUCKET}/{lake.name}/inbox", *typed)
    assert f"s3://{BUCKET}/{lake.name}/inbox/2.csv" in told
    assert "already there" in told
    assert "2 events added" in told
    lake("run")
    lake("slide")
    expected = [["ann", "3", "7"], ["bob", "1", "3"], ["bob", "1", "5"]]
    assert lake.totals() == expected
    lake("backfill", "--from", "2026-01-01", "--to", "2026-01-02")
    lake("maintain")
    for table in ((), ("--windows",)):
        lake("verify", *table)
    assert lake.totals() == expected
    lake("status", "--json")
    assert "ann" in lake("sessions", "--key", "ann")
    assert "wrote page.html" in lake("report", "-o", "page.html")
    assert SECRET not in (lake.folder / "page.html").read_text()
    assert len(lake("changes", "--mode", "update").splitlines()) > 1
    # Without Spark and with it the same is said.
    by_spark = lake("sql", "--csv", "SELECT user, event_count, total FROM sessions ORDER BY user, session_start")
    assert [line.split(",") for line in by_spark.splitlines()[1:]] == expected


def test_a_death_behind_a_commit_and_one_before_its_entry_are_mended_by_the_next_run(way: Server, lake: Lake) -> None:
    lake("ingest", lake.file("first.csv", FIRST), "--schema", "n int")
    lake("init")
    lake("run")
    lake("ingest", lake.file("second.csv", SECOND), "--schema", "n int")
    log = f"{lake.name}/sessions/_delta_log/"
    before = way.keys(log)
    lake.killed("run", 1, after=True)
    entries = sorted(key for key in way.keys(log) - before if key.endswith(".json"))
    assert len(entries) == 1, entries
    # The files of the commit are there, its entry in the log is not: as if the death had come between the two.
    for key in way.keys(log) - before:
        way.client.delete_object(Bucket=BUCKET, Key=key)
    lake("run")
    lake("verify")
    expected = [["ann", "3", "7"], ["bob", "1", "3"], ["bob", "1", "5"]]
    assert lake.totals() == expected
    # The commit is there, what comes behind it is not.
    lake("ingest", lake.file("third.csv", THIRD), "--schema", "n int")
    lake.killed("run", 1, after=True)
    lake("run")
    lake("verify")
    assert lake.totals() == [*expected, ["cat", "1", "6"]]
    ledger = lake("sql", "--engine", "duckdb", "--csv", "SELECT count(*) FROM runs").splitlines()
    assert ledger[1:] == ["3"]
