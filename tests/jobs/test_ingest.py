import gzip
import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.ingest.file_reader import FileReader, IngestOptions, Part
from sessionizer.jobs.ingest.ingest import Ingestion, IngestReport, ingest
from sessionizer.lib.config import Config
from sessionizer.lib.errors import SessionizerError, SourceError, TableError, UsageError
from sessionizer.tables.delta import CHANGE_FEED, Superseded, Table
from tests import quick_tables

CSV = IngestOptions("csv")
JSON = IngestOptions("json")
LOG = IngestOptions("access-log")
AT = "2024-05-01T12:00:00Z"
NOON = datetime(2024, 5, 1, 12)


def log_line(host: str, second: int = 0) -> str:
    return f'{host} - - [01/May/2024:12:00:{second:02} +0000] "GET / HTTP/1.1" 200 5 "-" "curl"\n'


@dataclass(frozen=True)
class Lake:
    """A source table, the table of rejected events beside it, and a folder of files."""

    spark: SparkSession
    folder: Path
    config: Config

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def ingest(self, options: IngestOptions, *files: Path) -> list[IngestReport]:
        return ingest(self.spark, self.config, files, options, now=datetime(2024, 6, 1, tzinfo=UTC))

    def refused(self, error: type[SessionizerError], options: IngestOptions, *files: Path) -> str:
        with pytest.raises(error) as caught:
            self.ingest(options, *files)
        return str(caught.value)

    @property
    def source(self) -> Table:
        return Table(self.spark, self.config.source.table, "source.table")

    def rows(self, *columns: str) -> list[tuple]:
        return self._in_order(self.config.source.table, columns or tuple(self.source.schema.names))

    def rejected(self, *columns: str) -> list[tuple]:
        return self._in_order(self.config.outputs.rejected_events, columns)

    def _in_order(self, place: str, columns: tuple[str, ...]) -> list[tuple]:
        """Rows in order; only Spark knows parts of columns."""
        found = None if any("." in name for name in columns) else quick_tables.read(place, columns)
        if found is None:
            found = [tuple(row) for row in Table(self.spark, place, "").read().select(*columns).collect()]
        return sorted(found, key=repr)

    def torn(self) -> list[str]:
        return sorted(json.loads(event)["line"] for (event,) in self.rejected("event"))

    def reasons(self) -> list[tuple]:
        """Of the torn lines: number, column, reason, value."""
        events = [json.loads(event) for (event,) in self.rejected("event")]
        names = ("number", "column", "reason", "value")
        return sorted(tuple(event.get(name) for name in names) for event in events)


def lake_at(spark: SparkSession, folder: Path, **source: Any) -> Lake:
    source = {"table": str(folder / "lake/events"), "key": ["user"], **source}
    return Lake(
        spark, folder, Config.model_validate({"source": source, "sessions": {"table": f"{folder}/lake/sessions"}})
    )


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return lake_at(spark, tmp_path)


@pytest.fixture
def logs(spark: SparkSession, tmp_path: Path) -> Lake:
    return lake_at(spark, tmp_path, key=["host"])


def test_the_first_file_makes_the_table_and_records_what_was_read(lake: Lake) -> None:
    content = f"user,event_time,amount\nu1,{AT},1.5\nu2,2024-05-01 14:00:00+02:00,\nu3,,x\n"
    file = lake.file("a.csv", content)
    assert lake.ingest(CSV, file) == [IngestReport(str(file), lines=3, added=3)]
    assert lake.rows() == [("u1", NOON, "1.5"), ("u2", NOON, None), ("u3", None, "x")]
    assert [(f.name, f.dataType.simpleString()) for f in lake.source.schema.fields] == [
        ("user", "string"),
        ("event_time", "timestamp"),
        ("amount", "string"),
    ]
    assert not Path(lake.config.outputs.rejected_events).exists()
    assert lake.source.setting(CHANGE_FEED) == "true"
    sha256 = hashlib.sha256(content.encode()).hexdigest()
    (append, create) = lake.source.history()
    assert create.operation == "CREATE TABLE"
    assert json.loads(append.metadata or "")["sessionizer_ingest"] == {
        "file": "a.csv",
        "bytes": len(content),
        "sha256": sha256,
        "from": 0,
        "rows": 3,
        "unreadable": 0,
        "torn": None,
        "at": "2024-06-01T00:00:00+00:00",
    }
    assert lake.source.transactions() == [f"ingest:{len(content)}:{sha256}"]


def test_a_table_that_forgets_what_went_into_it_is_refused(lake: Lake) -> None:
    file = lake.file("a.csv", f"user,event_time\nu1,{AT}\n")
    lake.ingest(CSV, file)
    lake.source.change_setting("delta.setTransactionRetentionDuration", "interval 7 days")
    assert "must remember what went into it" in lake.refused(TableError, CSV, file)


def test_a_known_content_adds_nothing_under_another_name_or_gzipped(lake: Lake) -> None:
    content = f"user,event_time\nu1,{AT}\n"
    files = [
        lake.file("a.csv", content),
        lake.file("b.csv", content),
        lake.file("c.csv", gzip.compress(content.encode())),
    ]
    assert [r.added for r in lake.ingest(CSV, *files)] == [1, 0, 0]
    (again,) = lake.ingest(CSV, files[0])
    assert again == IngestReport(str(files[0]), skipped=True)
    assert lake.source.version == 1


@pytest.mark.broad
def test_a_grown_csv_adds_its_new_lines_under_the_header_of_old(lake: Lake) -> None:
    def row(user: str) -> str:
        return f"{user},{AT}\r\n"

    file = lake.file("a.csv", "\ufeff\r\nuser,event_time\r\n" + row("é") + "\r\n" + row("u2"))
    assert lake.ingest(CSV, file) == [IngestReport(str(file), lines=2, added=2)]
    content = file.read_bytes()
    file.write_bytes(content + (row("u3") + "torn\r\n").encode())
    assert lake.ingest(CSV, file) == [IngestReport(str(file), lines=2, added=1, unreadable=1, grown=True)]
    gzipped = lake.file("b.gz", gzip.compress(file.read_bytes() + row("u4").encode()))
    assert lake.ingest(CSV, gzipped) == [IngestReport(str(gzipped), lines=1, added=1, grown=True)]
    assert lake.ingest(CSV, file)[0].skipped
    assert lake.rows("user") == [("u2",), ("u3",), ("u4",), ("é",)]
    assert lake.torn() == ["torn"]


@pytest.mark.broad
def test_a_grown_log_whose_last_line_had_no_newline(logs: Lake) -> None:
    file = logs.file("access.log", log_line("a") + log_line("b")[:-1])
    assert logs.ingest(LOG, file) == [IngestReport(str(file), lines=2, added=2)]
    file.write_text(log_line("a") + log_line("b"))
    assert logs.ingest(LOG, file) == [IngestReport(str(file), skipped=True)]
    file.write_text(log_line("a") + log_line("b") + log_line("c"))
    assert logs.ingest(LOG, file) == [IngestReport(str(file), lines=1, added=1, grown=True)]
    assert logs.rows("host", "event_time") == [("a", NOON), ("b", NOON), ("c", NOON)]


@pytest.mark.broad
def test_the_rest_of_a_line_that_was_taken_for_whole_is_never_a_row(lake: Lake) -> None:
    file = lake.file("a.csv", f"event_time,user\n{AT},u1")
    lake.ingest(CSV, file)
    file.write_text(file.read_text() + f",x\n{AT},u2\n")  # alone, ",x" would be a row
    assert lake.ingest(CSV, file) == [IngestReport(str(file), lines=2, added=1, unreadable=1, grown=True)]
    assert (lake.rows("user"), lake.torn()) == ([("u1",), ("u2",)], [",x"])


def test_a_last_line_that_is_still_being_written_is_held_back(logs: Lake) -> None:
    whole = log_line("a") + log_line("b")
    file = logs.file("access.log", whole[:-9])
    assert logs.ingest(LOG, file) == [IngestReport(str(file), lines=1, added=1, held_back=1)]
    assert logs.ingest(LOG, file) == [IngestReport(str(file), skipped=True, held_back=1)]
    file.write_text(whole)
    assert logs.ingest(LOG, file) == [IngestReport(str(file), lines=1, added=1, grown=True)]
    assert logs.rows("host") == [("a",), ("b",)]
    gzipped = logs.file("other.gz", gzip.compress((log_line("c") + "cut").encode()))
    assert logs.ingest(LOG, gzipped) == [IngestReport(str(gzipped), lines=2, added=1, unreadable=1)]
    assert logs.torn() == ["cut"]


def test_a_last_line_of_a_log_that_may_be_longer_is_held_back(logs: Lake) -> None:
    begun, rest = '[01/May/2024:12:00:00 +0000] "GET / HTTP/1.1" 200 51', '2 "-" "curl"\n'
    file = logs.file("access.log", f"{log_line('a')}b - - {begun}")  # a whole line of the Common format
    assert logs.ingest(LOG, file) == [IngestReport(str(file), lines=1, added=1, held_back=1)]
    file.write_text(f"{log_line('a')}b - - {begun}{rest}")
    assert logs.ingest(LOG, file) == [IngestReport(str(file), lines=1, added=1, grown=True)]
    assert logs.rows("host", "bytes", "user_agent") == [("a", 5, "curl"), ("b", 512, "curl")]


def test_torn_lines_are_kept_with_what_they_held(lake: Lake) -> None:
    file = lake.file("a.csv", f'user,event_time\nu1,{AT}\nu2\n"u3,{AT}\nu2\n\nu4,soon\n'.encode() + b"caf\xe9\n")
    assert lake.ingest(CSV, file) == [IngestReport(str(file), lines=6, added=1, unreadable=5)]
    run = f"ingest-{hashlib.sha256(file.read_bytes()).hexdigest()[:12]}"
    events = [f'{{"file":"a.csv","line":"u2","number":{n},"reason":"not 2 fields"}}' for n in (3, 5)]
    named = lake.rejected("reason", "event", "event_hash", "ordinal", "run_id")
    assert [row for row in named if row[1] in events] == [
        ("unreadable", event, hashlib.sha256(event.encode()).hexdigest(), 1, run) for event in events
    ]
    unknown = lake.rejected("user", "event_time", "watermark", "horizon", "source_version", "run_seq")
    assert unknown == [(None,) * 6] * 5
    assert lake.torn() == sorted([f'"u3,{AT}', "caf\ufffd", "u2", "u2", "u4,soon"])
    assert lake.reasons() == [
        (3, None, "not 2 fields", None),
        (4, None, "a quote that nothing closes", None),
        (5, None, "not 2 fields", None),
        (7, "event_time", "no time by the format iso", "soon"),
        (8, None, "not UTF-8", None),
    ]


def test_torn_lines_are_kept_once_for_each_table_that_a_content_goes_into(lake: Lake) -> None:
    file = lake.file("a.csv", f"user,event_time,n,day\nu1,{AT},1,2024-05-01\nu2,{AT},1.5,2024-05-01\nu3,{AT},1,soon\n")
    lake.ingest(replace(CSV, schema="n int"), file)
    shutil.rmtree(lake.config.source.table)
    later = replace(CSV, schema="n double, day date")
    assert lake.ingest(later, file) == [IngestReport(str(file), lines=3, added=2, unreadable=1)]
    assert lake.ingest(later, file) == [IngestReport(str(file), skipped=True)]
    assert lake.reasons() == [(3, "n", "no INT", "1.5"), (4, "day", "no DATE", "soon")]


@pytest.mark.broad
def test_a_file_is_known_though_the_log_has_forgotten_how_it_was_read(lake: Lake) -> None:
    file = lake.file("a.csv", f"user,event_time\nu1,{AT}\n")
    lake.ingest(CSV, file)
    lake.source.change_setting("a", "b")
    lake.source.checkpoint()
    for version in range(lake.source.version):
        Path(lake.config.source.table, "_delta_log", f"{version:020}.json").unlink()
    assert lake.ingest(replace(CSV, time_format="dd.MM.yyyy"), file) == [IngestReport(str(file), skipped=True)]
    assert lake.rows("user") == [("u1",)]
    assert not Table(lake.spark, lake.config.outputs.rejected_events, "rejected").exists()


@pytest.mark.broad
def test_a_crash_before_the_torn_lines_are_written_is_made_good(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    file = lake.file("a.csv", f"user,event_time\nu1,{AT}\ntorn 1\n")
    append = Table.append

    def fail_on_rejected(self: Table, *args: Any, **options: Any) -> None:
        if self.field == "outputs.rejected_events":
            raise KeyboardInterrupt
        append(self, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Table, "append", fail_on_rejected)
        with pytest.raises(KeyboardInterrupt):
            lake.ingest(CSV, file)
        file.write_text(file.read_text() + f"u2,{AT}\ntorn 2\n")
        with pytest.raises(KeyboardInterrupt):
            lake.ingest(CSV, file)
    assert lake.ingest(CSV, file) == [IngestReport(str(file), lines=3, added=1, unreadable=2, grown=True)]
    assert lake.ingest(CSV, file) == [IngestReport(str(file), skipped=True)]
    assert (lake.rows("user"), lake.torn()) == ([("u1",), ("u2",)], ["torn 1", "torn 2"])


@pytest.mark.broad
def test_torn_lines_that_a_crash_left_are_not_taken_by_other_options(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = lake.file("a.csv", f"user,event_time\nu1,{AT}\nu2,1.5.2024\n")
    reject = Ingestion._reject
    monkeypatch.setattr(Ingestion, "_reject", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lake.ingest(CSV, file)
    monkeypatch.setattr(Ingestion, "_reject", reject)
    file.write_text(file.read_text() + "u3,2.5.2024\n")
    other = replace(CSV, time_format="d.M.yyyy")  # by which as many are torn, but others
    assert lake.ingest(other, file) == [IngestReport(str(file), lines=1, added=1, grown=True, owed=1)]
    assert not Table(lake.spark, lake.config.outputs.rejected_events, "rejected").exists()
    assert lake.ingest(CSV, file)[0].unreadable == 1
    assert (lake.rows("user"), lake.torn()) == ([("u1",), ("u3",)], ["u2,1.5.2024"])


@pytest.mark.broad
def test_a_race_that_is_lost_behind_the_commit_leaves_no_torn_line_out(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = lake.file("known.csv", f"user,event_time\nu1,{AT}\n")
    lake.ingest(CSV, known)
    reject, races = Ingestion._reject, iter(range(2))

    def lose_once(self: Ingestion, *args: Any) -> None:
        if next(races) == 0:
            raise Superseded
        reject(self, *args)

    monkeypatch.setattr(Ingestion, "_reject", lose_once)
    new = lake.file("new.csv", f"user,event_time\nu2,{AT}\ntorn\n")
    both = [IngestReport(str(known), skipped=True), IngestReport(str(new), lines=2, added=1, unreadable=1)]
    assert lake.ingest(CSV, known, new) == both
    assert (lake.rows("user"), lake.torn()) == ([("u1",), ("u2",)], ["torn"])
    new.write_text(new.read_text() + "torn, too\n")
    races = iter(range(2))
    assert lake.ingest(CSV, new) == [IngestReport(str(new), lines=1, unreadable=1, grown=True)]


def test_an_ingest_that_loses_a_race_starts_over(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    append, races = Table.append, iter(range(3))

    def lose_twice(self: Table, *args: Any, **options: Any) -> None:
        if next(races) < 2:
            raise Superseded
        append(self, *args, **options)

    monkeypatch.setattr(Table, "append", lose_twice)
    assert lake.ingest(CSV, lake.file("a.csv", f"user,event_time\nu1,{AT}\n"))[0].added == 1


def test_two_ingests_of_one_file_at_once_add_it_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    file = lake.file("a.csv", f"user,event_time\nu1,{AT}\n")
    note = Ingestion._note

    def after_another(self: Ingestion, *args: Any) -> str:
        monkeypatch.setattr(Ingestion, "_note", note)
        assert lake.ingest(CSV, file)[0].added == 1
        return note(self, *args)

    monkeypatch.setattr(Ingestion, "_note", after_another)
    assert lake.ingest(CSV, file) == [IngestReport(str(file), skipped=True)]
    assert lake.rows("user") == [("u1",)]


@pytest.mark.broad
def test_later_files_take_the_types_of_the_table(lake: Lake) -> None:
    typed = replace(CSV, schema="amount double, paid boolean")
    lake.ingest(typed, lake.file("a.csv", f"user,event_time,amount,paid\nu1,{AT},1.5,true\n"))
    later = lake.file(
        "b.csv", f"PAID,event_time,user,amount\nfalse,{AT},u2,3\nno way,{AT},u3,3\n,{AT},u4,\n1,{AT},u5,x\n"
    )
    assert lake.ingest(CSV, later) == [IngestReport(str(later), lines=4, added=2, unreadable=2)]
    lake.ingest(CSV, lake.file("c.csv", f"event_time,user\n{AT},u6\n"))
    assert lake.rows("user", "amount", "paid") == [
        ("u1", 1.5, True),
        ("u2", 3.0, False),
        ("u4", None, None),
        ("u6", None, None),
    ]
    assert lake.torn() == [f"1,{AT},u5,x", f"no way,{AT},u3,3"]


def test_new_columns_are_an_error_or_extend_the_table(lake: Lake) -> None:
    lake.ingest(CSV, lake.file("a.csv", f"user,event_time\nu1,{AT}\n"))
    more = lake.file("b.csv", f"user,event_time,page,n\nu2,{AT},/a,7\n")
    message = lake.refused(SourceError, CSV, more)
    assert "got 'page, n'" in message
    assert "--add-columns" in message
    lake.ingest(replace(CSV, add_columns=True, schema="n int"), more)
    assert lake.rows() == [("u1", NOON, None, None), ("u2", NOON, "/a", 7)]


def test_a_missing_column_is_named_before_anything_is_written(lake: Lake) -> None:
    no_key = lake.refused(SourceError, CSV, lake.file("a.csv", f"uid,event_time\nu1,{AT}\n"))
    assert "source.key" in no_key
    assert "got 'user'. the file has: uid, event_time" in no_key
    assert "--rename OLD=user" in no_key
    assert "source.event_time" in lake.refused(SourceError, JSON, lake.file("a.json", '{"user": 1}\n'))
    assert not lake.source.exists()


def test_renamed_columns(lake: Lake) -> None:
    file = lake.file("a.csv", f"uid,ts,x\nu1,{AT},1\n")
    lake.ingest(replace(CSV, rename={"uid": "user", "ts": "event_time"}), file)
    assert lake.rows() == [("u1", NOON, "1")]
    assert "did you mean uid? The file has: uid, ts, x" in lake.refused(
        UsageError, replace(CSV, rename={"id": "user"}), lake.file("b.csv", f"uid,ts,x\nu2,{AT},1\n")
    )
    assert "each column once: got 'x'" in lake.refused(
        SourceError, replace(CSV, rename={"uid": "X"}), lake.file("c.csv", f"uid,ts,x\nu2,{AT},1\n")
    )


def test_the_time_format_is_that_of_the_event_time_column(spark: SparkSession, tmp_path: Path) -> None:
    lake = lake_at(spark, tmp_path, event_time="at")
    file = lake.file("a.tsv", 'user\tat\n"u1\t1.5.2024 12:00\nu2\t\nu3\tsoon\n')
    options = IngestOptions("csv", time_format="d.M.yyyy H:mm", csv_sep="\t", csv_quote="")
    assert lake.ingest(options, file) == [IngestReport(str(file), lines=3, added=2, unreadable=1)]
    assert lake.rows() == [('"u1', NOON), ("u2", None)]


def test_a_time_that_is_an_expression_leaves_the_columns_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    lake = lake_at(spark, tmp_path, event_time="timestamp_millis(ts)")
    lake.ingest(replace(CSV, schema="ts bigint"), lake.file("a.csv", "user,ts\nu1,1714564800000\n"))
    assert lake.rows() == [("u1", 1714564800000)]


@pytest.mark.broad
def test_a_csv_without_a_header(lake: Lake) -> None:
    options = replace(CSV, csv_header=False, schema="user bigint, event_time string, n int")
    file = lake.file("a.csv", f"1,{AT},7\n")
    lake.ingest(options, file)
    file.write_text(file.read_text() + f"2,{AT},\nx,{AT},1\n")
    assert lake.ingest(options, file) == [IngestReport(str(file), lines=2, added=1, unreadable=1, grown=True)]
    assert lake.rows() == [(1, NOON, 7), (2, NOON, None)]


def test_json_lines(lake: Lake) -> None:
    first = [
        {"user": "u1", "event_time": AT, "n": 1, "price": 1.5, "tags": ["a"], "at": {"x": 1}},
        {"user": "u2", "event_time": None, "n": 2},
    ]
    file = lake.file("a.jsonl", "\n".join(json.dumps(e, ensure_ascii=False) for e in first) + '\n{"user": "u3", "ev')
    assert lake.ingest(JSON, file) == [IngestReport(str(file), lines=2, added=2, held_back=1)]
    assert lake.rows("user", "event_time", "n", "price", "tags", "at.x") == [
        ("u1", NOON, 1, 1.5, ["a"], 1),
        ("u2", None, 2, None, None, None),
    ]
    with file.open("a") as end:
        end.write(f'ent_time": "{AT}", "n": "3"}}\n{{"user": "u4", "n": "many"}}\n{{"user": "u5", "n": [1]}}\n')
    assert lake.ingest(JSON, file) == [IngestReport(str(file), lines=3, added=1, unreadable=2, grown=True)]
    assert lake.rows("user", "n")[-1] == ("u3", 3)


@pytest.mark.broad
@pytest.mark.parametrize("twice", ['"n": 2, "n": 3', '"n": 2, "at": {"x": 1, "x": 2}', '"n": 2, "user": "u9"'])
def test_a_line_that_has_a_name_twice_is_torn_alone(lake: Lake, twice: str) -> None:
    good = [f'{{"user": "{user}", "event_time": "{AT}", "n": 1, "at": {{"x": 1}}}}' for user in ("u1", "u2")]
    file = lake.file("a.json", "\n".join([good[0], f'{{"user": "u3", "event_time": "{AT}", {twice}}}', good[1], ""]))
    with file.open("a") as end:
        end.write(f'{{"user": "u4", "event_time": "{AT}", "n": NaN}}\n')
    lifted = replace(JSON, rename={"at.x": "x"})
    assert lake.ingest(lifted, file) == [IngestReport(str(file), lines=4, added=3, unreadable=1)]
    assert [(row[0], str(row[1]), row[2]) for row in lake.rows("user", "n", "x")] == [
        ("u1", "1.0", 1),
        ("u2", "1.0", 1),
        ("u4", "nan", None),
    ]


@pytest.mark.broad
def test_where_such_a_line_is_no_json_to_the_letter_all_of_these_are_torn(lake: Lake) -> None:
    lines = ('"n": 1', '"n": NaN', '"n": NaN, "n": 2', '"n": 3, "n": 4')
    told = [f'{{"user": "u{n}", "event_time": "{AT}", {line}}}' for n, line in enumerate(lines)]
    file = lake.file("a.json", "\n".join([*told, ""]))
    assert lake.ingest(JSON, file) == [IngestReport(str(file), lines=4, added=1, unreadable=3)]
    assert lake.rows("user", "n") == [("u0", 1)]


@pytest.mark.broad
def test_a_last_line_with_half_of_a_character_is_torn_and_not_held_back(lake: Lake) -> None:
    good = f'{{"user": "u1", "event_time": "{AT}"}}'
    file = lake.file("a.json", good + "\n" + good.replace("u1", "u\\ud83d"))
    assert lake.ingest(JSON, file) == [IngestReport(str(file), lines=2, added=1, unreadable=1)]


@pytest.mark.broad
def test_members_are_the_same_in_whatever_capitals_and_blank_decimals_are_null(lake: Lake) -> None:
    first = f'{{"user": "u1", "event_time": "{AT}", "at": {{"City": "X", "l": [{{"N": 1}}]}}}}\n'
    lake.ingest(replace(JSON, schema="paid decimal(9,2)"), lake.file("a.json", first))
    more = f'{{"user": "u2", "event_time": "{AT}", "at": {{"city": "Y", "l": [{{"n": 2}}]}}, "paid": ""}}\n'
    more += f'{{"user": "u3", "event_time": "{AT}", "paid": "1.50"}}\n'
    file = lake.file("b.json", more)
    assert lake.ingest(JSON, file) == [IngestReport(str(file), lines=2, added=2)]
    assert lake.rows("user", "at.City", "at.l.N", "paid") == [
        ("u1", "X", [1], None),
        ("u2", "Y", [2], None),
        ("u3", None, None, Decimal("1.50")),
    ]


@pytest.mark.broad
def test_a_new_member_within_an_object_is_a_new_column_too(lake: Lake) -> None:
    lake.ingest(JSON, lake.file("a.json", f'{{"user": "u1", "event_time": "{AT}", "at": {{"x": 1}}}}\n'))
    more = lake.file("b.json", f'{{"user": "u2", "event_time": "{AT}", "at": {{"y": 2}}}}\n')
    assert "got 'at'" in lake.refused(SourceError, JSON, more)
    lake.ingest(replace(JSON, add_columns=True), more)
    assert lake.rows("user", "at.x", "at.y") == [("u1", 1, None), ("u2", None, 2)]


def test_json_numbers_for_times_need_a_time_format(lake: Lake) -> None:
    file = lake.file("a.json", '{"user": 7, "event_time": 1714564800.5}\n')
    assert "event_time holds numbers" in lake.refused(UsageError, JSON, file)
    lake.ingest(replace(JSON, time_format="epoch_s"), file)
    assert lake.rows() == [(NOON.replace(microsecond=500000), 7)]


def test_parquet_keeps_its_types(lake: Lake) -> None:
    def parquet(name: str, rows: Iterable[tuple], schema: str) -> Path:
        lake.spark.createDataFrame(list(rows), schema).coalesce(1).write.parquet(str(lake.folder / name))
        return next((lake.folder / name).glob("*.parquet"))

    first = parquet("a", [(1, NOON, 2.5)], "user bigint, event_time timestamp_ntz, price double")
    assert lake.ingest(IngestOptions("parquet"), first) == [IngestReport(str(first), lines=1, added=1)]
    assert lake.ingest(IngestOptions("parquet"), first) == [IngestReport(str(first), skipped=True)]
    texts = [("2", AT, "3"), ("x", AT, "4"), ("3", "soon", None)]
    other = parquet("b", texts, "user string, event_time string, price string")
    assert lake.ingest(IngestOptions("parquet"), other) == [IngestReport(str(other), lines=3, added=1, unreadable=2)]
    assert lake.rows() == [(1, NOON, 2.5), (2, NOON, 3.0)]
    assert f'{{"event_time":"{AT}","price":"4","user":"x"}}' in lake.torn()
    assert "is not a Parquet file" in lake.refused(SourceError, IngestOptions("parquet"), lake.file("c", "no parquet"))


def test_nanoseconds_of_parquet_are_cut_to_microseconds(lake: Lake) -> None:
    before = datetime(1969, 12, 31, 23, 59, 59, 999999)
    nanos = pa.array([-1, None, 1_714_564_800_000_000_999])
    zones = {"event_time": None, "a.b": None, "z": "UTC"}
    times = {name: nanos.cast(pa.timestamp("ns", zone)) for name, zone in zones.items()}
    numbers = pa.array(["1", "x", "2"])
    pq.write_table(pa.table({"user": numbers, **times}), lake.folder / "a.parquet")
    options = IngestOptions("parquet", schema="user bigint", rename={"a.b": "ab"})
    (report,) = lake.ingest(options, lake.folder / "a.parquet")
    assert (report.added, report.unreadable) == (2, 1)
    assert lake.rows("user", "event_time", "ab", "z") == [(1, *[before] * 3), (2, *[NOON] * 3)]
    types = {f.name: f.dataType.simpleString() for f in lake.source.schema.fields}
    assert types == {"user": "bigint", "event_time": "timestamp", "ab": "timestamp_ntz", "z": "timestamp"}
    assert lake.spark.conf.get("spark.sql.legacy.parquet.nanosAsLong") == "false"
    within = pa.StructArray.from_arrays([times["z"]], ["at"])
    pq.write_table(pa.table({"user": numbers, **times, "on": within}), lake.folder / "b.parquet")
    assert "not lie within one: got 'on.at in " in lake.refused(SourceError, options, lake.folder / "b.parquet")


def test_an_empty_file_adds_nothing(lake: Lake) -> None:
    contents = ["", "\n\r\n", "user,event_time\n"]
    files = [lake.file(f"{n}.csv", content) for n, content in enumerate(contents)]
    assert lake.ingest(CSV, *files) == [IngestReport(str(file)) for file in files]
    assert lake.ingest(JSON, files[0]) == [IngestReport(str(files[0]))]
    assert not lake.source.exists()


def test_files_that_cannot_be_read_stop_before_anything_of_theirs_is_written(lake: Lake) -> None:
    good = lake.file("a.csv", f"user,event_time\nu1,{AT}\n")
    assert "must exist: got '" in lake.refused(UsageError, CSV, good, lake.folder / "none.csv")
    assert "this is a folder" in lake.refused(UsageError, CSV, good, lake.folder)
    assert not lake.source.exists()
    packed = gzip.compress(good.read_bytes() * 1000)
    cut = lake.file("cut.gz", packed[:-20])
    broken = lake.file("broken.gz", packed[:30] + b"\xff" * 20 + packed[50:])
    for file in (cut, broken):
        assert "readable to its end" in lake.refused(SourceError, CSV, file)
    assert not lake.source.exists()


def test_a_file_of_which_nothing_can_be_read_is_refused_so_that_other_options_can_be_tried(lake: Lake) -> None:
    file = lake.file("a.csv", "user,event_time\nu1,1714564800\n")
    assert "--time-format" in lake.refused(SourceError, CSV, file)
    assert not lake.source.exists()
    assert lake.ingest(replace(CSV, time_format="epoch_s"), file)[0].added == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"csv_sep": "||"}, "csv_sep must be one character"),
        ({"csv_quote": ","}, "csv_quote must be one character other than csv_sep"),
        ({"csv_header": False}, "needs a schema"),
        ({"schema": "amount dubble"}, "columns and their types"),
        ({"schema": "price double"}, "the file has: user, event_time"),
        ({"time_format": "epoch_us"}, "time_format must be iso"),
    ],
)
def test_options_that_make_no_sense_are_named(lake: Lake, change: dict[str, Any], message: str) -> None:
    file = lake.file("a.csv", f"user,event_time\nu1,{AT}\n")
    with pytest.raises(UsageError, match=message):
        lake.ingest(replace(CSV, **change), file)


@pytest.mark.broad
def test_a_source_with_a_catalog_name_and_columns_with_spaces(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE DATABASE ingest_lake LOCATION '{tmp_path}/catalog'")
    try:
        lake = lake_at(spark, tmp_path, table="ingest_lake.events", key=["user id"])
        for n in (1, 2):
            lake.ingest(CSV, lake.file(f"{n}.csv", f"user id,event_time,{'a.b' if n == 1 else 'A.b'}\nu{n},{AT},x\n"))
        lake.ingest(CSV, lake.file("3.csv", f"event_time,user id\n{AT},u3\n"))
        assert lake.rows("user id", "event_time", "`a.b`") == [("u1", NOON, "x"), ("u2", NOON, "x"), ("u3", NOON, None)]
    finally:
        spark.sql("DROP DATABASE ingest_lake CASCADE")


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "lines", "added"),
    [
        ("erddap_access.log.gz", 16_275, 10_479),  # and 9 blank lines
        ("almhuette_short.log.gz", 10_000, 10_000),
        ("elastic_apache_logs.gz", 10_000, 9_999),
    ],
)
@pytest.mark.broad
def test_real_access_logs_are_accounted_for(logs: Lake, shared_data: Path, name: str, lines: int, added: int) -> None:
    file = shared_data / "access_logs" / name
    assert logs.ingest(LOG, file) == [IngestReport(str(file), lines=lines, added=added, unreadable=lines - added)]
    assert logs.source.read().where(F.col("event_time").isNull()).count() == 0


@pytest.mark.realdata
@pytest.mark.broad
def test_a_real_day_of_the_nasa_log_is_accounted_for(spark: SparkSession, tmp_path: Path, shared_data: Path) -> None:
    lake = lake_at(spark, tmp_path, key=["host"], event_time="time")
    options = IngestOptions("csv", time_format="epoch_s", csv_sep="\t", csv_quote="")
    file = shared_data / "nasa_http_sample" / "nasa_19950801_full_day.tsv.gz"
    (report,) = lake.ingest(options, file)
    assert (report.lines, report.added + report.unreadable) == (33_996, 33_996)
    assert lake.source.read().agg(F.max("time")).collect()[0][0] == datetime(1995, 8, 1, 18, 52, 1)


def test_a_quoted_field_may_hold_newlines(lake: Lake) -> None:
    file = lake.file("a.csv", f'user,event_time,note\nu1,{AT},"two\nlines"\nu2,{AT},plain\nu3,{AT},"torn\n')
    assert lake.ingest(CSV, file) == [IngestReport(str(file), lines=3, added=2, unreadable=1)]
    assert lake.rows("user", "note") == [("u1", "two\nlines"), ("u2", "plain")]
    assert lake.torn() == [f'u3,{AT},"torn']


def test_lines_that_cannot_be_read_are_kept_as_the_rule_for_invalid_events_says(lake: Lake) -> None:
    file = lake.file("a.csv", f"user,event_time\nu1,{AT}\nu2,soon\n")
    failing, dropping = (
        replace(lake, config=lake.config.model_copy(update={"invalid_events": rule})) for rule in ("fail", "drop")
    )
    assert "not every line" in failing.refused(SourceError, CSV, file)
    assert not failing.source.exists()
    assert dropping.ingest(CSV, file) == [IngestReport(str(file), lines=2, added=1, unreadable=1)]
    ((reason, event, hashed),) = dropping.rejected("reason", "event", "event_hash")
    assert (reason, event, len(hashed)) == ("unreadable", None, 64)


def test_where_no_quote_is_special_nul_is_a_letter(lake: Lake) -> None:
    file = lake.file("a.csv", f'user,event_time,note\n\0ann,{AT},\0x\0\nbob,{AT},"a"\n')
    lake.ingest(replace(CSV, csv_quote=""), file)
    assert lake.rows("user", "note") == [("\0ann", "\0x\0"), ("bob", '"a"')]


NESTED = {"user": {"id": "u1", "plan": {"name": "pro"}}, "meta": {"ts": AT}, "items": [{"sku": "a"}], "amount": 1.5}


def test_fields_within_objects_become_columns_by_their_dotted_names(spark: SparkSession, tmp_path: Path) -> None:
    lake = lake_at(spark, tmp_path, key=["user_id"], event_time="at")
    taken = replace(JSON, rename={"user.id": "user_id", "META.ts": "at", "user.plan.name": "plan"})
    lines = [NESTED, {**NESTED, "meta": {"ts": "soon"}}, {**NESTED, "user": None}]
    file = lake.file("a.jsonl", "\n".join(map(json.dumps, lines)) + "\n")
    assert lake.ingest(taken, file) == [IngestReport(str(file), lines=3, added=2, unreadable=1)]
    assert lake.rows("user_id", "at", "plan", "user.id", "items.sku") == [
        ("u1", NOON, "pro", "u1", ["a"]),
        (None, NOON, None, None, ["a"]),
    ]
    assert lake.reasons() == [(2, "meta.ts", "no time by the format iso", "soon")]
    without = lake.file("b.jsonl", json.dumps({"user": {"id": "u2"}, "meta": {"ts": AT}}) + "\n")
    assert lake.ingest(taken, without)[0].added == 1  # the table knows what this file happens to lack
    misspelt = replace(taken, rename={**taken.rename, "user.pln.name": "tariff"})
    message = lake.refused(UsageError, misspelt, lake.file("c.jsonl", json.dumps(NESTED) + "\n"))
    assert "got 'user.pln.name'. did you mean user.plan.name? The file has: " in message


def test_a_column_with_a_dot_in_its_name_comes_before_a_field(spark: SparkSession, tmp_path: Path) -> None:
    lake = lake_at(spark, tmp_path, key=["who"])
    line = {"user": {"id": "within"}, "user.id": "own", "event_time": AT}
    lake.ingest(replace(JSON, rename={"user.id": "who"}), lake.file("a.json", json.dumps(line) + "\n"))
    assert lake.rows("who", "user.id") == [("own", "within")]


def test_one_bad_value_rejects_its_row_and_says_which_column(lake: Lake) -> None:
    typed = "amount double, price decimal(6,2), n int"
    rows = [f"u{n},{AT},{n},1.5,7" for n in range(1, 4)]
    rows[1] = rows[1].replace(",2,", ",two,")
    csv = lake.file("a.csv", "\n".join(["user,event_time,amount,price,n", *rows, ""]))
    (report,) = lake.ingest(replace(CSV, schema=typed), csv)
    assert (report.added, report.torn) == (2, ("line 3: amount is no DOUBLE: got 'two'",))
    event: dict[str, Any] = {"user": "u4", "event_time": AT, "amount": 4, "price": 1, "n": 1}
    bad: list[dict[str, Any]] = [{"amount": "four"}, {"price": "dear"}, {"n": 3_000_000_000}, {"n": {"x": 1}}]
    lines = [event, *({**event, **change} for change in bad)]
    jsonl = lake.file("b.jsonl", "\n".join(map(json.dumps, lines)) + "\n")
    (report,) = lake.ingest(JSON, jsonl)
    assert (report.added, report.unreadable, len(report.torn)) == (1, 4, 3)
    assert lake.reasons() == [
        (2, "amount", "no DOUBLE", "four"),
        (3, "amount", "no DOUBLE", "two"),
        (3, "price", "no DECIMAL(6,2)", "dear"),
        (4, "n", "no INT", "3000000000"),
        (5, "n", "no INT", '{"x":1}'),
    ]


def test_characters_that_only_look_like_ends_of_lines_are_data(lake: Lake) -> None:
    odd = "a\u2028b\u2029c\x85d\x0ce\x0bf\x1cg"
    content = f'user,event_time,note\n"{odd}",{AT},x\nu2,{AT},"{odd}"\nu3,{AT},"two\n{odd}"\nu4,{AT},{odd}\n'
    file = lake.file("a.csv", content)
    assert lake.ingest(CSV, file) == [IngestReport(str(file), lines=4, added=4)]
    assert lake.rows("user", "note") == sorted([(odd, "x"), ("u2", odd), ("u3", f"two\n{odd}"), ("u4", odd)], key=repr)


def test_numbers_of_lines_are_those_of_the_file(lake: Lake) -> None:
    good = f'u1,{AT},"two\n\nlines"\n'
    file = lake.file("a.csv", f"\nuser,event_time,note\n{good}torn 6\n\n{good}torn 11\n")
    lake.ingest(CSV, file)
    assert [number for number, *_ in lake.reasons()] == [6, 11]
    file.write_text(file.read_text() + f"{good}torn 15")
    lake.ingest(CSV, file)
    file.write_text(file.read_text() + " and its rest\ntorn 16\n")
    lake.ingest(CSV, file)
    assert [number for number, *_ in lake.reasons()] == [6, 11, 15, 15, 16]


def test_of_several_files_the_one_that_fails_is_named_and_those_before_it_are_in(lake: Lake) -> None:
    names = ["a.csv", "b.csv", "c.csv", "d.csv"]
    files = [lake.file(name, f"user,event_time\n{name},{AT}\n") for name in names]
    files[2].write_text(f"user,event_time,page\nu,{AT},/\n")
    message = lake.refused(SourceError, CSV, *files)
    assert message.startswith(f"{files[2]}: the file has columns")
    assert message.endswith("of 4 files 2 before it went in and 1 behind it were not tried.")
    assert lake.rows("user") == [("a.csv",), ("b.csv",)]


@pytest.mark.broad
def test_torn_lines_lie_beside_rejected_events_of_a_key_that_sql_makes(spark: SparkSession, tmp_path: Path) -> None:
    lake = lake_at(spark, tmp_path, key=["user.id", {"name": "day", "expr": "CAST(event_time AS DATE)"}])
    file = lake.file("a.json", f'{{"user": {{"id": 7}}, "event_time": "{AT}"}}\nnothing\n')
    assert lake.ingest(JSON, file) == [IngestReport(str(file), lines=2, added=1, unreadable=1)]
    assert lake.rejected("id", "day", "reason") == [(None, None, "unreadable")]
    schema = Table(spark, lake.config.outputs.rejected_events, "").schema
    assert [(f.name, f.dataType.simpleString()) for f in schema.fields[:2]] == [("id", "bigint"), ("day", "date")]


def test_rows_without_a_time_get_that_of_their_arrival(spark: SparkSession, tmp_path: Path) -> None:
    lake = lake_at(spark, tmp_path, event_time={"arrival": "arrived_at"})
    first, second = lake.file("a.csv", "user,n\nu1,1\nu2,2\n"), lake.file("b.csv", "user,n\nu1,3\n")
    for hour, file in ((8, first), (9, second), (10, first)):  # a content that is known keeps its time
        ingest(lake.spark, lake.config, [file], CSV, now=datetime(2024, 6, 1, hour, tzinfo=UTC))
    at_8, at_9 = datetime(2024, 6, 1, 8), datetime(2024, 6, 1, 9)
    assert lake.rows("user", "n", "arrived_at") == [("u1", "1", at_8), ("u1", "3", at_9), ("u2", "2", at_8)]
    assert lake.config.rule_summary()["event_time"] == "arrived_at"
    told = lake.refused(SourceError, CSV, lake.file("c.csv", f"user,n,arrived_at\nu1,1,{AT}\n"))
    assert "filled with the time of arrival" in told


def test_lines_of_a_log_may_have_the_time_of_their_arrival(spark: SparkSession, tmp_path: Path) -> None:
    logs = lake_at(spark, tmp_path, key=["host"], event_time={"arrival": "arrived_at"})
    logs.ingest(LOG, logs.file("access.log", log_line("a")))
    assert logs.rows("host", "event_time", "arrived_at") == [("a", NOON, datetime(2024, 6, 1))]


def test_a_table_without_a_column_for_arrivals_gets_it_if_asked(spark: SparkSession, tmp_path: Path) -> None:
    lake = lake_at(spark, tmp_path)
    lake.ingest(CSV, lake.file("a.csv", f"user,event_time\nu1,{AT}\n"))
    later = lake_at(spark, tmp_path, event_time={"arrival": "arrived_at"})
    file = later.file("b.csv", f"user,event_time\nu2,{AT}\n")
    assert "does not have the column for the time of arrival" in later.refused(SourceError, CSV, file)
    later.ingest(replace(CSV, add_columns=True), file)
    assert later.rows("user", "arrived_at") == [("u1", None), ("u2", datetime(2024, 6, 1))]


def test_two_that_ingest_a_growing_file_at_once_add_its_lines_once(lake: Lake) -> None:
    """One looks at the file, another one adds more of it meanwhile, and the other way round."""
    head, tail = f"user,event_time\nu1,{AT}\n", f"u2,{AT}\n"
    file = lake.file("a.csv", head)
    slow = Ingestion(
        lake.spark, lake.config, FileReader(lake.spark, lake.config, CSV), datetime(2024, 6, 1, tzinfo=UTC)
    )
    append = slow._append

    def overtaken(part: Part, said: list[str]) -> int:
        slow._append = append  # type: ignore[method-assign]
        file.write_text(head + tail)
        lake.ingest(CSV, file)
        return append(part, said)

    slow._append = overtaken  # type: ignore[method-assign]
    assert slow.add(file).skipped
    assert lake.rows("user") == [("u1",), ("u2",)]
