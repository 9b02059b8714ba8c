"""The change feed, compacted: what has become of each session between two versions."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from sessionizer.lib.reading.net_changes import net_changes

FEED = "session_id STRING, n INT, tags MAP<STRING, INT>, _change_type STRING, _commit_version BIGINT"


def net(spark: SparkSession, *feed: str, held: Sequence[int] = ()) -> list[tuple[Any, ...]]:
    """Feed rows as `id n type version`; the map has its entries in another order in every odd version."""
    lines = [line.split() for line in feed]
    made = [
        (i, int(n), dict(sorted({"a": 1, "b": int(n)}.items(), reverse=int(v) % 2 == 1)), kind, int(v))
        for i, n, kind, v in lines
    ]
    found = net_changes(spark.createDataFrame(made, FEED), ("session_id", "n", "tags"), held=held)
    assert found.columns == ["change", "session_id", "n", "tags"]
    return sorted((row[0], row[1], row[2]) for row in found.collect())


def test_each_session_is_told_once(spark: SparkSession) -> None:
    found = net(
        spark,
        *("new 1 insert 3", "new 1 update_preimage 4", "new 2 update_postimage 4"),
        *("grown 1 update_preimage 3", "grown 2 update_postimage 3"),
        *("grown 2 update_preimage 5", "grown 3 update_postimage 5"),
        *("gone 1 update_preimage 3", "gone 2 update_postimage 3", "gone 2 delete 4"),
        *("passing 1 insert 3", "passing 1 delete 4"),
        *("back 1 delete 3", "back 2 insert 4"),
    )
    assert found == [
        ("delete", "gone", 2),
        ("insert", "new", 2),
        ("update", "back", 2),
        ("update", "grown", 3),
    ]


def test_what_is_put_back_as_it_was_is_no_change(spark: SparkSession) -> None:
    found = net(
        spark,
        *("same 1 delete 4", "same 1 insert 4"),  # a RESTORE moves whole files
        *("undone 1 update_preimage 3", "undone 2 update_postimage 3", "undone 2 delete 5", "undone 1 insert 5"),
        *("never 1 insert 3", "never 1 delete 4"),
        *("other 1 delete 4", "other 2 insert 4"),
    )
    assert found == [("update", "other", 2)]


def test_what_a_consumer_may_hold_counts_as_well(spark: SparkSession) -> None:
    feed = (
        *("changed 1 update_preimage 4", "changed 9 update_postimage 4", "changed 9 delete 5", "changed 1 insert 5"),
        *("deleted 1 delete 4", "deleted 1 insert 5"),
        *("added 1 insert 4", "added 1 delete 5"),
        *("moved 1 delete 4", "moved 1 insert 4", "moved 1 delete 5", "moved 1 insert 5"),
        *("undone 1 update_preimage 3", "undone 2 update_postimage 3", "undone 2 delete 5", "undone 1 insert 5"),
        *("passing 1 insert 3", "passing 1 delete 5"),
    )
    assert net(spark, *feed) == []
    assert net(spark, *feed, held=(4, 5)) == [
        ("delete", "added", 1),
        ("update", "changed", 1),
        ("update", "deleted", 1),
    ]
