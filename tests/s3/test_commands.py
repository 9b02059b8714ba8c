"""All commands upon tables in an object store, and a death amid them."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any
from uuid import uuid4

import pytest
import yaml

from sessionizer.jobs.config_file import load_config
from sessionizer.lib.config import Config
from sessionizer.tables.delta.lease import Lease
from sessionizer.tables.delta.place import LOCK_FILE
from sessionizer.tables.places.object_store import ObjectStore
from tests.few_rows import FOR_FEW_ROWS
from tests.processes import Worker
from tests.s3.server import BUCKET, PACKAGE, SECRET, Server

SETTINGS = FOR_FEW_ROWS | {"spark.jars.packages": PACKAGE}
FIRST = "user,at,n\nann,2026-01-01 08:00:00,1\nann,2026-01-01 08:10:00,2\nbob,2026-01-01 10:50:00,3\n"
SECOND = "user,at,n\nann,2026-01-01 08:20:00,4\nbob,2026-01-01 12:00:00,5\ntorn\n"
ROUNDS = 3
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
        self.second: Worker | None = None

    def begun(self) -> Worker:
        return Worker(self.folder / "log", SETTINGS)

    def __call__(self, *arguments: str) -> str:
        """What a command prints."""
        code, told = self.tried(*arguments)
        assert code == 0, (arguments, told)
        return told

    def tried(self, *arguments: str) -> tuple[int, str]:
        """Its exit code, and what it prints, errors last."""
        code, out, err = self.worker.do("command", self.config, folder=str(self.folder), arguments=list(arguments))
        assert SECRET not in out + err
        return code, out if code == 0 else out + err

    def file(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name

    def totals(self) -> list[list[Any]]:
        query = "SELECT user, event_count, total FROM sessions ORDER BY user, session_start"
        lines = self("sql", "--engine", "duckdb", "--csv", query).splitlines()
        return [line.split(",") for line in lines[1:]]

    def both(self, *arguments: tuple[str, ...]) -> list[tuple[int, str]]:
        """Two commands at the same time, each by a process of its own; code and what they print."""
        if self.second is None:
            self.second = self.begun().wait_ready()
        workers = (self.worker.wait_ready(), self.second)
        for worker, asked in zip(workers, arguments, strict=True):
            worker.ask("command", self.config, None, folder=str(self.folder), arguments=list(asked))
        return [(code, out + err) for code, out, err in (worker.answer() for worker in workers)]

    def killed(self, job: str, nth: int, *, after: bool) -> None:
        """The job dies at this write, and its process with it; another takes its place."""
        self.worker.wait_ready().die(job, self.config, nth, after=after)
        self.worker = self.begun()


@pytest.fixture
def lake(way: Server, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    made = Lake(tmp_path, request.node.name)
    yield made
    for worker in filter(None, (made.worker, made.second)):
        worker.close()
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
    lake("report", "-o", f"s3://{BUCKET}/{lake.name}/pages/shop.html")
    page = way.client.get_object(Bucket=BUCKET, Key=f"{lake.name}/pages/shop.html")["Body"].read().decode()
    assert "<html" in page
    lake("run", "--metrics-file", f"s3a://{BUCKET}/{lake.name}/sessions.prom")
    metrics = way.client.get_object(Bucket=BUCKET, Key=f"{lake.name}/sessions.prom")["Body"].read().decode()
    assert "sessionizer_live_sessions{" in metrics
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


def test_of_two_that_write_at_once_none_is_lost(lake: Lake) -> None:
    typed = ("--schema", "n int")
    lake("ingest", lake.file("0.csv", FIRST), *typed)
    lake("init")
    for number in range(1, ROUNDS + 1):
        text = "user,at,n\n" + "".join(f"u{n % 5},2026-01-{1 + number:02} 0{n}:00:00,1\n" for n in range(10))
        half = text.splitlines(keepends=True)
        files = (
            lake.file(f"{number}a.csv", "".join(half[:6])),
            lake.file(f"{number}b.csv", half[0] + "".join(half[6:])),
        )
        for code, told in lake.both(*(("ingest", file, *typed) for file in files)):
            assert (code, "5 events added" in told) == (0, True), told
        for code, told in lake.both(("run",), ("run",)):
            assert code == 0, told
    assert lake("sql", "--engine", "duckdb", "--csv", "SELECT sum(event_count) FROM sessions").splitlines()[1:] == [
        str(3 + 10 * ROUNDS)
    ]
    lake("verify")


def test_whoever_writes_waits_for_the_lock_of_the_table(way: Server, lake: Lake) -> None:
    def entries() -> int:
        return sum(key.endswith(".json") for key in way.keys(f"{lake.name}/sessions/_delta_log/"))

    store = ObjectStore.of({}, os.environ)
    assert store is not None
    lake("ingest", lake.file("first.csv", FIRST), "--schema", "n int")
    lake("init")
    with Lease(store.writing(BUCKET), f"{lake.name}/sessions/{LOCK_FILE}"):
        lake.worker.ask("command", lake.config, None, folder=str(lake.folder), arguments=["run"])
        sleep(30)
        assert entries() == 1
    code, out, err = lake.worker.answer()
    assert (code, entries()) == (0, 2), out + err
    assert lake.totals() == [["ann", "2", "3"], ["bob", "1", "3"]]


def test_a_commit_that_was_written_over_is_told_and_made_good_by_a_restore(way: Server, lake: Lake) -> None:
    typed = ("--schema", "n int")
    for name, text in (("first.csv", FIRST), ("second.csv", SECOND)):
        lake("ingest", lake.file(name, text), *typed)
        if name == "first.csv":
            lake("init")
        lake("run")
    # What a process that knows no lock does: it finds the version before, and puts a commit of its own over the last.
    last = max(key for key in way.keys(f"{lake.name}/sessions/_delta_log/") if key.endswith(".json"))
    commit = way.client.get_object(Bucket=BUCKET, Key=last)["Body"].read().decode()
    (run_id,) = set(re.findall(r'run_id\\":\\"([0-9A-Za-z-]+)', commit))
    way.client.put_object(Bucket=BUCKET, Key=last, Body=commit.replace(run_id, str(uuid4())).encode())
    lake.worker.close()
    lake.worker = lake.begun()
    for command in ("run", "run", "maintain"):
        code, told = lake.tried(command)
        assert (code, "has replaced that of the other" in told) == (3, True), told
    lake.worker.do("restore", lake.config, back=1)
    lake("run")
    lake("verify")
    assert lake.totals() == [["ann", "3", "7"], ["bob", "1", "3"], ["bob", "1", "5"]]


def test_the_demo_in_a_store(way: Server, lake: Lake) -> None:
    place = f"s3a://{BUCKET}/{lake.name}/demo"
    told = lake("demo", str(lake.folder / "demo"), "--tables", place)
    assert "Run 3" in told
    assert f"{lake.name}/demo/sessions/_delta_log/00000000000000000000.json" in way.keys(f"{lake.name}/demo/")
    code, told = lake.tried("demo", str(lake.folder / "demo"), "--tables", place)
    assert (code, "the demo needs a place without tables" in told) == (2, True), told
