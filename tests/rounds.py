"""How often what is drawn at random is played: once in `make test-all`, thrice in `make test-soak`."""

import os
from collections.abc import Sequence
from math import ceil
from typing import TypeVar

One = TypeVar("One")
TIMES = float(os.environ.get("SESSIONIZER_TEST_TIMES", "1"))


def rounds(number: int) -> int:
    """So many rounds, times SESSIONIZER_TEST_TIMES."""
    return ceil(number * TIMES)


def one_in(number: int, items: Sequence[One]) -> list[One]:
    """The last of so many, and of the next; more of them where SESSIONIZER_TEST_TIMES says so."""
    return list(items[:: -max(1, ceil(number / TIMES))])
