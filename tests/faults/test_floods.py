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
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from jobs.ingest import IngestOptions, IngestReport, ingest
from jobs.init import init
from jobs.sessionize import RunOptions, run
from lib import columns as C
from lib.config import Config
from tables.lake import Lake
from tests.mutations import mutated
from tests.summary import Tally

LINES = 3_000
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
                more: dict[str, Any] = {"note": note, "tags": ["a", None], "inner": {"x": 1, "y": {"z": "é"}}}
                head, rest = f'{{"id":"#{number:07}",', json.dumps(fields | more)[1:]
            case _:
                head = f"u{user} #{number:07} "
                rest = f'- [01/May/2026:{time} +0000] "GET /{user} HTTP/1.1" 200 {number} "-" "{note}"'
        return head.encode(), rest.encode()

    def content(self, seed: int, lines: int) -> bytes:
        """A file of so many lines, half of them damaged, some twice, some run together, some cut."""
        random, made = Random(seed), list[bytes]()
        for number in range(lines):
            head, rest = self.line(random, number)
            if random.random() < 0.5:
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
    "csv": Flood(IngestOptions("csv", schema="amount double"), "user", b"id,user,event_time,amount,note"),
    "json": Flood(IngestOptions("json"), "user"),
    "access-log": Flood(IngestOptions("access-log"), "host"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOODS)
def test_every_damaged_line_is_accounted_for_once(
    spark: SparkSession, tmp_path: Path, tally: Tally, name: str
) -> None:
    flood = FLOODS[name]
    config = Config.model_validate(
        {
            "source": {"table": f"{tmp_path}/lake/events", "key": [flood.key]},
            "sessions": {"table": f"{tmp_path}/lake/sessions"},
            "aggregates": [{"name": "hosts", "fn": "count_distinct", "of": flood.key}],
        }
    )
    file, content = tmp_path / "flood", flood.content(seed=1, lines=LINES)
    file.write_bytes(content)

    def take(path: Path) -> IngestReport:
        (report,) = ingest(spark, config, [path], flood.options, now=NOW)
        return report

    report, lake = take(file), Lake(spark, config)
    assert report.lines == report.added + report.unreadable
    assert min(report.added, report.unreadable) > LINES // 100
    if name != "csv":
        assert report.lines == sum(1 for line in content.split(b"\n") if line.removesuffix(b"\r").strip(b" "))
    events, rejected = lake.events.table.read(), lake.rejected_events.table.read()
    assert (events.count(), rejected.count()) == (report.added, report.unreadable)
    assert {row.reason for row in rejected.select(C.REASON).distinct().collect()} == {"unreadable"}
    texts = events.select(F.to_json(F.struct("*")).alias("text")).unionByName(rejected.select(C.col(C.EVENT).alias("text")))
    found = Counter(i for row in texts.select(F.expr("regexp_extract_all(text, '#[0-9]{7}', 0)")).collect() for i in row[0])
    assert found == Counter(i.decode() for i in ID.findall(content))

    zipped = tmp_path / "again.gz"
    zipped.write_bytes(gzip.compress(content))
    for known in (file, zipped):
        again = take(known)
        assert (again.lines, again.skipped) == (0, True)
    assert lake.events.table.read().count() == report.added

    init(spark, config, None, lambda _: None)
    (done,) = run(spark, config, RunOptions(now=int(NOW.timestamp() * 1e6)), lambda _: None)
    counts = done.manifest.events
    assert counts["events_read"] == report.added
    assert counts["accepted"] + counts["invalid"] == report.added
    in_sessions = lake.sessions.table.read().agg(F.sum(C.EVENT_COUNT)).collect()[0][0]
    assert in_sessions == counts["accepted"]
    tally.add("damaged lines ingested", report.lines)
    tally.add("lines lost or doubled", 0)
