"""What a log has come to, and which of its files tell it."""

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from sessionizer.tables.delta.commits import FIRST_LINES
from sessionizer.tables.delta.place import Looking, Place

# How long Delta keeps files and the log where a table does not say.
USUALLY_KEPT = {
    "delta.deletedFileRetentionDuration": "interval 1 week",
    "delta.logRetentionDuration": "interval 30 days",
}
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:(\d{10})\.(\d{10})\.|[0-9a-f-]{36}\.)?(parquet|json)")
TOLD = re.compile(r'\{"(?:metaData|txn)"')  # how lines begin that tell of the state


@dataclass
class State:
    """As of a version: the newest metadata, and the last transaction of each application."""

    version: int
    metadata: dict[str, Any]
    transactions: dict[str, int]

    def take(self, lines: Iterable[str]) -> None:
        """Actions, in order."""
        for action in map(json.loads, lines):
            if found := action.get("metaData"):
                self.metadata = found
            if found := action.get("txn"):
                self.transactions[found["appId"]] = int(found["version"])

    @property
    def schema(self) -> T.StructType:
        """The columns, with what the log alone knows of them."""
        return T.StructType.fromJson(json.loads(self.metadata["schemaString"]))

    def setting(self, name: str) -> str | None:
        """A table property, or None."""
        return (self.metadata.get("configuration") or {}).get(name)


class ByState(Looking):
    """What a log says that is kept as a state; how it is read is for who has it."""

    place: Place

    def version(self) -> int:
        """The latest."""
        return self._state().version

    def id(self) -> str:
        """As the metadata have it."""
        return str(self._state().metadata["id"])

    def schema(self) -> T.StructType:
        """With what the log alone knows of columns."""
        return self._state().schema

    def schema_at(self, version: int) -> T.StructType:
        """The same, of an older version."""
        return self._replayed(version).schema

    def setting(self, name: str) -> str | None:
        """Of the metadata."""
        return self._state().setting(name)

    def transaction(self, app_id: str) -> int | None:
        """The last one."""
        return self._state().transactions.get(app_id)

    def transactions(self) -> list[str]:
        """Of whom there are any."""
        return list(self._state().transactions)

    def kept_us(self) -> tuple[int, int]:
        """Removed files, and the log."""
        return kept_us(self.place.spark, self.setting)

    def partition_columns(self) -> list[str]:
        """Of the metadata."""
        return list(self._state().metadata["partitionColumns"])

    def _state(self) -> State:
        """As of the latest version, or the one look."""
        return self.seen(self._caught_up)

    @abstractmethod
    def _caught_up(self) -> State:
        """As of the latest version: entries are numbered, so that what is new is found by its name."""

    @abstractmethod
    def _replayed(self, version: int) -> State:
        """As of a version, from the last checkpoint before it on."""


def of_interest(lines: list[str], *, whole: bool) -> list[str]:
    """The lines of a commit; unless it is asked for whole the first alone, enough for what Spark says of one."""
    return lines if whole or not lines or not lines[0].startswith('{"commitInfo"') else lines[:FIRST_LINES]


def versions(names: Iterable[str]) -> list[int]:
    """Of the entries and checkpoints among the files of a log."""
    found = (_ENTRY.fullmatch(name) or _CHECKPOINT.fullmatch(name) for name in names)
    return [int(match[1]) for match in found if match]


def last_checkpoint(names: Iterable[str], version: int) -> tuple[int, list[str]] | None:
    """The last one up to a version that has all its parts, and these; None: there is none."""
    found: dict[int, list[str]] = {}
    for name in names:
        if (match := _CHECKPOINT.fullmatch(name)) and int(match[1]) <= version:
            found.setdefault(int(match[1]), []).append(name)
    return next(((of, parts) for of, parts in sorted(found.items(), reverse=True) if _is_whole(parts)), None)


def _is_whole(parts: list[str]) -> bool:
    """Whether a checkpoint has all its parts; one of another kind has but one."""
    numbered = [match for name in parts if (match := _CHECKPOINT.fullmatch(name)) and match[3]]
    return len(numbered) < len(parts) or len(numbered) == int(numbered[0][3])


def kept_us(spark: SparkSession, setting: Callable[[str], str | None]) -> tuple[int, int]:
    """How long, in microseconds, removed files and the log are kept, by these settings."""
    kept = [interval_of(setting(name) or usual) for name, usual in USUALLY_KEPT.items()]
    # In UTC, whatever the zone of the session is: a day has 24 hours, and the first one begins at zero.
    ends = [f"CAST(TIMESTAMP_NTZ '1970-01-01' + {interval} || 'Z' AS TIMESTAMP)" for interval in kept]
    removed, log = spark.sql(f"SELECT {', '.join(f'unix_micros({end})' for end in ends)}").collect()[0]
    return int(removed), int(log)


def interval_of(text: str) -> str:
    """What a property of Delta's says, as SQL has it: Delta takes `30 days` for the same as `interval 30 days`."""
    return text if text.strip().lower().startswith("interval") else f"INTERVAL {text}"
