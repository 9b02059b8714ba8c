"""Floods of damaged lines: each is accounted for, none comes twice, and what came in makes sessions."""

import gzip
import json
import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands.init import init
from sessionizer.jobs.ingest.file_reader import IngestOptions
from sessionizer.jobs.ingest.files import join_records
from sessionizer.jobs.ingest.ingest import IngestReport, ingest
from sessionizer.jobs.run.driver import run
from sessionizer.jobs.run.phases import RunOptions
from sessionizer.lib import columns as C
from sessionizer.lib.config import Config
from sessionizer.tables.table_set import TableSet
from tests.mutations import mutated
from tests.summary import Tally

pytestmark = pytest.mark.many_rows

NOW = datetime(2026, 6, 1, tzinfo=UTC)
ID = re.compile(rb"#\d{7}")
TOKENS = (
    *(b"\x00", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\x0b", b"\x1e", b"\x85", b"\r"),
    *(b'"', b'""', b"'", b",", b"\\", b'\\"', b"\t", b" ", b"[", b"]", b"{", b"}", b"-", b":", b"\x1b[2J", b"\\u0000"),
    *(b"NaN", b"-Infinity", b"1e999", b"-1e-999", b"9" * 40, b"0x10", b"true", b"null", b"-0", b"1.5E3", b"=1+1"),
    *(b"0000-00-00", b"9999-12-31T23:59:59Z", b"10000-01-01", b"2026-02-30", b"1969-12-31T23:59:60Z", b"12:00"),
    *(b"[29/Feb/2025:25:61:61 +9999]", b"\xf0\x9f\x98\x80", b"{" * 60, b'{"a":' * 200, b"[" * 2000, b"x" * 20_000),
)


@dataclass(frozen=True)
class Flood:
    """A format: its options, the first line of a file, what a whole line is, and what of it stays undamaged."""

    options: IngestOptions
    key: str
    lines: int
    damaged: float
    header: bytes = b""

    def line(self, random: Random, number: int) -> tuple[bytes, bytes]:
        """A line as it should be, in two parts: what holds its id, and what may be damaged."""
        second, user = number % 86_400, random.randrange(500)
        time = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        note = random.choice(("plain", "", "größer", 'say \\"hi\\"' if self.key == "host" else "a;b", "x" * 300))
        match self.options.format:
            case "csv":
                quoted = random.choice((note, f'"{note}, ""so"""'))
                head, rest = f"#{number:07},", f"u{user},2026-05-01T{time}Z,{random.random():.3f},{quoted}"
            case "json":
                fields = {"user": f"u{user}", "event_time": f"2026-05-01T{time}Z", "amount": random.random()}
                more: dict[str, Any] = {"note": note, "tags": ["a", None], "inner": {"1": 1, "2": {"3": "é"}}}
                head, rest = f'{{"id":"#{number:07}",', json.dumps(fields | more)[1:]
            case _:
                head = f"u{user} #{number:07} "
                rest = f'- [01/May/2026:{time} +0000] "GET /{user} HTTP/1.1" 200 {number} "-" "{note}"'
        return head.encode(), rest.encode()

    def content(self, seed: int) -> bytes:
        """A file of lines, many of them damaged, some twice, some run together, some cut."""
        random, made = Random(seed), list[bytes]()
        for number in range(self.lines):
            head, rest = self.line(random, number)
            if random.random() < self.damaged:
                rest = mutated(random, rest, TOKENS).replace(b"\n", b" ")
            made.append(head + rest + random.choice((b"", b"", b"", b"\r")))
            accident = random.randrange(100)
            if accident == 0:
                made.append(made[-1])
            elif accident == 1 and number:
                made[-2:] = [made[-2] + made[-1]]
            elif accident == 2:
                made[-1] = made[-1][: random.randrange(len(made[-1]))]
            elif accident == 3:
                made.append(random.choice((b"", b"   ", b"\r")))
        return b"".join(line + b"\n" for line in (self.header, *made) if line is not self.header or line)


FLOODS = {
    "csv": Flood(IngestOptions("csv", schema="amount double"), "user", 90_000, 0.5, b"id,user,event_time,amount,note"),
    "json": Flood(IngestOptions("json"), "user", 30_000, 0.1),
    "access-log": Flood(IngestOptions("access-log"), "host", 90_000, 0.5),
}


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("name", FLOODS)
def test_every_damaged_line_is_accounted_for_once(spark: SparkSession, tmp_path: Path, tally: Tally, name: str) -> None:
    flood = FLOODS[name]
    config = Config.model_validate(
        {
            "source": {"table": f"{tmp_path}/lake/events", "key": [flood.key]},
            "sessions": {"table": f"{tmp_path}/lake/sessions"},
            "aggregates": [{"name": "hosts", "fn": "count_distinct", "of": flood.key}],
        }
    )
    file, content = tmp_path / "flood", flood.content(seed=1)
    file.write_bytes(content)

    def take(path: Path) -> IngestReport:
        (report,) = ingest(spark, config, [path], flood.options, now=NOW)
        return report

    report, tables = take(file), TableSet(spark, config)
    assert report.lines == report.added + report.unreadable
    assert min(report.added, report.unreadable) > flood.lines // 100
    if name != "csv":
        assert report.lines == sum(1 for line in content.split(b"\n") if line.removesuffix(b"\r").strip(b" "))
    events, rejected = tables.events.table.read(), tables.rejected_events.table.read()
    assert (events.count(), rejected.count()) == (report.added, report.unreadable)
    assert {row.reason for row in rejected.select(C.REASON).distinct().collect()} == {"unreadable"}
    texts = events.select(F.to_json(F.struct("*")).alias("text")).unionByName(
        rejected.select(F.get_json_object(C.col(C.EVENT), "$.line").alias("text"))  # `value` repeats a part of it
    )
    found = Counter(
        i for row in texts.select(F.expr("regexp_extract_all(text, '#[0-9]{7}', 0)")).collect() for i in row[0]
    )
    fed = Counter(i.decode() for i in ID.findall(content))
    tally.add("damaged lines ingested", report.lines)
    tally.add("of them lost or doubled", (fed - found).total() + (found - fed).total())
    assert found == fed

    zipped = tmp_path / "again.gz"
    zipped.write_bytes(gzip.compress(content))
    for known in (file, zipped):
        again = take(known)
        assert (again.lines, again.skipped) == (0, True)
    assert tables.events.table.read().count() == report.added

    init(spark, config, None, lambda _: None)
    (done,) = run(spark, config, RunOptions(now=int(NOW.timestamp() * 1e6)), lambda _: None)
    counts = done.manifest.events
    assert counts["events_read"] == report.added
    assert counts["accepted"] + counts["invalid"] == report.added
    in_sessions = tables.sessions.table.read().agg(F.sum(C.EVENT_COUNT)).collect()[0][0]
    assert in_sessions == counts["accepted"]


PIECES = st.sampled_from([b'"', b'""', b",", b"\n", b"\r\n", b"a", b"\x1e", "\ufdd0".encode(), b"\xff", b"\\", b"\x00"])


@given(content=st.lists(PIECES, min_size=1, max_size=40).map(b"".join), columns=st.integers(1, 3))
@settings(max_examples=1_000)
def test_joining_csv_records_changes_no_byte(tmp_path: Path, content: bytes, columns: int) -> None:
    file = tmp_path / "rows"
    file.write_bytes(content)
    mark = join_records(file, columns, ",", '"')
    joined = file.read_bytes()
    if mark is None:
        assert joined == content
    else:
        assert mark.encode() not in content
        apart, lines = list[bytes](), iter(joined.removesuffix(b"\n").split(b"\n"))
        for line in lines:  # blank ones behind a record stand for those that it took in
            apart += line.split(mark.encode())
            assert not any(next(lines) for _ in range(line.count(mark.encode())))
        assert b"\n".join(apart) == content.removesuffix(b"\n")


def test_a_character_that_separates_records_survives_in_a_file_of_quoted_newlines(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = Config.model_validate(
        {"source": {"table": f"{tmp_path}/events", "key": []}, "sessions": {"table": f"{tmp_path}/sessions"}}
    )
    file = tmp_path / "file.csv"
    file.write_bytes(b'event_time,note\n2026-01-01,"two\nlines"\n2026-01-02,one\x1eline\n')
    ingest(spark, config, [file], IngestOptions("csv"), now=NOW)
    notes = TableSet(spark, config).events.table.read().orderBy("event_time").select("note").collect()
    assert [row.note for row in notes] == ["two\nlines", "one\x1eline"]


MANY = 1_000_000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_set_of_a_million_values_keeps_to_its_cap(spark: SparkSession, tmp_path: Path) -> None:
    """In one session, over two runs; the smallest values come last."""
    config = Config.model_validate(
        {
            "source": {"table": f"{tmp_path}/events", "key": ["user"], "event_time": "at"},
            "sessions": {"table": f"{tmp_path}/sessions"},
            "aggregates": [{"name": "seen", "fn": "set", "of": "value", "at_most": 100}],
        }
    )
    number = F.col("id") * 7_919 % MANY  # each number once, in no order
    value = F.concat(F.lit("value number "), F.lpad(number.cast("string"), 100, "0"))
    at = F.timestamp_seconds(F.lit(1_770_000_000) + F.col("id") % 900)
    rows = spark.range(MANY).select(F.lit("ann").alias("user"), at.alias("at"), value.alias("value"))
    smallest = "value number " + "0" * 94 + f"{MANY // 2:06}"
    for part in (rows.where(F.col("value") >= smallest), rows.where(F.col("value") < smallest)):
        part.write.format("delta").option("delta.enableChangeDataFeed", "true").mode("append").save(
            f"{tmp_path}/events"
        )
        init(spark, config, None, lambda _: None)
        run(spark, config, RunOptions(now=int(NOW.timestamp() * 1e6)), lambda _: None)
        (session,) = TableSet(spark, config).sessions.table.read().collect()
        first = MANY // 2 if session.event_count < MANY else 0
        assert session.seen == ["value number " + f"{n:0100}" for n in range(first, first + 100)]
        assert session.seen_truncated
        assert len(session["_state"]["seen"]["values"]) == 100
    assert session.event_count == MANY
    assert sum(f.stat().st_size for f in Path(f"{tmp_path}/sessions").glob("**/*.parquet")) < 200_000
