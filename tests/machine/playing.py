"""A history played to its first difference, and made small where there is one."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sessionizer.lib.errors import SessionizerError
from tests.machine.comparing import Difference
from tests.machine.drawing import reproduction
from tests.machine.places import Place
from tests.machine.player import Player
from tests.machine.rule import Rule
from tests.machine.shrinking import numbers, shrunk
from tests.machine.steps import OWN, Restore, Step

Over = Callable[[SparkSession, Path, Rule], AbstractContextManager[Place]]


class Played:
    """Histories of one configuration in places of one kind. verifies: whether `verify` has the last word."""

    def __init__(self, spark: SparkSession, folder: Path, over: Over, rule: Rule, *, verifies: bool = True) -> None:
        self.spark, self.folder, self.over, self.rule, self.verifies = spark, folder, over, rule, verifies

    def differences(self, steps: list[Step]) -> list[Difference]:
        """What is wrong after the first step that leaves something wrong."""
        with self.over(self.spark, self.folder, self.rule) as place:
            goes_back = any(isinstance(step, Restore) for step in steps)
            player = Player(self.spark, place, self.rule, goes_back=goes_back)
            try:
                for step in steps:
                    if found := player.play(step):
                        return found
                return player.verified() if self.verifies else []
            except (SessionizerError, PySparkException, Py4JJavaError) as error:
                return [Difference("error", str(error))]

    def assert_right(self, steps: list[Step]) -> None:
        """Else it tells the smallest history that fails the same way."""
        if not (found := self.differences(steps)):
            return
        tables = {d.table for d in found}
        small = shrunk(steps, lambda some: bool(tables & {d.table for d in self.differences(some)}), users_of(found))
        raise AssertionError("\n".join([*map(str, self.differences(small)), reproduction(self.rule, small)]))


def users_of(found: list[Difference]) -> list[int]:
    """Those with rows of a key that differs; a key's last column tells its user."""
    named = (str(d.key[-1]).lstrip("u") for d in found if d.key)
    return sorted({int(name) for name in named if name.isdigit()})


def users_in(steps: list[Step]) -> set[int]:
    """All that a history names."""
    return {n // OWN for step in steps for n in numbers(step)}
