"""event_sessions and session_updates: every event has its session, whatever sessions go through."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.look_back import LookBack, backfill, readmit
from sessionizer.lib import columns as C
from tests.oracle import us
from tests.text_tables import clock
from tests.warehouse import Warehouse

RUNS = [
    [("ann", clock("10:00"), 1), ("ann", clock("10:50"), 2), ("bob", clock("10:00"), 3), ("bob", clock("10:00"), 3)],
    [("ann", clock("10:25"), 4), ("bob", clock("10:20"), 5)],  # bridges ann's two sessions
    [("ann", clock("9:55"), 6), ("bob", clock("15:00"), 7)],  # ann's session starts earlier: another id
    [("bob", clock("11:00"), 8), ("bob", clock("10:40"), 9)],  # late and amended
]


IDENTITY = ("user", C.EVENT_TIME, C.SESSION_ID)


def traced(spark: SparkSession, folder: Path, late_events: str = "amend", **sections: Any) -> Warehouse:
    outputs = {name: str(folder / name) for name in ("event_sessions", "session_updates")}
    time = {"allowed_lateness": "1h"}
    return Warehouse(spark, folder, outputs=outputs, late_events=late_events, time=time, **sections)


def sessions_by_range(warehouse: Warehouse) -> list[tuple[Any, ...]]:
    events = warehouse.tables.events.table.read().alias("e")
    sessions = warehouse.tables.sessions.table.read().alias("s")
    joined = events.join(sessions, "user").where("at BETWEEN session_start AND session_end")
    return warehouse.sorted_rows(joined.withColumnRenamed("at", C.EVENT_TIME), "user", C.EVENT_TIME, C.SESSION_ID)


@pytest.mark.slow
def test_every_event_has_its_session_after_every_run(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = traced(spark, tmp_path, source={"order_by": ["n"]})
    for number, events in enumerate(RUNS):
        warehouse.append(events)
        if not number:
            warehouse.init()
        warehouse.run()
        found = spark.read.format("delta").load(str(tmp_path / "event_sessions"))
        rows = warehouse.sorted_rows(found, "user", C.EVENT_TIME, C.SESSION_ID)
        assert rows == sessions_by_range(warehouse), number
    assert found.columns == ["user", "event_time", "n", "session_id", "run_id"]


@pytest.mark.slow
def test_every_event_has_its_session_after_late_ones_were_taken_in(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = traced(spark, tmp_path, late_events="quarantine", source={"order_by": ["n"]})
    for number, events in enumerate(RUNS):
        warehouse.append(events)
        if not number:
            warehouse.init()
        warehouse.run()
    assert warehouse.rejected("user") == [("bob",), ("bob",)]
    span = [us(clock(time)) for time in ("0:00", "10:50", "23:00")]
    told_again = (backfill, span[0], span[2])  # by then nothing is wrong, and no event may be told twice
    for take_in, low, high in ((backfill, span[0], span[1]), (readmit, span[1], span[2]), told_again):
        take_in(warehouse.kind, LookBack(low, high))
        events = warehouse.sorted_rows(warehouse.tables.event_outputs["event_sessions"].table.read(), *IDENTITY)
        ends = warehouse.tables.event_outputs["session_updates"].table.read().groupBy(C.SESSION_ID).agg({"n": "max"})
        assert warehouse.sorted_rows(ends, C.SESSION_ID, "max(n)") == warehouse.sessions(C.SESSION_ID, C.EVENT_COUNT)
    assert events == sessions_by_range(warehouse)
    assert warehouse.rejected("user") == []


@pytest.mark.slow
def test_running_aggregates_follow_arrival_and_end_at_the_session(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = traced(spark, tmp_path)
    told = []
    for number, events in enumerate(RUNS):
        warehouse.append(events)
        if not number:
            warehouse.init()
        warehouse.run()
        updates = spark.read.format("delta").load(str(tmp_path / "session_updates"))
        rows = warehouse.sorted_rows(updates, "user", C.EVENT_TIME, "n", "total")
        told.append([(user, at[11:16], n, total) for user, at, n, total in rows])
        ends = warehouse.sorted_rows(updates.groupBy(C.SESSION_ID).agg({"n": "max"}), C.SESSION_ID, "max(n)")
        assert ends == warehouse.sessions(C.SESSION_ID, C.EVENT_COUNT), number
    assert told[0] == [
        ("ann", "10:00", 1, 1),
        ("ann", "10:50", 1, 2),
        ("bob", "10:00", 1, 3),
        ("bob", "10:00", 2, 6),
    ]
    # Merged: the third event of the session came last.
    assert ("ann", "10:25", 3, 7) in told[1]
    assert ("ann", "09:55", 4, 13) in told[2]
    # Recomputed: in time order.
    assert [row for row in told[3] if row[0] == "bob"] == [
        ("bob", "10:00", 1, 3),
        ("bob", "10:00", 2, 6),
        ("bob", "10:20", 3, 11),
        ("bob", "10:40", 4, 20),
        ("bob", "11:00", 5, 28),
        ("bob", "15:00", 1, 7),
    ]
