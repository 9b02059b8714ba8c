"""Frames computed once, and told about in the same pass: what the pure steps of `lib` ask for."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame, Observation, Row

from sessionizer.lib.compute import Figures
from sessionizer.lib.engine import is_remote, release
from sessionizer.lib.time.spans import Spans
from sessionizer.tables.delta import Table
from sessionizer.tables.event_tables import Events

Rows = TypeVar("Rows", DataFrame, DataFrame | None)
FEW, MANY = 4 << 20, 32 << 20  # bytes

_checkpointed: ContextVar[list[DataFrame] | None] = ContextVar("_checkpointed", default=None)


@dataclass(frozen=True)
class Checkpoints:
    """Frames are held by the executors: until `given_back` ends around it, or nobody refers to them.

    size: bytes of the source that are read, as far as it is known.
    """

    size: int = 0

    def held(self, frame: DataFrame) -> DataFrame:
        """The frame, computed once."""
        kept = frame.localCheckpoint()
        if (frames := _checkpointed.get()) is not None:
            frames.append(kept)
        return kept

    def observed(self, frame: DataFrame, figures: Mapping[str, Column]) -> tuple[DataFrame, Figures]:
        """The same, and aggregates over it: from the same pass, or of many rows by a job that is compiled for it."""
        if self.size <= MANY:
            told, figures_of = self.counting(frame, figures)
            return (told if is_remote(frame.sparkSession) else self.held(told)), figures_of()
        kept = self.held(frame)
        return kept, _told(kept, figures)

    def counting(self, frame: DataFrame, figures: Mapping[str, Column]) -> tuple[DataFrame, Callable[[], Figures]]:
        """The frame as it is, and aggregates over it, once it has been written."""
        if is_remote(frame.sparkSession):  # whose local checkpoints tell nothing of what they have observed
            kept = self.held(frame)
            found = _told(kept, figures)
            return kept, lambda: found
        observation = Observation()
        return frame.observe(observation, *_named(figures)), lambda: observation.get

    def rows(self, frame: DataFrame) -> list[Row]:
        """The rows of a frame that has few."""
        return frame.collect()


class Planned:
    """Computes nothing: for whoever wants to know columns alone."""

    def held(self, frame: DataFrame) -> DataFrame:
        """The frame as it is."""
        return frame

    def observed(self, frame: DataFrame, figures: Mapping[str, Column]) -> tuple[DataFrame, Figures]:
        """The same, and nothing of it."""
        return frame, dict.fromkeys(figures, 0)

    def counting(self, frame: DataFrame, figures: Mapping[str, Column]) -> tuple[DataFrame, Callable[[], Figures]]:
        """The same."""
        return frame, lambda: dict.fromkeys(figures, 0)

    def rows(self, frame: DataFrame) -> list[Row]:
        """None."""
        return []


def _told(kept: DataFrame, figures: Mapping[str, Column]) -> Figures:
    return kept.agg(*_named(figures)).collect()[0].asDict()


def _named(figures: Mapping[str, Column]) -> list[Column]:
    return [column.alias(name) for name, column in figures.items()]


def held_if_few(rows: Rows, table: Table) -> Rows:
    """Rows of a small table that are read several times: each time Delta has a job of its own choose the files."""
    return rows if rows is None or table.size()[1] > FEW else Checkpoints().held(rows)


def read_once_if_few(
    read: Callable[[Spans | None], DataFrame], table: Table | Events
) -> Callable[[Spans | None], DataFrame]:
    """The same, which reads a small table once, at the first call, and gives all its rows whatever it is asked for."""

    @cache
    def few() -> DataFrame | None:
        return Checkpoints().held(read(None)) if table.size()[1] <= FEW else None

    return lambda spans: read(spans) if (rows := few()) is None else rows


@contextmanager
def given_back() -> Iterator[None]:
    """At its end the executors forget what they held within; else they would until Java next collects its garbage."""
    frames: list[DataFrame] = []
    token = _checkpointed.set(frames)
    try:
        yield
    finally:
        _checkpointed.reset(token)
        with suppress(Py4JError, OSError):  # where Spark has ended, there is nothing to give back
            for frame in frames:
                release(frame)


def outlasting(frame: DataFrame) -> DataFrame:
    """The frame, which is still to be read after `given_back`: all that is held so far stays."""
    if (frames := _checkpointed.get()) is not None:
        frames.clear()
    return frame
