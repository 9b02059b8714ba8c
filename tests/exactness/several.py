"""Plays of two sources, in memory: clicks, whose key is a column, and calls, whose key and time have other names.

Events are told as in `play`: `clicks="a@5 b@7=3"`; n is 1 unless it is said. Minutes of the day.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from sessionizer.jobs.commands.init import init
from sessionizer.jobs.commands.look_back import LookBack, backfill, readmit, rebuild
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.jobs.reporting.verdict import Verdict
from sessionizer.jobs.run.driver import run, slide
from sessionizer.jobs.run.kinds import Kind, kind_of
from sessionizer.jobs.run.phases import RunOptions, RunReport
from sessionizer.lib.config import Config
from sessionizer.tables.manifest import Manifest
from tests.exactness.play import SHORT, at, cell, drawn, header_of, in_order, told_short
from tests.machine.memory import MemoryTable, in_memory
from tests.text_tables import rows
from tests.warehouse import NOW

Event = dict[str, Any]
CLICKS: dict[str, Any] = {"schema": "u STRING, at TIMESTAMP, n INT, page STRING", "key": ["u"], "event_time": "at"}
CALLS: dict[str, Any] = {
    "schema": "caller STRING, begun TIMESTAMP, n INT",
    "key": [{"name": "u", "expr": "caller"}],
    "event_time": "begun",
}
AGGREGATES = [
    {"name": "total", "fn": "sum", "of": "n"},
    {"name": "clicks", "fn": "count", "source": "clicks"},
    {"name": "first_of", "fn": "first", "of": "source"},
]


class Several:
    """Sources and the tables of one configuration; the gap is 10 minutes, no lateness is allowed, unless told."""

    def __init__(self, spark: SparkSession, folder: Path, sources: Mapping[str, Any] | None = None, **sections: Any):
        self.spark, self.folder, self.now, self.said = spark, folder, NOW, list[str]()
        self.sources = dict(sources or {"clicks": CLICKS, "calls": CALLS})
        self.there: dict[str, list[Event]] = {name: [] for name in self.sources}
        self.sections = sections
        self.config = self.configured()

    def configured(self, *names: str) -> Config:
        """The config, of these sources alone, if some are named."""
        told = [
            {"name": name, "table": str(self.folder / name)} | {k: v for k, v in of.items() if k != "schema"}
            for name, of in self.sources.items()
            if name in (names or self.sources)
        ]
        sections = {"session": {"gap": "10m"}, "time": {"allowed_lateness": "0s"}, "aggregates": AGGREGATES}
        tables = {"sources": told, "sessions": {"table": str(self.folder / "sessions")}}
        return Config.model_validate(sections | self.sections | tables)

    def alone(self, name: str) -> Config:
        """The config of this one as the only source, which has no name."""
        source = {"table": str(self.folder / name)} | {k: v for k, v in self.sources[name].items() if k != "schema"}
        sections = {"session": {"gap": "10m"}, "time": {"allowed_lateness": "0s"}} | self.sections
        return Config.model_validate(
            sections | {"source": source, "sessions": {"table": str(self.folder / "sessions")}}
        )

    # The sources.

    def schema(self, name: str) -> T.StructType:
        found = T.StructType.fromDDL(self.sources[name]["schema"])
        assert isinstance(found, T.StructType)
        return found

    def comes(self, **events: str) -> Self:
        """One more version of each of these sources."""
        for name, text in events.items():
            u, time = self.schema(name).names[:2]
            new = [{u: e["u"] if e["u"] != "-" else None, time: e["at"], "n": e["n"]} for e in told_short(text)]
            self.there[name] += new
            self._changed(name, insert=new)
        return self

    def goes(self, name: str, n: int) -> Self:
        """A DELETE of the rows with this number."""
        gone = [row for row in self.there[name] if row["n"] == n]
        self.there[name] = [row for row in self.there[name] if row["n"] != n]
        self._changed(name, "DELETE", delete=gone)
        return self

    def becomes(self, name: str, n: int, **values: Any) -> Self:
        """An UPDATE of the rows with this number."""
        before = [row for row in self.there[name] if row["n"] == n]
        after = [row | values for row in before]
        self.there[name] = [row for row in self.there[name] if row["n"] != n] + after
        self._changed(name, "UPDATE", update_preimage=before, update_postimage=after)
        return self

    def reshaped(self, name: str, schema: str) -> Self:
        """An ALTER TABLE that gives it these columns."""
        self.sources[name] = {**self.sources[name], "schema": schema}
        self._changed(name, "CHANGE COLUMN")
        return self

    def optimized(self, name: str) -> Self:
        """A version that changes no rows."""
        self._changed(name, "OPTIMIZE")
        return self

    def table(self, place: str | Path) -> MemoryTable:
        return MemoryTable(self.spark, str(place), "a table")

    def _changed(self, name: str, operation: str = "WRITE", **feed: list[Event]) -> None:
        schema = self.schema(name)
        told = {kind: self._arrow(found, schema) for kind, found in feed.items()}
        self.table(self.folder / name).change_source(self._arrow(self.there[name], schema), told, schema, operation)

    def _arrow(self, events: list[Event], schema: T.StructType) -> pa.Table:
        whole = [{field: event.get(field) for field in schema.names} for event in events]
        return pa.Table.from_pylist(whole, to_arrow_schema(schema, timezone="UTC"))

    # The jobs.

    @property
    def kind(self) -> Kind:
        return kind_of(self.spark, self.config)

    def at(self, number: float) -> Self:
        self.now = at(number)
        return self

    def init(self) -> Self:
        init(self.spark, self.config, None, self.said.append)
        return self

    def run(self, **options: Any) -> list[RunReport]:
        return run(self.spark, self.config, RunOptions(**{"now": self.now} | options), self.said.append)

    def runs(self, **events: str) -> Self:
        """What comes, and a run; the tables are made before the first."""
        self.comes(**events)
        if not self.table(self.config.sessions.table).exists():
            for name in self.sources:
                if not self.table(self.folder / name).exists():
                    self._changed(name)
            self.init()
        self.run()
        return self

    def slide(self) -> list[RunReport]:
        return slide(self.spark, self.config, RunOptions(now=self.now), self.said.append)

    def backfill(self, low: float, high: float) -> None:
        backfill(self.kind, LookBack(at(low), at(high), None, now=self.now))

    def readmit(self, low: float = 0, high: float = 1440) -> None:
        readmit(self.kind, LookBack(at(low), at(high), now=self.now))

    def rebuild(self) -> None:
        rebuild(self.kind, now=self.now)

    def verify(self) -> Verdict:
        return verify(self.spark, self.config, Asked())

    # What came out.

    def position(self) -> Manifest:
        manifest = self.kind.home.position().manifest
        assert manifest is not None
        return manifest

    def told(self, header: str, place: str | None = None) -> list[dict[str, Any]]:
        names = [name.strip() for name in header.split("|")]
        found = self.table(place or self.config.sessions.table).rows().to_pylist()
        told = [{name: _plain(row[SHORT.get(name, name)]) for name in names} for row in found]
        return in_order([{name: cell(value) for name, value in row.items()} for row in told])

    def assert_sessions(self, table: str, place: str | None = None) -> None:
        found, wanted = self.told(header_of(table), place), in_order(rows(table))
        assert found == wanted, f"found\n{drawn(found)}\nwanted\n{drawn(wanted)}"

    def assert_rejected(self, table: str) -> None:
        self.assert_sessions(table, self.config.outputs.rejected_events)

    def assert_clean(self) -> None:
        verdict = self.verify()
        assert verdict.clean, verdict


@contextmanager
def several(spark: SparkSession, folder: Path) -> Iterator[Callable[..., Several]]:
    """Makes plays; tables are there until its end."""
    with in_memory():
        yield lambda sources=None, **sections: Several(spark, folder, sources, **sections)


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value
