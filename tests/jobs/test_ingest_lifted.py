"""Fields within objects that `--rename` lifts out, of files in which not every line has an object there."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.ingest.file_reader import IngestOptions
from sessionizer.lib.errors import UsageError
from tests.jobs.test_ingest import AT, Lake, lake_at

LIFTED = IngestOptions("json", rename={"user.id": "user_id"})


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return lake_at(spark, tmp_path, key=["user_id"])


def lines(users: Iterable[Any], **more: Any) -> str:
    return "".join(json.dumps({"user": user, "event_time": AT, **more}) + "\n" for user in users)


def test_an_odd_line_of_what_a_file_has_grown_by_is_rejected_alone(lake: Lake) -> None:
    file = lake.file("a.jsonl", lines([{"id": "a"}]))
    lake.ingest(LIFTED, file)
    with file.open("a") as end:
        end.write(lines([{"id": "b"}, "oops", None]))
    (report,) = lake.ingest(LIFTED, file)
    assert (report.added, report.unreadable, report.grown) == (2, 1, True)
    assert lake.rows("user_id", "user.id") == [("a", "a"), ("b", "b"), (None, None)]
    assert lake.reasons() == [(3, "user", "no STRUCT<ID:STRING>", "oops")]


def test_an_odd_line_of_the_first_file_is_rejected_alone(lake: Lake) -> None:
    users = [{"id": "a", "plan": {"name": "pro"}}, "oops", {"id": "b"}, "x\n{}", 7]
    taken = replace(LIFTED, rename={**LIFTED.rename, "user.plan.name": "plan"})
    (report,) = lake.ingest(taken, lake.file("a.jsonl", lines(users)))
    assert (report.added, report.unreadable) == (2, 3)
    assert lake.rows("user_id", "plan", "user.plan.name") == [("a", "pro", "pro"), ("b", None, None)]
    assert {column for _, column, _, _ in lake.reasons()} == {"user"}
    (report,) = lake.ingest(taken, lake.file("b.jsonl", lines(["oops", {"id": "c"}])))
    assert (report.added, report.unreadable) == (1, 1)
    assert lake.rows("user_id", "plan")[-1] == ("c", None)


def test_a_first_file_without_any_object_has_nulls(lake: Lake) -> None:
    lake.ingest(LIFTED, lake.file("a.jsonl", lines([None, None])))
    lake.ingest(LIFTED, lake.file("b.jsonl", lines([{"id": "b"}])))
    assert lake.rows("user_id", "user.id") == [("b", "b"), (None, None), (None, None)]


def test_a_name_with_a_dot_beside_a_text_is_optional_once_the_table_knows_it(lake: Lake) -> None:
    flat = json.dumps({"user": "bob", "user.id": "7", "event_time": AT}) + "\n"
    file = lake.file("a.jsonl", flat)
    lake.ingest(LIFTED, file)
    for users in (["eve"], [None], [{"x": 1}, "eve"]):
        with file.open("a") as end:
            end.write(lines(users))
        (report,) = lake.ingest(LIFTED, file)
        assert (report.added, report.unreadable) == (len(users), 0)
    assert len(lake.rows("user_id", "user")) == 5


def test_text_alone_is_no_object(lake: Lake) -> None:
    assert "in this file user is none" in lake.refused(UsageError, LIFTED, lake.file("a.jsonl", lines(["x", "y"])))


def test_a_known_column_is_not_nulled_by_a_column_of_texts(lake: Lake) -> None:
    flat = json.dumps({"user_id": "a", "event_time": AT}) + "\n"
    lake.ingest(IngestOptions("json"), lake.file("a.jsonl", flat))
    more = replace(LIFTED, add_columns=True)
    assert "got 'user.id'" in lake.refused(UsageError, more, lake.file("b.jsonl", lines(["x"])))
    lake.ingest(more, lake.file("c.jsonl", lines(["x"], user_id="c")))  # it has the column itself
    assert lake.rows("user_id") == [("a",), ("c",)]


def test_a_type_is_for_a_column_not_for_a_field(lake: Lake) -> None:
    file = lake.file("a.jsonl", lines([{"id": 7}]))
    message = lake.refused(UsageError, replace(LIFTED, schema="`user.id` string"), file)
    assert "--schema 'user struct<id: string, …>'" in message
    lake.ingest(replace(LIFTED, schema="user struct<id: string>"), file)
    assert lake.rows("user_id") == [("7",)]
