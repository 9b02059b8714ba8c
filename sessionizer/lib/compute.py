"""How frames are computed: `lib` says what, whoever composes its steps does it."""

from collections.abc import Callable, Mapping
from typing import Protocol

from pyspark.sql import Column, DataFrame, Row

Figures = Mapping[str, int | None]


class Compute(Protocol):
    """What a step may ask for. Each starts one job of Spark's."""

    def held(self, frame: DataFrame) -> DataFrame:
        """The frame, computed once: what follows reads the checkpoint."""

    def observed(self, frame: DataFrame, figures: Mapping[str, Column]) -> tuple[DataFrame, Figures]:
        """The same, and aggregates over it."""

    def counting(self, frame: DataFrame, figures: Mapping[str, Column]) -> tuple[DataFrame, Callable[[], Figures]]:
        """The frame, computed by whoever writes it, and aggregates over it, which are known then. Starts no job."""

    def rows(self, frame: DataFrame) -> list[Row]:
        """The rows of a frame that has few."""
