"""Frames computed once, and told about in the same pass."""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Observation


def computed(frame: DataFrame, metrics: Mapping[str, Column]) -> tuple[DataFrame, dict[str, int | None]]:
    """The frame, computed once and held by the executors, and figures about it from the same pass."""
    observation = Observation()
    held = frame.observe(observation, *[c.alias(n) for n, c in metrics.items()]).localCheckpoint()
    return held, observation.get
