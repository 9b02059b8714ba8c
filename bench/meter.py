"""What a piece of work costs: seconds, processor time, memory, bytes through system calls, files.

Linux only, as it reads /proc: of this process and of the JVM beside it. Which files were read their access times tell;
a disk mounted with `noatime` keeps none.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark import SparkContext

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Cost:
    """Of one piece of work. peak: bytes of memory that its processes held at most, in sum. Files: Parquet with rows."""

    seconds: float = 0.0
    cpu: float = 0.0
    peak: int = 0
    read: int = 0
    written: int = 0
    files_read: int = 0
    files_written: int = 0


@contextmanager
def metered(folder: Path) -> Iterator[Cost]:
    """Fills in what happens inside costs; the tables lie in the folder."""
    cost, processes, files = Cost(), _processes(), _files(folder)
    for file in files:
        os.utime(file, ns=(0, file.stat().st_mtime_ns))  # whoever reads it sets the first
    for process in processes:
        (process / "clear_refs").write_text("5")  # the peak starts anew
    before, began = [_used(p) for p in processes], time.perf_counter()
    yield cost
    cost.seconds = time.perf_counter() - began
    after = [_used(p) for p in processes]
    spent = [sum(a[i] - b[i] for a, b in zip(after, before, strict=True)) for i in range(3)]
    cost.cpu, cost.read, cost.written = spent[0], int(spent[1]), int(spent[2])
    cost.peak = sum(_peak(p) for p in processes)
    cost.files_read = sum(file.exists() and file.stat().st_atime_ns > 0 for file in files)
    cost.files_written = len(_files(folder) - files)


def _files(folder: Path) -> set[Path]:
    return {file for file in folder.rglob("*.parquet") if "_delta_log" not in file.parts}


def _processes() -> list[Path]:
    gateway = SparkContext._gateway
    java = [] if gateway is None else [gateway.proc.pid]
    return [Path("/proc") / str(pid) for pid in (os.getpid(), *java)]


def _used(process: Path) -> tuple[float, int, int]:
    ran = (process / "stat").read_text().rsplit(")", 1)[1].split()
    moved = dict(line.split(": ") for line in (process / "io").read_text().splitlines())
    return (int(ran[11]) + int(ran[12])) / TICKS, int(moved["rchar"]), int(moved["wchar"])


def _peak(process: Path) -> int:
    lines = (process / "status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
