"""`sessionizer ingest`: files into the source table, each content once."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from tenacity import RetryCallState, retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from sessionizer.jobs.ingest.file_reader import LINE_FORMATS, FileReader, IngestOptions, Part, Rows
from sessionizer.jobs.ingest.files import Mark, Survey, check_files, line_at, survey
from sessionizer.jobs.ingest.lines import LINE, TORN, examples, unreadable_rows
from sessionizer.jobs.ingest.names import source_of
from sessionizer.lib import columns as C
from sessionizer.lib.admission.united import of_one
from sessionizer.lib.config import Config, field_of
from sessionizer.lib.errors import RunFailed, SessionizerError, SourceError
from sessionizer.lib.expressions import with_keys
from sessionizer.tables.delta import A_MONTH, CHANGE_FEED, REMOVED_FILES_KEPT, Commit, Superseded, Table
from sessionizer.tables.rejected_events import RejectedEvents
from sessionizer.tables.source import named_by

NOTE = "sessionizer_ingest"
_FENCE = re.compile(r"ingest:(\d+):([0-9a-f]{64})")
SHOWN = 3  # torn lines of a file
_TRIES, _WAIT = 5, wait_random_exponential(multiplier=0.2, max=5)


@dataclass(frozen=True)
class IngestReport:
    """What became of one file.

    lines: rows read from it now = added + unreadable. skipped: its content was known already.
    grown: only its new lines were read. held_back: 1 if its last line is still being written, and left for later.
    owed: lines that an ingest which was cut off could not read, and which by the options of now are others.
    torn: what is wrong with the first few lines that cannot be read.
    """

    file: str
    lines: int = 0
    added: int = 0
    unreadable: int = 0
    skipped: bool = False
    grown: bool = False
    held_back: int = 0
    owed: int = 0
    torn: tuple[str, ...] = field(default=(), compare=False)


def ingest(  # noqa: PLR0913  (the clock, and who listens, are apart from what to do)
    spark: SparkSession,
    config: Config,
    files: Sequence[Path],
    options: IngestOptions,
    *,
    now: datetime,
    on_file: Callable[[IngestReport], None] = lambda _: None,
) -> list[IngestReport]:
    """Add the rows of files to the source table, which the first of them makes; one commit a file.

    A content that is known adds nothing, under whatever name, gzipped or not; of a text file that has grown
    only the new lines are added. Lines that cannot be read go to rejected_events.
    Errors: UsageError for files or options that make no sense, SourceError for a file that does not fit; the
    files before it are in, of itself nothing is.
    """
    check_files(files)
    source_of(config, options.source)
    ingestion = Ingestion(spark, config, FileReader(spark, config, options), now)
    reports: list[IngestReport] = []
    for file in files:
        try:
            reports.append(ingestion.add(file))
        except Superseded as error:
            raise RunFailed(
                f"another process keeps changing {ingestion.source.field}",
                value=str(file),
                remedy="ingest the file again",
            ) from error
        except SessionizerError as error:
            _name(error, file, len(reports), len(files))
            raise
        on_file(reports[-1])
    return reports


def _name(error: SessionizerError, file: Path, done: int, of: int) -> None:
    """Say which of several files has failed, and what has become of the others."""
    if of == 1:
        return
    if str(file) not in str(error):
        error.rule = f"{file}: {error.rule}"
    others = [f"{done} before it went in"] if done else []
    others += [f"{of - done - 1} behind it were not tried"] if of - done > 1 else []
    error.remedy = "; ".join(filter(None, [error.remedy, f"of {of} files {' and '.join(others)}"]))


def _look_again(state: RetryCallState) -> None:
    """Before another try: what was written meanwhile has notes, too."""
    state.args[0].history = state.args[0].source.history()


class Ingestion:
    """Files going into one source table."""

    def __init__(self, spark: SparkSession, config: Config, reader: FileReader, now: datetime) -> None:
        self.config = config
        self.reader = reader
        self.now = now
        self.of = reader.source
        self.source = Table(spark, self.of.table, field_of(self.of))
        self.history = self.source.history()
        self._surveyed: set[Mark] = set()  # contents that were known when a file was looked at
        self._added: dict[int, int] = {}  # of the file, by this try and those before: rows, by where its part begins
        self._notes: dict[Mark, Mapping[str, Any]] = {}
        self.rejected = RejectedEvents(config, Table(spark, config.outputs.rejected_events, "outputs.rejected_events"))

    @retry(
        retry=retry_if_exception_type(Superseded),
        stop=stop_after_attempt(_TRIES),
        wait=_WAIT,
        before_sleep=_look_again,
        reraise=True,
    )
    def add(self, file: Path) -> IngestReport:
        """Add what is new in a file, and complete what an earlier ingest of it left undone."""
        self._surveyed = self._known()
        found = survey(file, self._surveyed)
        end, by_line = self._end(file, found), self.reader.options.format in LINE_FORMATS
        known = [m for m in found.known if m.size <= end.size and (by_line or m == end)]
        held_back = int(end != found.whole)
        parts = [Part(file, before.size, mark, found.bom) for before, mark in pairwise([Mark(0, ""), *known])]
        torn: list[str] = []
        done = [self._complete(part, torn) for part in parts]
        late, owed = sum(written for written, _ in done), sum(left for _, left in done)
        start = known[-1].size if known else 0
        unreadable = 0 if start == end.size else self._append(Part(file, start, end, found.bom), torn)
        new, self._added = self._added, {}
        begun, added = min(new, default=start), sum(new.values())
        return IngestReport(
            file=str(file),
            lines=added + unreadable + late,
            added=added,
            unreadable=unreadable + late,
            skipped=begun > 0 and not new,
            grown=begun > 0 and bool(new),
            held_back=held_back,
            owed=owed,
            torn=tuple(torn),
        )

    def _known(self) -> set[Mark]:
        """What the table holds: it alone remembers what was ingested."""
        if not self.source.exists():
            return set()
        for table in (self.source, self.rejected.table):
            if table.exists():
                table.require_memory()
        app_ids = self.source.transactions()
        matches = (_FENCE.fullmatch(app_id) for app_id in app_ids)
        return {Mark(int(m[1]), m[2]) for m in matches if m}

    def _end(self, file: Path, found: Survey) -> Mark:
        """Where to stop: before a last line that is still being written."""
        if found.packed or self.reader.options.format not in ("json", "access-log"):
            return found.whole
        read_before = found.known[-1] if found.known else Mark(0, "")
        if found.whole in (found.lines, read_before):
            return found.whole
        taken = max(found.lines, read_before, key=lambda mark: mark.size)
        return taken if self.reader.is_unfinished(line_at(file, taken.size, found.whole.size)) else found.whole

    def _append(self, part: Part, said: list[str]) -> int:
        """Add a part of a file: its rows to the source, then its torn lines to rejected_events; how many of these.

        said: gets what is wrong with the first torn lines.
        """
        table = self.source.schema if self.source.exists() else None
        with self._rows(part, table) as (rows, added, torn, which):
            if rows is None:
                return 0
            fails = torn > 0 and self.config.invalid_events == "fail"
            if fails or (added == 0 and part.start == 0):
                none = f"no line of the file can be read as {self.reader.options.format}"
                some = "not every line of the file can be read, and `invalid_events: fail` asks for that"
                raise SourceError(
                    f"{some if fails else none}, so nothing was ingested",
                    value=str(part.file),
                    remedy="check --format, --time-format, --schema and the --csv options. "
                    + "; ".join(examples(rows.rows, rows.number(), 1)),
                )
            events = rows.rows.where(C.col(TORN).isNull()).drop(TORN)
            if (arrival := self.of.arrival) is not None:
                events = events.withColumn(arrival, F.lit(self.now).cast("timestamp"))
            if table is None:
                nullable = T.StructType([T.StructField(f.name, f.dataType) for f in events.schema.fields])
                self.source.create(nullable, [], {CHANGE_FEED: "true", REMOVED_FILES_KEPT: A_MONTH})
            commit = Commit(fence("ingest", part.end), 1, self._note(part, added, torn, which))
            with self.source.lock():
                new = self._known() - self._surveyed
                if self.source.has_fence(commit) or (new and survey(part.file, new).known):
                    raise Superseded(f"{part.file}, or a part of it, was ingested meanwhile")
                kept = events if added else self.source.read().limit(0)
                self.source.append(kept, commit, add_columns=self.reader.options.add_columns)
                self._added[part.start] = added
            self._reject(part, rows, torn, said)
            return torn

    def _complete(self, part: Part, said: list[str]) -> tuple[int, int]:
        """Write the torn lines of a part that was added before, unless they are there; how many, and how many not.

        By other options, or columns, other lines may be torn: those of then are left for an ingest by the same. None
        are written of a part whose note the log has no longer.
        """
        name = self._torn_lines(part.end)
        if self.rejected.table.exists() and self.rejected.table.transaction(name) is not None:
            return 0, 0
        note = self._note_of(part.end)
        if not note.get("unreadable"):
            return 0, 0
        part = replace(part, start=note.get("from", part.start))
        with self._rows(part, self.source.schema) as (rows, _, torn, which):
            if (torn, which) != (note["unreadable"], note.get("torn", which)):
                return 0, note["unreadable"]
            self._reject(part, rows, torn, said)
            return torn, 0

    def _reject(self, part: Part, rows: Rows | None, torn: int, said: list[str]) -> None:
        if rows is None or torn == 0:
            return
        config, label = named_by(self.config, {self.of.label: self.source}), self.of.label
        if not self.rejected.table.exists():
            of, read = config.of(label), self.source.read()
            if of.stitch is None:  # else keys may be of what the events get: `init` knows their types
                read = of_one(read, of) if label else with_keys(read, of.made)
            RejectedEvents(config, self.rejected.table).create_if_missing(read.schema)
        # It may be of another key, or without `source`, until a rebuild: a line is of no key.
        schema, number = self.rejected.table.schema, rows.number()
        run_id, drops = f"ingest-{part.end.sha256[:12]}", config.invalid_events == "drop"
        lines = unreadable_rows(rows.rows, number, part.file.name, run_id, schema, source=label, hash_only=drops)
        said += examples(rows.rows, number, SHOWN - len(said))
        self.rejected.table.append(lines, Commit(self._torn_lines(part.end), 1))

    def _torn_lines(self, end: Mark) -> str:
        """The name of the transaction of a content's torn lines: each source table may tear others."""
        return fence(f"ingest-rejected:{self.source.id}", end)

    @contextmanager
    def _rows(self, part: Part, table: T.StructType | None) -> Iterator[tuple[Rows | None, int, int, int | None]]:
        """The rows of a part, parsed once before anything is written, or None; how many are good, how many torn.

        And which are torn: the sum of their hashes.
        """
        with self.reader.read(part, table) as read:
            if read is None:
                yield None, 0, 0, None
                return
            kept = read.rows.persist()
            try:
                is_torn = C.col(TORN).isNotNull()
                which = F.sum(F.when(is_torn, F.crc32(C.col(TORN)[LINE])))
                added, torn, lines = kept.agg(F.count_if(~is_torn), F.count_if(is_torn), which).collect()[0]
                yield replace(read, rows=kept) if added + torn else None, added, torn, lines
            finally:
                kept.unpersist()

    def _note(self, part: Part, added: int, torn: int, which: int | None) -> str:
        note = {
            "file": part.file.name,
            "bytes": part.end.size,
            "sha256": part.end.sha256,
            "from": part.start,
            "rows": added,
            "unreadable": torn,
            "torn": which,
            "at": self.now.isoformat(),
        }
        return json.dumps({NOTE: note})

    def _note_of(self, mark: Mark) -> Mapping[str, Any]:
        """What an earlier ingest wrote down; nothing where the table's history does not reach back to it."""
        while mark not in self._notes and (entry := next(self.history, None)):
            if NOTE in (entry.metadata or ""):
                note = json.loads(entry.metadata or "")[NOTE]
                self._notes[Mark(note["bytes"], note["sha256"])] = note
        return self._notes.get(mark, {})


def fence(role: str, end: Mark) -> str:
    """The name of the transaction that a content is written by: it tells which contents are in a table."""
    return f"{role}:{end.size}:{end.sha256}"
