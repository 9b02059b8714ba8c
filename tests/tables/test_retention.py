"""How long Delta says that it keeps removed files."""

import pytest

from sessionizer.lib.durations import DAY, HOUR
from sessionizer.tables.delta.logs.state import interval_of
from sessionizer.tables.queries.status import microseconds_of


@pytest.mark.parametrize(
    ("interval", "microseconds"),
    [
        ("interval 30 days", 30 * DAY),
        ("interval 1 week", 7 * DAY),
        ("INTERVAL 30 DAYS", 30 * DAY),
        ("30 days", 30 * DAY),
        ("interval 2 weeks 1 day 12 hours", 15 * DAY + 12 * HOUR),
    ],
)
def test_an_interval_of_a_table_property_is_read(interval: str, microseconds: int) -> None:
    assert microseconds_of(interval) == microseconds


def test_an_interval_is_sql_with_and_without_its_first_word() -> None:
    texts = ("interval 30 days", "INTERVAL 30 DAYS", "30 days")
    assert [interval_of(text) for text in texts] == ["interval 30 days", "INTERVAL 30 DAYS", "INTERVAL 30 days"]
