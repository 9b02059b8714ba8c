"""How long Delta says that it keeps removed files."""

import pytest

from sessionizer.lib.durations import DAY, HOUR
from sessionizer.tables.queries.status import microseconds_of


@pytest.mark.parametrize(
    ("interval", "microseconds"),
    [
        ("interval 30 days", 30 * DAY),
        ("interval 1 week", 7 * DAY),
        ("interval 2 weeks 1 day 12 hours", 15 * DAY + 12 * HOUR),
    ],
)
def test_an_interval_of_a_table_property_is_read(interval: str, microseconds: int) -> None:
    assert microseconds_of(interval) == microseconds
