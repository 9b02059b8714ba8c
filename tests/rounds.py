"""How often what is drawn at random is played: once in `make test-all`, thrice in `make test-soak`."""

import os
from math import ceil

TIMES = float(os.environ.get("SESSIONIZER_TEST_TIMES", "1"))


def rounds(number: int) -> int:
    """So many rounds, times SESSIONIZER_TEST_TIMES."""
    return ceil(number * TIMES)
