"""What a piece of work costs: seconds, processor time, memory, bytes through system calls.

Linux only, as it reads /proc: of this process and of the JVM beside it.
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
    """Of one piece of work. peak: bytes of memory that its processes held at most, in sum."""

    seconds: float = 0.0
    cpu: float = 0.0
    peak: int = 0
    read: int = 0
    written: int = 0


@contextmanager
def metered() -> Iterator[Cost]:
    """Fills in what happens inside costs."""
    cost, processes = Cost(), _processes()
    for process in processes:
        (process / "clear_refs").write_text("5")  # the peak starts anew
    before, began = [_used(p) for p in processes], time.perf_counter()
    yield cost
    cost.seconds = time.perf_counter() - began
    after = [_used(p) for p in processes]
    spent = [sum(a[i] - b[i] for a, b in zip(after, before, strict=True)) for i in range(3)]
    cost.cpu, cost.read, cost.written = spent[0], int(spent[1]), int(spent[2])
    cost.peak = sum(_peak(p) for p in processes)


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
