"""Over real tables, after any increments: the sessions are those of the accepted events, the late ones are rejected."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests import oracle
from tests.properties.test_order_never_matters import AGGREGATES, differences, rows_of
from tests.warehouse import Warehouse

CASES, RUNS = 30, 3
KEY = ["case", "user"]
SCHEMA = "`case` INT, user STRING, at TIMESTAMP, o INT, x INT"
users = st.sampled_from(["a", "b", "ß🙂", None])
event = st.tuples(users, st.integers(-12, 13), st.integers(0, 1), st.one_of(st.none(), st.integers(-3, 3)))
case = st.lists(st.tuples(event, st.integers(0, RUNS - 1)), max_size=12)


@settings(max_examples=3, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    drawn=st.lists(case, min_size=CASES, max_size=CASES),
    gap=st.sampled_from([1, 2, 3, 20]),
    boundary=st.sampled_from(["joins", "splits"]),
    lateness=st.sampled_from([0, 3, 30]),
)
@pytest.mark.broad
def test_sessions_are_those_of_the_accepted_events(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[Any],
    gap: int,
    boundary: str,
    lateness: int,
) -> None:
    warehouse = warehouse_at(spark, tmp_path_factory.mktemp("lake"), gap, boundary, lateness)
    accepted: list[oracle.Row] = []
    late: list[tuple[Any, ...]] = []
    watermark, counted = None, 0
    for number in range(RUNS):
        events = [
            {"case": c, "user": u, "t": t, "o": o, "x": x}
            for c, of_case in enumerate(drawn)
            for (u, t, o, x), run in of_case
            if run == number
        ]
        warehouse.append([(e["case"], e["user"], oracle.at(e["t"]), e["o"], e["x"]) for e in events], SCHEMA)
        if number == 0:
            warehouse.init()
        reports = warehouse.run(now=10**15)

        valid = [e for e in events if e["user"] is not None]
        too_old = [e for e in valid if watermark is not None and e["t"] < watermark - lateness]
        accepted += [e for e in valid if e not in too_old]
        late += [(e["case"], e["user"], e["t"]) for e in too_old]
        watermark = max([e["t"] for e in valid] + ([] if watermark is None else [watermark]), default=None)
        assert len(reports) == (1 if events or number == 0 else 0)  # Delta makes no version of no rows
        for report in reports:
            seen = report.manifest.events
            assert seen["events_read"] == len(events) == seen["accepted"] + seen["late"] + seen["invalid"]
        counted += len(reports)

    expected = oracle.sessions(accepted, KEY, gap, boundary == "splits", lateness)
    found = rows_of(warehouse.tables.sessions.table.read())
    assert not differences(found, sorted(expected, key=lambda r: r["session_id"]))
    rejected = warehouse.tables.rejected_events.table.read().where("reason = 'late'")
    times = rejected.select(*KEY, F.unix_micros("event_time")).collect()
    assert sorted(tuple(row) for row in times) == sorted(late)
    ledger = warehouse.tables.runs.table.read().agg(F.count("*"), F.sum("events_read")).collect()[0]
    assert tuple(ledger) == (counted, sum(len(of_case) for of_case in drawn))


def warehouse_at(spark: SparkSession, folder: Path, gap: int, boundary: str, lateness: int) -> Warehouse:
    return Warehouse(
        spark,
        folder,
        source={"key": KEY, "order_by": ["o"]},
        session={"gap": f"{gap}us", "gap_boundary": boundary},
        time={"allowed_lateness": f"{lateness}us", "max_future_skew": "0s"},
        aggregates=[a.model_dump() for a in AGGREGATES],
    )
