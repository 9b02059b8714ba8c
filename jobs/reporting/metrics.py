"""Metrics of runs as a Prometheus text file, for node_exporter's textfile collector and the like."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lib.errors import UsageError, without_passwords
from tables.manifest import Manifest
from tables.queries.status import Totals, read_totals
from tables.runs import SESSIONS
from tables.table_set import TableSet

COUNTERS = {
    "events_read": "Events read from the source",
    "accepted": "Events that went into sessions",
    "late": "Events too old to be accepted",
    "invalid": "Events that could be part of no session",
    "duplicates": "Copies of accepted events",
    "amended": "Late events that were accepted all the same",
    "files_read": "Files of the source that runs have read",
    "bytes_read": "Bytes of the source that runs have read",
    "files_written": "Files of sessions that runs have written",
    "bytes_written": "Bytes of sessions that runs have written",
}
WINDOWS = ("created", "updated", "deleted", "finalised")
NAMES = {"accepted": "events_accepted", "late": "late_events", "invalid": "invalid_events", "amended": "amended_events"}


def check_writable(file: Path) -> None:
    """Raise unless the file can be made: before the run, not after it."""
    folder = file.absolute().parent
    if file.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UsageError(
            "--metrics-file must be a file in a folder that can be written to",
            value=str(file),
            remedy="make the folder, or name another",
        )


def write_metrics(tables: TableSet, file: Path, now_us: int) -> None:
    """Replace the file by the metrics as they are now; a reader sees the old ones or the new ones."""
    _write(_Metrics(read_totals(tables), without_passwords(tables.config.sessions.table), now_us), file)


def write_window_metrics(tables: TableSet, file: Path, seconds: Mapping[str, float] | None, now_us: int) -> None:
    """The same for sliding windows: where they stand, and the last run. seconds: its phases, if it ran just now."""
    manifest = tables.windows.position().manifest
    _write(_WindowMetrics(manifest, without_passwords(tables.windows.table.location), seconds or {}, now_us), file)


def _write(metrics: Collector, file: Path) -> None:
    registry = CollectorRegistry()
    registry.register(metrics)
    write_to_textfile(str(file), registry)


class _Samples(Collector):
    """Families of samples that all carry the table."""

    def __init__(self, manifest: Manifest | None, table: str, now_us: int) -> None:
        self.manifest = manifest
        self.table = table
        self.now_us = now_us

    def _position(self) -> Iterator[Metric]:
        if (manifest := self.manifest) is None:
            return
        yield self._gauge("source_version", "Version of the source that is read", {"": manifest.source_to_version})
        if (watermark := manifest.watermark_after) is not None:
            yield self._gauge("watermark_timestamp_seconds", "The watermark", {"": watermark / 1e6})
            lag = (self.now_us - watermark) / 1e6
            yield self._gauge("watermark_lag_seconds", "How far it is behind the clock, as of this file", {"": lag})

    def _counter(self, name: str, text: str, values: Mapping[str, float], label: str = "") -> Metric:
        family = CounterMetricFamily(f"sessionizer_{name}", text, labels=["table", *([label] if label else [])])
        return self._filled(family, values, label)

    def _gauge(self, name: str, text: str, values: Mapping[str, float | None], label: str = "") -> Metric:
        family = GaugeMetricFamily(f"sessionizer_{name}", text, labels=["table", *([label] if label else [])])
        return self._filled(family, values, label)

    def _filled(
        self, family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, float | None], label: str
    ) -> Metric:
        for name, value in values.items():
            if value is not None:
                family.add_metric([self.table, *([name] if label else [])], value)
        return family


class _Metrics(_Samples):
    """The totals as families. Counters are sums over the ledger: they grow from run to run, whoever ran."""

    def __init__(self, found: Totals, table: str, now_us: int) -> None:
        super().__init__(found.manifest, table, now_us)
        self.found = found

    def collect(self) -> Iterator[Metric]:
        found, sums = self.found, self.found.sums
        yield self._counter("runs", "Runs by mode", found.runs, "mode")
        for name, text in COUNTERS.items():
            yield self._counter(NAMES.get(name, name), text, {"": sums[name]})
        yield self._counter("rejected_events", "Events that no session took, by reason", found.rejected, "reason")
        changes = {name: sums[f"sessions_{name}"] for name in SESSIONS}
        yield self._counter("sessions", "Sessions by what runs did to them", changes, "change")
        yield self._counter("sessions_emitted", "Sessions that turned final", {"": changes["finalised"]})
        yield self._counter("run_seconds", "Seconds that runs took, by phase", found.seconds, "phase")
        yield self._gauge("unique_keys", "Keys with a session that may still change", {"": found.keys})
        yield self._gauge("idle_keys", "Those of them without an open session", {"": found.idle_keys})
        if self.manifest is not None:
            live = {"": self.manifest.live_sessions}
            yield self._gauge("live_sessions", "Sessions that may still change", live)
        yield from self._position()
        yield from self._last_run()

    def _last_run(self) -> Iterator[Metric]:
        last = self.found.last_run
        if last is None:
            return
        finished = last["finished_at"] or last["started_at"]
        yield self._gauge("last_run_timestamp_seconds", "When the last run finished", {"": finished / 1e6})
        yield self._gauge("last_run_seconds", "Seconds of the last run, by phase", last["seconds"] or {}, "phase")
        changes = {name: last[f"sessions_{name}"] for name in SESSIONS}
        yield self._gauge("last_run_sessions", "Sessions by what the last run did to them", changes, "change")
        yield self._gauge("last_run_events_read", "Events that the last run read", {"": last["events_read"]})
        yield self._gauge("last_run_late_events", "Late events of the last run", {"": last["late"]})


class _WindowMetrics(_Samples):
    """What the last manifest says. There is no ledger of these runs, hence no counters."""

    def __init__(self, manifest: Manifest | None, table: str, seconds: Mapping[str, float], now_us: int) -> None:
        super().__init__(manifest, table, now_us)
        self.seconds = seconds

    def collect(self) -> Iterator[Metric]:
        if (m := self.manifest) is None:
            return
        yield self._gauge("open_windows", "Windows that may still change", {"": m.live_sessions})
        yield from self._position()
        yield self._gauge("last_run_start_timestamp_seconds", "When the last run began", {"": m.started_at / 1e6})
        yield self._gauge("last_run_seconds", "Seconds of the last run, by phase", self.seconds, "phase")
        changes = {name: m.sessions[name] for name in WINDOWS}
        yield self._gauge("last_run_windows", "Windows by what the last run did to them", changes, "change")
        yield self._gauge("last_run_events_read", "Events that the last run read", {"": m.events["events_read"]})
        yield self._gauge("last_run_late_events", "Late events of the last run", {"": m.events["late"]})
        rejected = dict(m.rejected)
        yield self._gauge("last_run_rejected_events", "Events that no window took, by reason", rejected, "reason")
