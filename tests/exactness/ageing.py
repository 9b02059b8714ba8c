"""Delta tables made older than they are."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DAY = 24 * 3600
# Milliseconds since the epoch, wherever they stand in an action of the log.
TIMES = ("timestamp", "inCommitTimestamp", "deletionTimestamp", "modificationTime", "createdTime")
EPOCH_COLUMNS = ("inCommitTimestampOpt",)


def age(folder: Path, days: float) -> None:
    """Every table below the folder is as if all that happened to it had happened so many days earlier.

    Delta keeps what it has read of a log in memory: age a table before it is read from this place, such as a new copy.
    """
    for log in folder.rglob("_delta_log"):
        for file in sorted(log.glob("*.json")):
            lines = [json.dumps(_older(json.loads(line), days)) for line in file.read_text().splitlines()]
            _write(file, "\n".join(lines) + "\n")
        for file in log.glob("[!.]*.crc"):
            _write(file, json.dumps(_older(json.loads(file.read_text()), days)))
        assert not list(log.rglob("*.parquet")), "checkpoints tell times, too, and are not made older here"
    for file in _files(folder):
        time = file.stat().st_mtime - days * DAY
        os.utime(file, (time, time))


def _older(action: Any, days: float) -> Any:
    match action:
        case dict():
            return {
                name: value - round(days * DAY * 1000)
                if name in (*TIMES, *EPOCH_COLUMNS) and isinstance(value, int)
                else _older(value, days)
                for name, value in action.items()
            }
        case list():
            return [_older(one, days) for one in action]
        case _:
            return action


def _write(file: Path, text: str) -> None:
    """The file, without the check sum that Hadoop has put beside it."""
    before = file.stat().st_mtime
    file.write_text(text)
    os.utime(file, (before, before))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.is_file())
