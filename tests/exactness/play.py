"""Plays of a few events through the public jobs over real tables; the one place here that imports the product.

Events are told as `a@5 tick@100 | a@7`: an event of a at minute 5 of the day, one of tick at minute 100; what stands
behind `|` comes in the next run. `a@5=3` has n 3, which is 1 elsewhere. Events of more columns are a text table.
"""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import types as T

from sessionizer.jobs.commands.look_back import LookBack, backfill, readmit, rebuild
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.jobs.reporting.verdict import Verdict
from sessionizer.jobs.run import side_tables
from sessionizer.jobs.run.driver import slide
from sessionizer.jobs.run.phases import RunOptions, RunReport
from sessionizer.lib.config import Config
from sessionizer.lib.errors import SessionizerError, SourceError, UsageError
from sessionizer.lib.time.watermarks import WatermarkOverride
from sessionizer.tables.delta.settings import having
from tests import quick_tables
from tests.kills import killed_at
from tests.oracle import us
from tests.text_tables import DAY, rows
from tests.warehouse import NOW, Warehouse

__all__ = ["Play", "SessionizerError", "SourceError", "UsageError", "at", "fails_today", "minute"]

EVENTS = "u STRING, at TIMESTAMP, n INT"
DEFAULTS: dict[str, Any] = {
    "source": {"key": ["u"]},
    "session": {"gap": "10m"},
    "time": {"allowed_lateness": "0s"},
}
TOTAL = [{"name": "total", "fn": "sum", "of": "n"}]
NUMBERS: dict[str, Callable[[str], Any]] = {"integer": int, "long": int, "double": float, "float": float}
SHORT = {
    "start": "session_start",
    "end": "session_end",
    "count": "event_count",
    "final": "is_final",
    "late": "is_late",
    "why": "end_reason",
}
WAITING: dict[str, Any] = {"corrections": "quarantine"}
WIDENING = "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
WIDER = "ALTER TABLE {} ALTER COLUMN n TYPE BIGINT"
BY_N: dict[str, Any] = {"session": {"gap": {"expr": "make_dt_interval(0, 0, n, 0)"}}}
STAYING: dict[str, Any] = {"allowed_lateness": "0s", "lateness": "session"}
BY_NAME = "ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
AT_ONCE = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",  # 10,000 tasks list the folders else
}
MICROSECOND = timedelta(microseconds=1)


def fails_today(
    reason: str, raises: type[BaseException] | tuple[type[BaseException], ...] = AssertionError
) -> pytest.MarkDecorator:
    """The result asserted is the right one, and not yet what comes out."""
    return pytest.mark.xfail(strict=True, raises=raises, reason=reason)


def at(number: float) -> int:
    """The minute in microseconds."""
    return us(minute(number))


def minute(number: float) -> datetime:
    return DAY + timedelta(minutes=number)


class Play(Warehouse):
    """A source with the tables of one configuration: key u, gap 10 minutes, no lateness allowed, unless told."""

    def __init__(self, spark: SparkSession, folder: Path, schema: str = EVENTS, **sections: Any) -> None:
        self.schema = schema
        self.sections = sections
        self.now = NOW
        super().__init__(spark, folder, **sections)

    def configured(self, **sections: Any) -> Config:
        merged = {name: DEFAULTS[name] | sections.get(name, {}) for name in DEFAULTS}
        return super().configured(**{"aggregates": TOTAL} | sections | merged)

    def document(self) -> dict[str, Any]:
        """What stands in the file of this configuration."""
        merged = {name: DEFAULTS[name] | self.sections.get(name, {}) for name in DEFAULTS}
        source = {"table": self.config.source.table, "event_time": "at"} | merged["source"]
        sessions = {"table": self.config.sessions.table}
        return {"aggregates": TOTAL} | self.sections | merged | {"source": source, "sessions": sessions}

    def change(self, **sections: Any) -> "Play":
        """From now on by this configuration, in place of the first."""
        self.config = self.configured(**self.sections | sections)
        return self

    # The source.

    def add(self, events: str) -> "Play":
        """One more version of the source."""
        table = rows(events, **self.readers()) if "\n" in events else told_short(events)
        names = [field.name for field in self.fields()]
        self.append([tuple(row.get(name) for name in names) for row in table], self.schema)
        return self

    def fields(self) -> list[T.StructField]:
        schema = T.StructType.fromDDL(self.schema)
        assert isinstance(schema, T.StructType)
        return schema.fields

    def readers(self) -> dict[str, Callable[[str], Any]]:
        fields = self.fields()
        read = {f.name: NUMBERS[f.dataType.typeName()] for f in fields if f.dataType.typeName() in NUMBERS}
        times = {f.name: in_minutes for f in fields if f.dataType.typeName() == "timestamp"}
        return read | times

    def source(self, statement: str) -> "Play":
        """SQL that changes the source, which is `{}` in it."""
        self.spark.sql(statement.replace("{}", f"delta.`{self.config.source.table}`"))
        return self

    def vacuumed(self) -> "Play":
        """No file is there that the source's latest version does not have."""
        with having(self.spark, AT_ONCE):
            return self.source("VACUUM {} RETAIN 0 HOURS")

    def damage(self, statement: str, table: str = "sessions") -> None:
        """SQL that changes one of our own tables by hand, which is `{}` in it."""
        places = self.config.outputs
        place = self.config.sessions.table if table == "sessions" else getattr(places, table)
        with self.tables.sessions.table.lock():
            self.spark.sql(statement.replace("{}", f"delta.`{place}`"))

    # The jobs, at a time of their own where one is set.

    def at(self, number: float) -> "Play":
        """From now on the jobs' own clock stands at this minute."""
        self.now = at(number)
        return self

    def init(self) -> "Play":
        super().init()
        return self

    def run(self, config: Config | None = None, **options: Any) -> list[RunReport]:
        return super().run(config, **{"now": self.now} | options)

    def runs(self, events: str) -> "Play":
        """Add and run, part by part of what `|` divides."""
        for part in [events] if "\n" in events else events.split(" | "):
            first = not (self.folder / "events").exists()
            self.add(part)
            if first:
                self.init()
            self.run()
        return self

    def flush(self) -> "Play":
        self.run(override=WatermarkOverride(flush=True))
        return self

    def run_cut_off(self) -> None:
        """A run that dies just behind its commit, before it writes any other table."""
        with killed_at(side_tables, "write"):
            self.run()

    def backfill(self, low: float, high: float, *keys: str) -> "Play":
        """Of the minutes from `low` to `high`; keys as JSON objects."""
        backfill(self.kind, LookBack(at(low), at(high), keys or None, now=self.now))
        return self

    def readmit(self, low: float = 0, high: float = 1440) -> "Play":
        readmit(self.kind, LookBack(at(low), at(high), now=self.now))
        return self

    def readmit_deletes(self, *users: str) -> "Play":
        keys = tuple(json.dumps({"u": user}) for user in users) or None
        readmit(self.kind, LookBack(at(0), at(1440), keys, now=self.now, deletes=True))
        return self

    def rebuild(self) -> "Play":
        rebuild(self.kind, now=self.now)
        return self

    def slide(self, to_version: int | None = None) -> "Play":
        slide(self.spark, self.config, RunOptions(to_version=to_version, now=self.now), self.said.append)
        return self

    def verify(self, low: float | None = None, high: float | None = None, sample: float | None = None) -> Verdict:
        first, last = (None if edge is None else at(edge) for edge in (low, high))
        return verify(self.spark, self.config, Asked(first, last, sample))

    # What came out.

    def told(self, header: str, **by: Any) -> list[dict[str, Any]]:
        """Rows of sessions with the columns of the header, as `rows` reads them from a text table."""
        return self.told_of(self.config.sessions.table, header, **by)

    def told_windows(self, header: str) -> list[dict[str, Any]]:
        assert self.config.sliding is not None
        return self.told_of(self.config.sliding.table, header)

    def told_rejected(self, header: str) -> list[dict[str, Any]]:
        return self.told_of(self.config.outputs.rejected_events, header)

    def told_of(self, place: str, header: str, **by: Any) -> list[dict[str, Any]]:
        names = [name.strip() for name in header.split("|")]
        columns = tuple(SHORT.get(name, name) for name in (*names, *by))
        found = quick_tables.read(place, columns)
        if found is None:
            frame = self.spark.read.format("delta").load(place)
            found = [tuple(row) for row in frame.select(*[frame[f"`{name}`"] for name in columns]).collect()]
        wanted = [row for row in found if row[len(names) :] == tuple(by.values())]
        return in_order([dict(zip(names, map(cell, row), strict=False)) for row in wanted])

    def assert_sessions(self, table: str, **by: Any) -> None:
        """The sessions are these, of these values in other columns; times as minutes."""
        self.assert_rows(self.told(header_of(table), **by), table)

    def assert_rejected(self, table: str) -> None:
        self.assert_rows(self.told_rejected(header_of(table)), table)

    def assert_rows(self, found: list[dict[str, Any]], table: str) -> None:
        wanted = in_order(rows(table))
        assert found == wanted, f"found\n{drawn(found)}\nwanted\n{drawn(wanted)}"

    def assert_clean(self) -> None:
        verdict = self.verify()
        assert verdict.clean, verdict

    def row(self, user: str) -> Row:
        """The one session of this key, whole."""
        (found,) = self.tables.sessions.table.read().where(f"u = '{user}'").collect()
        return found


def header_of(table: str) -> str:
    return next(line for line in table.splitlines() if line.strip())


def told_short(events: str) -> list[dict[str, Any]]:
    found = []
    for event in events.split():
        user, _, rest = event.partition("@")
        at, _, n = rest.partition("=")
        found.append({"u": user, "at": minute(float(at)), "n": int(n or 1)})
    return found


def in_minutes(text: str) -> datetime:
    return minute(float(text))


def cell(value: Any) -> str | None:
    """A value as a text table has it."""
    match value:
        case datetime():
            minutes, rest = divmod(value - DAY.replace(tzinfo=None), timedelta(minutes=1))
            return f"{minutes}" if not rest else f"{minutes}+{rest // MICROSECOND}us"
        case None:
            return None
        case bool():
            return "yes" if value else "no"
        case list():
            return ",".join(map(str, value))
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)


def drawn(found: list[dict[str, Any]]) -> str:
    return "\n".join(" | ".join(f"{name} {value}" for name, value in row.items()) for row in found)


def in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=repr)
