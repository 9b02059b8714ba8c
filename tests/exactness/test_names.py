"""The source may name its columns as it likes, as our own tables do, too."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.exactness.play import Play, minute

pytestmark = pytest.mark.slow

# Every name that a table of ours has.
OURS = (
    "event_time",
    *("session_id", "session_start", "session_end", "expires_at", "duration_seconds", "event_count"),
    *("status", "end_reason", "is_final", "is_late", "supersedes", "session_date", "run_id", "_state"),
    *("reason", "watermark", "horizon", "event", "event_hash", "ordinal", "source_version", "run_seq"),
    *("window_start", "window_end", "last_event_time", "mode", "accepted", "late", "invalid", "duplicates"),
    # What it is called in between.
    *("rejected", "there", "apart", "row", "rows", "place", "told", "waits", "stays", "found", "expected"),
)


@pytest.fixture(scope="module")
def named(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """A source with all these columns, in each of which an event has one text; one run adds, comes late and deletes."""
    aggregates: list[dict[str, Any]] = []
    for name in OURS:
        aggregates.append({"name": f"last {name}", "fn": "last", "of": f"`{name}`"})
        aggregates.append({"name": f"set {name}", "fn": "set", "of": f"`{name}`"})
    done = Play(spark, tmp_path_factory.mktemp("named"), aggregates=aggregates)
    add(done, ("a", 0, "view"), ("b", 1, "view"))
    done.init().run()
    add(done, ("a", 7, "pay"), ("b", 8, "buy"), ("a", -60, "old"))
    done.source("DELETE FROM {} WHERE u = 'b' AND event = 'view'").run()
    return done


def add(done: Play, *events: tuple[str, int, str]) -> None:
    rows = [(u, minute(at), *[text] * len(OURS)) for u, at, text in events]
    done.append(rows, ", ".join(["u STRING", "at TIMESTAMP", *[f"`{name}` STRING" for name in OURS]]))


@pytest.mark.parametrize("name", OURS)
def test_a_column_named_as_one_of_ours_is_aggregated_as_it_is(named: Play, name: str) -> None:
    named.assert_sessions(
        f"""
        u | start | end | last {name} | set {name}
        a | 0     | 7   | pay         | pay,view
        b | 8     | 8   | buy         | buy
        """
    )


@pytest.mark.parametrize("name", OURS)
def test_a_column_named_as_one_of_ours_is_rejected_as_it_is(named: Play, name: str) -> None:
    (row,) = named.rejected("event")
    assert json.loads(row[0])[name] == "old"


def test_a_row_with_columns_named_as_ours_is_rejected_by_its_own_hash(named: Play) -> None:
    (row,) = named.rejected("event_hash")
    own = {"at": "2025-12-31T23:00:00.000000Z", "u": "a"} | dict.fromkeys(OURS, "old")
    text = json.dumps(own, sort_keys=True, separators=(",", ":"))
    assert row[0] == hashlib.sha256(text.encode()).hexdigest()


def test_verify_takes_columns_named_as_ours_for_what_they_are(named: Play) -> None:
    named.assert_clean()


def test_verify_takes_a_key_for_what_it_is(spark: SparkSession, tmp_path: Path) -> None:
    source, outputs = {"key": ["too_many"]}, {"event_sessions": str(tmp_path / "event_sessions")}
    done = Play(spark, tmp_path, "too_many STRING, at TIMESTAMP, n INT", source=source, outputs=outputs)
    done.runs("too_many | at | n \n a | 0 | 1 \n b | 9 | 1")
    done.assert_clean()


def test_a_column_that_spark_calls_corrupt_is_read_back_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    bad, columns = "_corrupt_record", "u STRING, at TIMESTAMP, _corrupt_record STRING"
    of = [{"name": "bad", "fn": "count", "of": bad}]
    done = Play(spark, tmp_path, corrections={"deletes": "ignore"}, late_events="amend", aggregates=of)
    done.append([("a", minute(0), "x"), ("tick", minute(100), None)], columns)
    done.init().run()
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.append([("a", minute(5), None)], columns)
    done.run()
    done.assert_sessions("u | start | end | count | bad \n a | 0 | 5 | 2 | 1 \n tick | 100 | 100 | 1 | 0")
    done.assert_clean()
