"""What can be said of files to ingest before Spark starts: which columns they lack."""

from collections.abc import Sequence
from pathlib import Path

from sessionizer.jobs.ingest.file_reader import IngestOptions
from sessionizer.jobs.ingest.files import BOM, check_files, first_bytes, survey
from sessionizer.jobs.ingest.guess import HEAD, fields_within, objects, values_of
from sessionizer.jobs.ingest.ingest import fence
from sessionizer.jobs.ingest.names import csv_header, renamed, require_used
from sessionizer.jobs.preflight import Ready
from sessionizer.lib.errors import SourceError, UsageError
from sessionizer.tables.delta import Commit
from sessionizer.tables.queries.local import LocalTable


def check_ahead(ready: Ready, files: Sequence[Path], options: IngestOptions) -> None:
    """Raise what `ingest` would raise because of the columns of a file, as far as its beginning tells.

    Errors: UsageError, SourceError.
    """
    check_files(files)
    events = ready.tables.events if ready.tables is not None and ready.tables.events.exists() else None
    known = events.columns if events is not None and options.format == "json" else ()
    for file in files:
        names, within = _names(file, options)
        if not names:
            continue
        try:
            own, lifted = renamed(names, within, options.rename, known)
            require_used([*own, *lifted.values()], within, ready.config.source, str(file))
        except (SourceError, UsageError):
            if events is None or not _is_known(file, events):
                raise


def _names(file: Path, options: IngestOptions) -> tuple[Sequence[str], Sequence[str]]:
    """The names of columns and of fields within them; none where they cannot be told for sure."""
    head = first_bytes(file, HEAD if options.format == "json" else len(BOM))
    match options.format:
        case "csv" if options.csv_header:
            begin = len(BOM) if head == BOM else 0
            names, _ = csv_header(file, begin, file.stat().st_size + HEAD, options.csv_sep, options.csv_quote)
            return names, ()
        case "json" if len(head) < HEAD:
            lines = [line for line in head.removeprefix(BOM).split(b"\n") if line.strip()]
            rows = objects(lines)
            if len(rows) == len(lines):  # Spark may read what Python does not
                columns = values_of(rows)
                return list(columns), list(fields_within(columns))
    return (), ()


def _is_known(file: Path, events: LocalTable) -> bool:
    return events.has_fence(Commit(fence("ingest", survey(file, []).whole), 1))
