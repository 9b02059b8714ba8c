"""What Spark's own metrics say of the files that it has read."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession


@dataclass
class Scans:
    """Files read by each scan of a table, by the folder of the table."""

    files: dict[str, list[int]] = field(default_factory=dict)

    def of(self, folder: str) -> list[int]:
        return [n for name, counts in self.files.items() if name == folder for n in counts]


@contextmanager
def scans(spark: SparkSession, *folders: str) -> Iterator[Scans]:
    """Inside it each scan of Delta tables in these folders is taken down."""
    store: Any = spark._jsparkSession.sharedState().statusStore()
    before = {e.executionId() for e in _sequence(store.executionsList())}
    taken = Scans()
    yield taken
    for execution in _sequence(store.executionsList()):
        if execution.executionId() in before:
            continue
        values = store.executionMetrics(execution.executionId())
        for node in _sequence(store.planGraph(execution.executionId()).allNodes()):
            for folder in folders:
                if "Scan" in node.name() and f"{folder}]" in node.desc():
                    taken.files.setdefault(folder, []).append(_files_read(node, values))


def _files_read(node: Any, values: Any) -> int:
    found = [values.get(m.accumulatorId()) for m in _sequence(node.metrics()) if m.name() == "number of files read"]
    return sum(int(str(value.get()).replace(",", "")) for value in found if value.isDefined())


def _sequence(of: Any) -> list[Any]:
    return [of.apply(i) for i in range(of.size())]
