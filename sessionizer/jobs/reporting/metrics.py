"""Metrics of runs as a Prometheus text file, for node_exporter's textfile collector and the like."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sessionizer.jobs.fetch import check_deliverable
from sessionizer.jobs.queries.holding import behind, held_by
from sessionizer.jobs.run.kinds import Kind, Ruled
from sessionizer.lib.config import location_kind
from sessionizer.lib.errors import UsageError, without_passwords
from sessionizer.lib.windows.sessions.lifecycle import OPEN
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.queries.oldest import Oldest
from sessionizer.tables.queries.status import read_totals
from sessionizer.tables.runs import CHANGES

COUNTERS = {
    "events_read": "Events read from the source",
    "accepted": "Events that count",
    "late": "Events too old to be accepted",
    "invalid": "Events without a time, without a key, or of the future",
    "duplicates": "Copies of accepted events",
    "amended": "Late events that were accepted all the same",
    "files_read": "Files of the source that runs have read",
    "bytes_read": "Bytes of the source that runs have read",
    "files_written": "Files of the table that runs have written",
    "bytes_written": "Bytes of the table that runs have written",
}
Values = float | None | Mapping[str, float | None]
NAMES = {"accepted": "events_accepted", "late": "late_events", "invalid": "invalid_events", "amended": "amended_events"}


def check_writable(name: str, settings: Mapping[str, str]) -> None:
    """Raise unless the file can be made, as far as that can be known: before the run, not after it.

    settings: the config's `spark:`, for one in an object store.
    """
    check_deliverable(name, settings)
    if location_kind(name) == "url":
        return
    file = Path(name)
    folder = file.absolute().parent
    if file.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(
            "--metrics-file must be a file in a folder that can be written to",
            value=str(file),
            remedy="make the folder, or name another",
        )


def write_metrics(kind: Kind, file: Path, now_us: int) -> None:
    """Replace the file by the metrics as they are now; a reader sees the old ones or the new ones.

    Counters are sums over the ledger: they grow from run to run, whoever ran.
    """
    found, of, name = (
        read_totals(kind.home, kind.runs, kind.tables.events.tables),
        _Metrics(without_passwords(kind.home.table.location)),
        kind.name,
    )
    of.counter("runs", "Runs by mode", found.runs, "mode")
    for counted, text in COUNTERS.items():
        of.counter(NAMES.get(counted, counted), text, found.sums[counted])
    of.counter("rejected_events", "Rows that rejected_events took, by reason", found.rejected, "reason")
    changes = {change: found.sums[f"{name}_{change}"] for change in CHANGES[name]}
    of.counter(name, f"{name.capitalize()} by what runs did to them", changes, "change")
    of.counter(f"{name}_emitted", f"{name.capitalize()} that turned final", changes["finalised"])
    of.counter("run_seconds", "Seconds that runs took, by phase", found.seconds, "phase")
    of.gauge("unique_keys", f"Keys with {name} that may still change", found.keys)
    of.gauge("idle_keys", f"Those of them without open {name}", found.idle_keys)
    if found.manifest is not None:
        of.gauge(f"live_{name}", f"{name.capitalize()} that may still change", found.manifest.live_sessions)
        of.position(found.manifest, now_us)
        if (oldest := found.oldest.get(OPEN)) is not None:
            of.oldest(oldest, kind, found.manifest, found.waiting)
    if (last := found.last_run) is not None:
        finished = last["finished_at"] or last["started_at"]
        of.gauge("last_run_timestamp_seconds", "When the last run finished", finished / 1e6)
        of.gauge("last_run_seconds", "Seconds of the last run, by phase", last["seconds"] or {}, "phase")
        changes = {change: last[f"{name}_{change}"] for change in CHANGES[name]}
        of.gauge(f"last_run_{name}", f"{name.capitalize()} by what the last run did to them", changes, "change")
        of.gauge("last_run_events_read", "Events that the last run read", last["events_read"])
        of.gauge("last_run_late_events", "Late events of the last run", last["late"])
    of.write(file)


class _Metrics(Collector):
    """Families of samples that all carry the table. Values: one, or (label) one for each value of the label."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.families: list[Metric] = []

    def collect(self) -> list[Metric]:
        return self.families

    def write(self, file: Path) -> None:
        registry = CollectorRegistry()
        registry.register(self)
        write_to_textfile(str(file), registry)

    def counter(self, name: str, text: str, values: Values, label: str = "") -> None:
        self._add(CounterMetricFamily(f"sessionizer_{name}", text, labels=self._labels(label)), values)

    def gauge(self, name: str, text: str, values: Values, label: str = "") -> None:
        self._add(GaugeMetricFamily(f"sessionizer_{name}", text, labels=self._labels(label)), values)

    def position(self, manifest: Manifest, now_us: int) -> None:
        read = {name: of.to_version for name, of in manifest.consumed.items()}
        versions, label = (read[""], "") if "" in read else (read, "source")
        self.gauge("source_version", "Version of the source that is read", versions, label)
        mapped = {name: of.stitch.version for name, of in manifest.consumed.items() if of.stitch is not None}
        if mapped:
            text = "Version of the mapping table that is read"
            self.gauge("mapping_version", text, mapped.get("", mapped), label)
        times = {name: of.latest for name, of in manifest.times_of_sources("after").items()}
        if known := {name: us / 1e6 for name, us in times.items() if us is not None}:
            text = "How far a source has come by event time; the watermark follows the one furthest behind"
            self.gauge("source_timestamp_seconds", text, known, "source")
        if (watermark := manifest.told("watermark_after")) is not None:
            self.gauge("watermark_timestamp_seconds", "The watermark", watermark / 1e6)
            lag = max((now_us - watermark) / 1e6, 0.0)
            self.gauge("watermark_lag_seconds", "How far it is behind the clock, as of this file", lag)

    def oldest(self, oldest: Oldest, of: Ruled, done: Manifest, waiting: int) -> None:
        """The open row that began first, and what holds it."""
        name, one = f"oldest_open_{of.name.removesuffix('s')}", f"open {of.name.removesuffix('s')} that began first"
        for column, us in oldest.times.items():
            edge = column.removesuffix("_at").split("_")[-1]
            self.gauge(f"{name}_{edge}_timestamp_seconds", f"{edge.capitalize()} of the {one}", us / 1e6)
        late = behind(oldest, of)
        text = f"How far the watermark is behind the end of the {one}"
        self.gauge(f"{name}_watermark_behind_seconds", text, None if late is None else late / 1e6)
        family = GaugeMetricFamily(
            f"sessionizer_{name}_info", f"Key of the {one}, and what holds it", labels=["table", "key", "held_by"]
        )
        held = ",".join(reason.by for reason in held_by(oldest, of, done, OPEN, waiting))
        family.add_metric([self.table, json.dumps(dict(oldest.key), ensure_ascii=False), held], 1)
        self.families.append(family)

    def _labels(self, label: str) -> list[str]:
        return ["table", label] if label else ["table"]

    def _add(self, family: CounterMetricFamily | GaugeMetricFamily, values: Values) -> None:
        each = values.items() if isinstance(values, Mapping) else [(None, values)]
        for name, value in each:
            if value is not None:
                family.add_metric([self.table] if name is None else [self.table, name], value)
        self.families.append(family)
