"""The command `sessions`, and `sessions_at`: look-ups in the table as it is and as it was."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.cli import main
from sessionizer.jobs.queries.lookups import sessions_at
from sessionizer.lib.errors import TableError, UsageError
from sessionizer.tables.queries.history import History
from tests.warehouse import Warehouse

CONFIG = """
source: {{table: {folder}/events, key: [shop, user], event_time: at}}
sessions: {{table: {folder}/sessions}}
session: {{gap: 30m}}
aggregates: [{{name: total, fn: sum, of: n}}]
"""
EVENTS = "shop INT, user STRING, at TIMESTAMP, n INT"


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Two runs over two shops; version 1 of sessions has three sessions, version 2 four."""
    made = Warehouse(spark, tmp_path_factory.mktemp("lookups"), source={"key": ["shop", "user"]})
    (made.folder / "sessionizer.yaml").write_text(CONFIG.format(folder=made.folder))
    add(made, (1, "ann", "10:00"), (1, "ann", "10:20"), (1, "ann", "12:00"), (2, "bob", "10:00"))
    made.init().run()
    add(made, (1, "ann", "14:00"), (1, "ann", "12:10"))
    made.run()
    return made


def add(warehouse: Warehouse, *events: tuple[int, str, str]) -> None:
    texts = [f"SELECT {shop}, '{user}', TIMESTAMP '2026-01-01 {at}', 1" for shop, user, at in events]
    rows = [tuple(r) for text in texts for r in warehouse.spark.sql(text).collect()]
    warehouse.append(rows, EVENTS)


@pytest.fixture
def command(warehouse: Warehouse, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> "Command":
    return Command(warehouse.folder / "sessionizer.yaml", capsys, monkeypatch)


class Command:
    """`sessionizer sessions` with these arguments."""

    def __init__(self, config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.config, self.capsys, self.monkeypatch = config, capsys, monkeypatch

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self.monkeypatch.setattr(sys, "argv", ["sessionizer", "sessions", "-c", str(self.config), *arguments])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = self.capsys.readouterr()
        return int(stopped.value.code or 0), out, " ".join(err.split())

    def json(self, *arguments: str) -> list[Any]:
        code, out, err = self(*arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    def starts(self, *arguments: str) -> list[str]:
        return [row["session_start"][11:16] for row in self.json(*arguments)]


def test_the_sessions_of_a_key_in_time_order(command: Command) -> None:
    ann = ("--key", "1", "--key", "ann")
    assert command.starts(*ann) == ["10:00", "12:00", "14:00"]
    assert command.starts(*ann, "--backward", "--limit", "2") == ["14:00", "12:00"]
    between = ("--earliest-end", "2026-01-01T10:20:00Z", "--latest-start", "2026-01-01T12:00:00Z")
    assert command.starts(*ann, *between) == ["10:00", "12:00"]
    assert command.starts(*ann, "--from", "2026-01-01T10:20", "--to", "2026-01-01T12:00:00.000001") == [
        "10:00",
        "12:00",
    ]
    assert command.starts(*ann, "--from", "2026-01-01T10:20", "--to", "2026-01-01T12:00") == ["10:00"]
    assert command.starts(*ann, "--from", "2026-01-01T10:21", "--latest-start", "2026-01-01T12:00") == ["12:00"]
    assert command.starts(*ann, "--earliest-end", "1969-01-01", "--latest-end", "2026-01-01T10:20") == ["10:00"]
    (row,) = command.json("--key-from", "2", "--key-to", "2")
    assert row["session_end"] == "2026-01-01T10:00:00.000000Z"
    assert (row["shop"], row["user"], row["total"], row["supersedes"]) == (2, "bob", 1, [])
    assert "_state" not in row


def test_the_table_as_it_was(command: Command, warehouse: Warehouse) -> None:
    ann = ("--key", "1", "--key", "ann")
    assert command.starts(*ann, "--as-of", "1") == ["10:00", "12:00"]
    assert command.json("--as-of", "0") == []
    history = History(warehouse.tables.sessions, warehouse.tables.runs)
    times = [entry.timestamp_us for entry in warehouse.tables.sessions.table.history()][::-1]
    assert [history.version_at(t) for t in (times[0], times[1], times[2] - 1, times[2] + 10**15)] == [0, 1, 1, 2]
    assert sessions_at(warehouse.tables, at=times[1]).count() == 3
    assert command.starts(*ann, "--as-of", "2126-01-01") == ["10:00", "12:00", "14:00"]


def test_a_person_sees_the_main_columns(command: Command) -> None:
    code, out, _ = command("--key", "1", "--key", "ann", "--limit", "2")
    header, *lines = out.splitlines()
    assert code == 0
    shown = "shop user session_id session_start session_end duration_seconds event_count total status"
    assert " ".join(header.split()) == shown
    assert (len(lines), "--limit" in out) == (2, False), "as many as were asked for"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--key", "one", "--key", "ann"], 2, "--key must be of type int, as shop is: got 'one'"),
        (["--key", "1"], 2, "key must have one value for each key column: got ('1',). the key columns are"),
        (["--key", "1", "--key", "ann", "--key-to", "1"], 2, "for one key or for a range of keys, not for both"),
        (["--key-to", "1", "--key-to", "ann", "--key-to", "x"], 2, "the key columns are: shop, user"),
        (["--earliest-end", "noon"], 2, "--earliest-end must be a time"),
        (["--as-of", "noon"], 2, "--as-of must be a time"),
        (["--as-of", "99"], 2, "no such version, its latest is 2: got 99"),
        (["--as-of", "2020-01-01"], 3, "no version of that time: it was made later"),
    ],
)
def test_what_cannot_be_looked_up_is_a_sentence(command: Command, arguments: list[str], code: int, says: str) -> None:
    found, out, err = command(*arguments)
    assert (found, out) == (code, "")
    assert says in err


def test_a_version_that_is_gone_is_named(warehouse: Warehouse, tmp_path: Path) -> None:
    copy = Warehouse(warehouse.spark, tmp_path / "copy", source={"key": ["shop", "user"]})
    shutil.copytree(warehouse.folder, copy.folder)
    for file in (copy.folder / "sessions").rglob("*.parquet"):
        file.unlink()
    history = History(copy.tables.sessions, copy.tables.runs)
    with (
        pytest.raises(TableError, match="version 1 of sessions cannot be read any more"),
        history.reading("version 1 of sessions"),
    ):
        sessions_at(copy.tables, 1).collect()
    with pytest.raises(UsageError, match="no such version"):
        sessions_at(copy.tables, 3)
