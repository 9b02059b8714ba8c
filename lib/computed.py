"""Frames computed once, and told about in the same pass."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame, Observation

_held: ContextVar[list[DataFrame] | None] = ContextVar("_held", default=None)


def computed(frame: DataFrame, metrics: Mapping[str, Column]) -> tuple[DataFrame, dict[str, int | None]]:
    """The frame, computed once and held by the executors, and figures about it from the same pass."""
    observation = Observation()
    return held(frame.observe(observation, *[c.alias(n) for n, c in metrics.items()])), observation.get


def held(frame: DataFrame) -> DataFrame:
    """The frame, computed once and held by the executors: until `given_back` ends around it, or nobody refers to it."""
    kept = frame.localCheckpoint()
    if (frames := _held.get()) is not None:
        frames.append(kept)
    return kept


@contextmanager
def given_back() -> Iterator[None]:
    """At its end the executors forget what they held within; else they would until Java next collects its garbage."""
    frames: list[DataFrame] = []
    token = _held.set(frames)
    try:
        yield
    finally:
        _held.reset(token)
        with suppress(Py4JError):  # where Spark has stopped, there is nothing to give back
            for frame in frames:
                frame._jdf.logicalPlan().rdd().unpersist(False)


def outlasting(frame: DataFrame) -> DataFrame:
    """The frame, which is still to be read after `given_back`: all that is held so far stays."""
    if (frames := _held.get()) is not None:
        frames.clear()
    return frame
