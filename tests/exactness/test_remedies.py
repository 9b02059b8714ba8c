"""Rows that somebody has changed by hand: `verify` sees it, a `backfill` makes most of them right, `rebuild` all."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.look_back import LookBack, backfill
from tests.exactness.play import Play, at
from tests.exactness.slides import slides

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def apart(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """Ordinary sessions, and one of a late event apart."""
    made = Play(spark, tmp_path_factory.mktemp("apart"), late_events="separate").runs("tick@100 b@95 c@94 | a@5")
    made.assert_clean()
    return made


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE {} SET total = 9 WHERE u = 'b'",
        "UPDATE {} SET u = 'z' WHERE u = 'b'",
        "UPDATE {} SET is_late = true WHERE u = 'b'",
        "UPDATE {} SET total = 9 WHERE is_late",
        "UPDATE {} SET is_late = false WHERE is_late",
        "DELETE FROM {} WHERE is_late",
    ],
)
def test_a_backfill_makes_rows_right(copied: Callable[..., Play], apart: Play, damage: str) -> None:
    done = copied(apart)
    done.damage(damage)
    assert not done.verify().clean
    done.backfill(-2000, 4000)
    done.assert_clean()


def test_a_row_that_has_got_another_key_by_hand_is_not_a_new_one(copied: Callable[..., Play], apart: Play) -> None:
    done = copied(apart)
    done.damage("UPDATE {} SET u = 'z' WHERE u = 'b'")
    (report,) = backfill(done.kind, LookBack(at(90), at(100)))
    told = report.manifest.sessions
    assert [told[name] for name in ("rows", "updated", "created", "extended", "live_change")] == [1, 1, 0, 1, 0]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE {} SET session_id = 'x' WHERE is_late",
        "UPDATE {} SET u = 'z' WHERE is_late",
        "INSERT INTO {} SELECT * FROM {} WHERE u = 'b'",
        "UPDATE {} SET session_id = (SELECT max(session_id) FROM {} WHERE u = 'c') WHERE u = 'b'",
        "UPDATE {} SET session_start = session_start + INTERVAL 1 HOUR WHERE u = 'b'",
    ],
)
def test_a_rebuild_makes_all_right(copied: Callable[..., Play], apart: Play, damage: str) -> None:
    done = copied(apart)
    done.damage(damage)
    assert not done.verify().clean
    done.rebuild().assert_clean()


@pytest.mark.parametrize("damage", ["UPDATE {} SET u = 'z' WHERE u = 'a'", "DELETE FROM {} WHERE u = 'a'"])
def test_a_backfill_makes_windows_right(spark: SparkSession, tmp_path: Path, damage: str) -> None:
    done = slides(spark, tmp_path, "a@5 a@7 tick@50 | tick@100")
    done.damage(damage)
    assert not done.verify().clean
    done.backfill(-2000, 4000)
    done.assert_clean()


def test_a_rebuild_makes_windows_right_that_are_there_twice(spark: SparkSession, tmp_path: Path) -> None:
    done = slides(spark, tmp_path, "a@5 a@7 tick@50 | tick@100")
    done.damage("INSERT INTO {} SELECT * FROM {} WHERE u = 'a'")
    assert not done.verify().clean
    done.rebuild().assert_clean()
