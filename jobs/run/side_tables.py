"""What a run writes beside sessions: one fenced write a table, the ledger row last."""

from contextlib import suppress

from pyspark.sql import DataFrame

from jobs.run.increment import Inputs
from lib.admission.past import withdrawn_rejects
from lib.aggregates.binding import bind
from lib.windows.sessions.backfill import readmitted
from lib.windows.sessions.pipeline import Outcome
from lib.windows.sessions.trace import event_sessions, session_updates
from tables.delta import Commit, Superseded
from tables.lake import Lake
from tables.manifest import Manifest
from tables.runs import Timing

REJECTED, RUNS = "rejected_events", "runs"


def write(lake: Lake, inputs: Inputs, outcome: Outcome, manifest: Manifest) -> None:
    """Write what the tables beside sessions do not have of this run yet."""
    if _owes_rejects(manifest) and not _has(lake, REJECTED, manifest):
        gone = _no_longer_rejected(lake, inputs, outcome)
        rejected = outcome.rejected() if manifest.rejected else None
        with suppress(Superseded):  # another process has repaired this run meanwhile: the same rows are there
            lake.rejected_events.write(rejected, gone, manifest, _fence(lake, REJECTED))
    if lake.traces:
        trace, live = outcome.trace(), inputs.live()
        adds_only = not manifest.sessions["moved"] and trace.removed is None
        for name, table in lake.traces.items():
            if _has(lake, name, manifest):
                continue
            aggregates = bind(inputs.rule, inputs.events())
            rows = (
                event_sessions(trace, inputs.rule)
                if name == "event_sessions"
                else session_updates(trace, live, inputs.rule, aggregates)
            )
            with suppress(Superseded):  # as above
                table.write(rows, manifest, _fence(lake, name), adds_only=adds_only)


def _no_longer_rejected(lake: Lake, inputs: Inputs, outcome: Outcome) -> DataFrame | None:
    """Rows of rejected_events that a run takes away: withdrawn, taken into sessions, or judged anew."""
    if lake.rejected_events.is_empty:
        return None
    before = lake.rejected_events.all_before(inputs.clock.run_seq)
    match inputs.mode:
        case "rebuild":
            return before
        case "backfill" | "readmit":
            return readmitted(before, inputs.span(), inputs.rule)
    return withdrawn_rejects(before, outcome.withdrawn()) if outcome.tally.withdrawn else None


def enter(lake: Lake, manifest: Manifest, timing: Timing) -> None:
    """Write the row of the ledger, which says that the run is complete."""
    with suppress(Superseded):  # as above
        lake.runs.append(manifest, timing, _fence(lake, RUNS))


def undo_after(lake: Lake, run_seq: int) -> None:
    """Take back what runs after this one have written: a RESTORE of sessions has undone them."""
    lake.rejected_events.undo_after(run_seq, _fence(lake, REJECTED))
    lake.runs.table.delete(f"run_seq > {run_seq}")
    for name, trace in lake.traces.items():
        trace.table.restore(Commit(_fence(lake, name), run_seq))


def is_entered(lake: Lake, manifest: Manifest) -> bool:
    """Whether the ledger has this run."""
    return _has(lake, RUNS, manifest)


def is_complete(lake: Lake, manifest: Manifest) -> bool:
    """Whether all but the ledger have what this run owes them."""
    if _owes_rejects(manifest) and not _has(lake, REJECTED, manifest):
        return False
    return all(_has(lake, name, manifest) for name in lake.traces)


def _owes_rejects(manifest: Manifest) -> bool:
    if manifest.mode == "rebuild":
        return True
    return bool(manifest.rejected) or any(manifest.events.get(name) for name in ("withdrawn", "readmitted"))


def _fence(lake: Lake, role: str) -> str:
    return f"{lake.sessions.table.id}:{role}"


def _has(lake: Lake, role: str, manifest: Manifest) -> bool:
    tables = {RUNS: lake.runs.table, REJECTED: lake.rejected_events.table}
    table = tables[role] if role in tables else lake.traces[role].table
    return table.has_fence(Commit(_fence(lake, role), manifest.run_seq))
