"""A column of the source that is widened stops no run, and no state goes on with values of two types."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.exactness.play import WIDENING, Play, SessionizerError

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
EVENTS = "u STRING, at TIMESTAMP, n INT, w FLOAT"
FIRST = """
    u    | at  | n | w
    tick | 100 | 1 | 0.1
    """
WIDER = "ALTER TABLE {} ALTER COLUMN w TYPE DOUBLE"
BY_N = {"dedupe": {"by": ["n"], "within": "1h"}}


def came(user: str, minute: int, n: int, w: str) -> str:
    """By SQL: other writers than Spark do not know such tables."""
    return f"INSERT INTO {{}} VALUES ('{user}', TIMESTAMP'2026-01-01' + INTERVAL {minute} MINUTES, {n}, {w})"


@pytest.mark.parametrize("mapped", [False, True])
def test_what_came_before_a_column_was_widened_is_read_as_it_was(play: Plays, mapped: bool) -> None:
    done = play(FIRST, schema=EVENTS, source=BY_N, time={"allowed_lateness": "1d"})
    done.source(WIDENING)
    if mapped:
        done.source("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    done.run()
    done.source(came("a", 101, 2, "0.1")).source(came("a", 101, 2, "0.1"))
    done.source(WIDER)
    done.source(came("a", 102, 3, "0.1")).run()
    done.assert_sessions("u | start | end | count \n a | 101 | 102 | 2 \n tick | 100 | 100 | 1")
    done.assert_rejected("u | event_time | reason \n a | 101 | duplicate")
    done.assert_clean()
    done.source("DELETE FROM {} WHERE n = 2").run()
    done.assert_sessions("u | start | end | count \n a | 102 | 102 | 1 \n tick | 100 | 100 | 1")
    done.assert_rejected("u | reason")
    done.assert_clean()


def test_a_write_that_widens_a_column_on_its_way_is_read_as_well(play: Plays) -> None:
    done = play(FIRST, schema=EVENTS)
    done.source(WIDENING).run()
    done.source(came("a", 101, 2, "0.5"))
    wider = done.spark.createDataFrame([("a", 3, 1.5)], "u STRING, n INT, w DOUBLE").selectExpr(
        "u", "TIMESTAMP'2026-01-01 01:42:00' AS at", "n", "w"
    )
    wider.write.format("delta").mode("append").option("mergeSchema", "true").save(done.config.source.table)
    done.source(came("a", 103, 4, "2.5")).run()
    done.assert_sessions("u | start | end | count | total \n a | 101 | 103 | 3 | 9 \n tick | 100 | 100 | 1 | 1")
    done.assert_clean()


def test_an_approximate_count_does_not_go_on_with_values_of_another_type(play: Plays) -> None:
    kinds = [{"name": "kinds", "fn": "approx_count_distinct", "of": "w"}]
    done = play(FIRST, schema=EVENTS, time={"allowed_lateness": "1d"}, aggregates=kinds)
    done.source(WIDENING).source(WIDER).source(came("tick", 101, 2, "0.5"))
    with pytest.raises(SessionizerError, match="rebuild"):
        done.run()
    done.rebuild()
    done.assert_sessions("u | start | end | kinds \n tick | 100 | 101 | 2")
    done.assert_clean()


def test_an_event_whose_expression_has_a_value_by_wider_columns_is_readmitted(play: Plays) -> None:
    total = [{"name": "total", "fn": "sum", "of": "n * 1000000"}]
    done = play(FIRST, schema=EVENTS, time={"allowed_lateness": "1d"}, aggregates=total)
    done.source(WIDENING).source(came("a", 101, 5000, "0.1")).run()
    done.assert_rejected("u | reason \n a | expression_failed")
    done.assert_clean()
    done.source(WIDER.replace(" w TYPE DOUBLE", " n TYPE BIGINT")).source(came("tick", 101, 2, "0.5")).run()
    done.assert_clean()  # it stays until somebody asks for it
    done.readmit()
    done.assert_rejected("u | reason")
    done.assert_sessions("u | start | end | total \n a | 101 | 101 | 5000000000 \n tick | 100 | 101 | 3000000")
    done.assert_clean()


def test_a_struct_that_gains_a_part_is_no_other_type(play: Plays) -> None:
    done = play(FIRST, schema=EVENTS)
    done.source("ALTER TABLE {} ADD COLUMN props STRUCT<a: INT>").run()
    row = "INSERT INTO {{}} VALUES ('a', TIMESTAMP'2026-01-01 01:4{0}:00', 2, 0.5, {1})"
    done.source(row.format(1, "named_struct('a', 1)"))
    done.source("ALTER TABLE {} ADD COLUMN props.b INT")
    done.source(row.format(2, "named_struct('a', 1, 'b', 2)"))
    done.run()
    done.assert_sessions("u | start | end | count | total \n a | 101 | 102 | 2 | 4 \n tick | 100 | 100 | 1 | 1")
    done.assert_clean()


def test_a_column_of_the_order_that_is_widened_is_told_before_anything_is_written(play: Plays, tmp_path: Path) -> None:
    """The optional tables have it, too; behind the commit nothing could be written to them any more."""
    ordered = {"order_by": ["n"]}
    done = play(FIRST, schema=EVENTS, source=ordered, outputs={"event_sessions": str(tmp_path / "of")})
    done.source(WIDENING).source(WIDER.replace(" w TYPE DOUBLE", " n TYPE BIGINT")).source(came("tick", 101, 2, "0.5"))
    with pytest.raises(SessionizerError, match=r"outputs.event_sessions must have the columns.*rebuild"):
        done.run()
    done.assert_sessions("u | start | end | count \n tick | 100 | 100 | 1")
    done.rebuild()
    done.assert_sessions("u | start | end | count \n tick | 100 | 101 | 2")
    done.assert_clean()
