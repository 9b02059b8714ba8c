"""Where the chunks of a long backfill begin and end."""

from datetime import datetime, timedelta
from math import ceil

MOST = 1_000  # Airflow maps a task over 1,024 things at most, unless its `core.max_map_length` says otherwise


def edges(low: datetime, high: datetime, days: int) -> list[datetime]:
    """The edges of chunks of so many days; of more where there would be too many of them."""
    length = timedelta(days=max(days, ceil((high - low) / timedelta(days=MOST))))
    found = [low]
    while found[-1] < high:
        found.append(found[-1] + min(length, high - found[-1]))
    return found
