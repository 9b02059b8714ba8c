"""Rows that somebody has changed by hand: what `verify` says makes them right does so."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.exactness.play import Play
from tests.exactness.slides import slides

pytestmark = pytest.mark.slow

BOTH, ALONE = ("backfill", "rebuild"), ("rebuild",)


@pytest.fixture(scope="module")
def apart(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """Ordinary sessions, and one of a late event apart."""
    made = Play(spark, tmp_path_factory.mktemp("apart"), late_events="separate").runs("tick@100 b@95 c@94 | a@5")
    assert made.verify().remedies == ()
    return made


@pytest.mark.parametrize(
    ("damage", "remedies"),
    [
        ("UPDATE {} SET total = 9 WHERE u = 'b'", BOTH),
        ("UPDATE {} SET u = 'z' WHERE u = 'b'", BOTH),
        ("UPDATE {} SET total = 9 WHERE is_late", BOTH),
        ("UPDATE {} SET is_late = false WHERE is_late", BOTH),
        ("DELETE FROM {} WHERE is_late", BOTH),
        ("UPDATE {} SET session_id = 'x' WHERE is_late", ALONE),
        ("UPDATE {} SET u = 'z' WHERE is_late", ALONE),
        ("UPDATE {} SET is_late = true WHERE u = 'b'", BOTH),
        ("INSERT INTO {} SELECT * FROM {} WHERE u = 'b'", ALONE),
        ("UPDATE {} SET session_id = (SELECT max(session_id) FROM {} WHERE u = 'c') WHERE u = 'b'", ALONE),
    ],
)
def test_the_commands_that_verify_names_make_the_table_right(
    copied: Callable[..., Play], apart: Play, damage: str, remedies: tuple[str, ...]
) -> None:
    done = copied(apart)
    done.damage(damage)
    assert done.verify().remedies == remedies
    if "backfill" in remedies:
        done.backfill(-2000, 4000)
    else:
        done.rebuild()
    done.assert_clean()


@pytest.mark.parametrize(
    ("damage", "remedies"),
    [
        ("UPDATE {} SET u = 'z' WHERE u = 'a'", BOTH),
        ("UPDATE {} SET event_count = 9 WHERE u = 'a'", BOTH),
        ("INSERT INTO {} SELECT * FROM {} WHERE u = 'a'", ALONE),
    ],
)
def test_of_windows_too(spark: SparkSession, tmp_path: Path, damage: str, remedies: tuple[str, ...]) -> None:
    done = slides(spark, tmp_path, "a@5 a@7 tick@50 | tick@100")
    done.damage(damage)
    assert done.verify().remedies == remedies
    if "backfill" in remedies:
        done.backfill(-2000, 4000)
    else:
        done.rebuild()
    done.assert_clean()
