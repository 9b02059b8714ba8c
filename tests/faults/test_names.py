"""Names that need quoting, or that are also ours: right sessions, or an error that says which name is in the way."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.init import init
from sessionizer.jobs.commands.look_back import LookBack, backfill
from sessionizer.jobs.commands.maintain import Asked as Care
from sessionizer.jobs.commands.maintain import maintain
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.jobs.queries.lookups import LookUp, as_documents
from sessionizer.jobs.queries.sql import documents, query_frame
from sessionizer.lib import columns as C
from sessionizer.lib.admission.validate import validate
from sessionizer.lib.bags import hashed
from sessionizer.lib.config import Config
from sessionizer.lib.errors import ConfigError, SourceError
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState
from sessionizer.tables.delta import CHANGE_FEED, Commit
from tests.frames import judge
from tests.oracle import us
from tests.text_tables import clock
from tests.warehouse import Warehouse

FOLDER = "ware house/événements #1%41 [a]{b}'q\"$x;--"
USER, SHOP, AT, AMOUNT, SEQUENCE, ID = "user id", "shop.`x`", "at; time", "größe (€)", "select", 'event "id"'
SUM, FIRST, ORDER, ALL = "sum, of n", "first.`page`", "order", "{all}=x"


def events(*rows: tuple[str, str, str, int, int]) -> list[tuple[Any, ...]]:
    return [(user, shop, clock(at), n, seq, f"{user}{seq}") for user, shop, at, n, seq in rows]


class Quoted(Warehouse):
    """A warehouse in which every name needs quotes."""

    def configured(self, **sections: Any) -> Config:
        place = self.folder / FOLDER
        return Config.model_validate(
            {
                "source": {
                    "table": str(place / "the events"),
                    "key": [USER, SHOP],
                    "event_time": AT,
                    "order_by": [SEQUENCE],
                    "where": f"`{AMOUNT}` <> -1",
                    "dedupe": {"by": [ID], "within": "1d"},
                },
                "sessions": {"table": str(place / "my sessions"), "change_feed": sections.get("change_feed", False)},
                "session": {"gap": "30m"},
                "time": {"allowed_lateness": "1h", "watermark": {"per": [SHOP]}},
                "aggregates": [
                    {"name": SUM, "fn": "sum", "of": AMOUNT},
                    {"name": FIRST, "fn": "first", "of": f"concat(`{USER}`, ':', `{SEQUENCE}`)"},
                    {"name": ORDER, "sql": f"`{SUM}` + event_count"},
                    {"name": ALL, "fn": "set", "of": SEQUENCE, "at_most": 2},
                ],
                "outputs": {
                    "event_sessions": str(place / "event'sessions"),
                    "session_updates": str(place / "session updates"),
                },
            }
        )

    def add(self, *rows: tuple[str, str, str, int, int]) -> None:
        names = (USER, SHOP, AT, AMOUNT, SEQUENCE, ID)
        kinds = ("STRING", "STRING", "TIMESTAMP", "INT", "INT", "STRING")
        quoted = [f"`{n.replace('`', '``')}` {k}" for n, k in zip(names, kinds, strict=True)]
        frame = self.spark.createDataFrame(events(*rows), ", ".join(quoted)).coalesce(1)
        source = self.tables.events.table
        source.create(frame.schema, [], {CHANGE_FEED: "true"})
        source.append(frame, Commit(f"rows {rows}", 1))


@pytest.mark.slow
def test_names_that_need_quotes_from_the_source_to_the_answer(spark: SparkSession, tmp_path: Path) -> None:
    lake = Quoted(spark, tmp_path)
    lake.add(("ann", "a", "10:00", 1, 1), ("ann", "a", "10:20", 2, 2), ("bob", "b", "10:00", 5, 1))
    with pytest.raises(ConfigError, match="a column name with a backtick does not go with"):
        init(spark, lake.configured(change_feed=True), None, lake.said.append)
    lake.init().run()
    lake.add(
        ("ann", "a", "10:40", 4, 3),
        ("ann", "a", "10:20", 2, 2),
        ("ann", "a", "15:00", 9, 4),
        ("x", "a", "15:00", -1, 1),
    )
    lake.run()
    lake.add(("ann", "a", "11:00", 8, 5), ("bob", "b", "09:40", 7, 2))
    lake.run()
    columns = (USER, SHOP, "event_count", SUM, FIRST, ORDER, ALL, f"{ALL}_truncated", "status")
    before = [
        ("ann", "a", 1, 9, "ann:4", 10, [4], False, "open"),
        ("ann", "a", 3, 7, "ann:1", 10, [1, 2], True, "final"),
        ("bob", "b", 2, 12, "bob:2", 14, [1, 2], False, "open"),
    ]
    assert lake.sessions(*columns) == before
    assert lake.rejected(USER, SHOP, "reason") == [("ann", "a", "duplicate"), ("ann", "a", "late")]
    assert verify(spark, lake.config, Asked(), lake.said.append).clean

    key = f'{{"{USER}": "ann", "{SHOP}": "a"}}'
    backfill(lake.kind, LookBack(us(clock("10:00")), us(clock("12:00")), (key,)), lake.said.append)
    after = [before[0], ("ann", "a", 4, 15, "ann:1", 19, [1, 2], True, "final"), before[2]]
    assert lake.sessions(*columns) == after
    assert verify(spark, lake.config, Asked(), lake.said.append).clean

    query = f"SELECT `{USER}`, `{SUM}`, `first.``page```, `{ORDER}` FROM sessions WHERE `shop.``x``` = 'b'"
    assert documents(query_frame(spark, lake.config, query)) == [{USER: "bob", SUM: 12, FIRST: "bob:2", ORDER: 14}]
    (found,) = as_documents(lake.tables, LookUp(key=("bob", "b")))
    assert (found[USER], found[SHOP], found[SUM]) == ("bob", "b", 12)
    traced = lake.tables.event_outputs["session_updates"].table.read()
    last = traced.where(traced["session_id"] == found["session_id"]).orderBy("n").collect()[-1]
    assert (last[USER], last[SUM], last[FIRST]) == ("bob", 12, "bob:2")
    assert lake.tables.event_outputs["event_sessions"].table.read().count() == 7
    maintain(spark, lake.config, Care(recent=0), lake.said.append)
    assert lake.sessions(*columns) == after


OURS = (
    "session_id",
    "event_hash",
    "_state",
    "status",
    "run_id",
    "is_final",
    "event",
    "reason",
    "ordinal",
    "n",
    "START",
)


@pytest.mark.slow
def test_source_columns_named_as_ours_are_values_like_others(spark: SparkSession, tmp_path: Path) -> None:
    aggregates = [{"name": f"of_{name}", "fn": "last", "of": name} for name in OURS]
    lake = Warehouse(spark, tmp_path, aggregates=aggregates, time={"allowed_lateness": "1h"})
    schema = "user STRING, at TIMESTAMP, " + ", ".join(f"`{name}` STRING" for name in OURS)

    def row(user: str, at: str, mark: str) -> tuple[Any, ...]:
        return (user, clock(at), *(f"{mark}{name}" for name in OURS))

    lake.append([row("ann", "10:00", "a"), row("ann", "10:10", "b"), row("bob", "10:00", "c")], schema)
    lake.init().run()
    lake.append([row("ann", "10:20", "d"), row("bob", "18:00", "e")], schema)
    lake.run()
    lake.append([row("bob", "10:10", "late")], schema)
    lake.run()
    found = lake.sessions("user", "event_count", *(f"of_{name}" for name in OURS))
    assert found == [
        ("ann", 3, *(f"d{name}" for name in OURS)),
        ("bob", 1, *(f"c{name}" for name in OURS)),
        ("bob", 1, *(f"e{name}" for name in OURS)),
    ]
    ((reason, event),) = lake.rejected("reason", "event")
    assert (reason, '"_state":"late_state"' in event) == ("late", True)
    assert verify(spark, lake.config, Asked(), lake.said.append).clean
    day = timedelta(days=1) // timedelta(microseconds=1)
    backfill(lake.kind, LookBack(us(clock("00:00")), us(clock("00:00")) + day), lake.said.append)
    assert verify(spark, lake.config, Asked(), lake.said.append).clean
    assert lake.sessions("user", "event_count") == [("ann", 3), ("bob", 1), ("bob", 2)]


RULE = Rule(key=("user",), gap=1, event_time="at")


@pytest.mark.parametrize("name", ["__us", "__mine", "__verdict", "__0_value", "__op", "__age"])
def test_a_source_column_named_as_those_in_flight_is_refused(spark: SparkSession, name: str) -> None:
    events = spark.createDataFrame([], f"user STRING, at TIMESTAMP, `{name}` STRING")
    with pytest.raises(SourceError, match="begins with __") as caught:
        validate(events, Rule(key=("user",), gap=1, event_time="at"), WatermarkState(now=0))
    assert (caught.value.value, "rename it" in caught.value.remedy) == (name, True)
    with pytest.raises(SourceError, match="begins with __"):
        judge(events, RULE, WatermarkState(now=0))


@pytest.mark.parametrize("name", ["session_id", "EVENT", "event_hash"])
def test_where_events_are_told_apart_source_columns_may_be_named_as_ours(spark: SparkSession, name: str) -> None:
    events = spark.createDataFrame([], f"user STRING, at TIMESTAMP, `{name}` STRING")
    for rule in (RULE, replace(RULE, tells_events=True)):
        assert judge(events, rule, WatermarkState(now=0)).columns[:3] == ["user", "at", name]
        told = hashed(judge(events, rule, WatermarkState(now=0)))
        assert told.select(C.JSON, C.HASH, C.col(name)).columns == [C.JSON, C.HASH, name]


def config(**source: Any) -> Config:
    others = {name: source.pop(name) for name in ("aggregates", "outputs") if name in source}
    return Config.model_validate(
        {"source": {"table": "e", "key": ["user"]} | source, "sessions": {"table": "s"}} | others
    )


@pytest.mark.parametrize(
    "name", ["session_id", "STATUS", "_state", "event_hash", "_change_type", "Event_Time", "run_seq"]
)
def test_a_key_column_named_as_one_of_ours_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must not name a column that the written tables have of their own"):
        config(key=[name])


@pytest.mark.parametrize("name", ["User", "session_id", "EVENT_COUNT", "run_id", "is_final", "supersedes"])
def test_an_aggregate_named_as_another_column_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must have names that nothing else in the sessions table has"):
        config(aggregates=[{"name": name, "fn": "count"}])


@pytest.mark.parametrize(
    ("table", "of"),
    [
        ("session_updates", {"aggregates": [{"name": "n", "fn": "count"}]}),
        ("session_updates", {"aggregates": [{"name": "Event_Time", "fn": "count"}]}),
        ("session_updates", {"key": ["N"]}),
        ("event_sessions", {"order_by": ["session_id"]}),
        ("event_sessions", {"order_by": ["a", "A"]}),
        ("event_sessions", {"order_by": ["event_time"], "event_time": "at"}),
    ],
)
def test_two_columns_of_one_name_in_an_optional_table_are_refused(table: str, of: dict[str, Any]) -> None:
    config(**of)
    with pytest.raises(ValueError, match=f"outputs.{table} must not have two columns of one name"):
        config(outputs={table: "t"}, **of)


def test_events_may_be_ordered_by_their_key_and_time_where_sessions_of_events_are_kept() -> None:
    config(outputs={"event_sessions": "t"}, key=["user"], order_by=["event_time", "User", "n"], event_time="event_time")


@pytest.mark.parametrize("name", ["_state", "__x", "_"])
def test_an_aggregate_that_begins_as_ours_do_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must not have a name that starts with _"):
        config(aggregates=[{"name": name, "fn": "count"}])


def test_names_that_differ_only_in_capitals_are_one_name() -> None:
    for broken in (
        {"key": ["user", "USER"]},
        {"aggregates": [{"name": "a", "fn": "count"}, {"name": "A", "fn": "count"}]},
    ):
        with pytest.raises(ValueError, match=r"must (name each column once|have names that nothing else)"):
            config(**broken)


@pytest.mark.parametrize("table", ["ware`house/e", "s3a://bucket/e`", "./`e`"])
def test_a_folder_where_delta_makes_no_table_is_refused(table: str) -> None:
    with pytest.raises(ValueError, match="must not hold a backtick"):
        config(table=table)
