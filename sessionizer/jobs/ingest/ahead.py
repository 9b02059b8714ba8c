"""What can be said of files to ingest before Spark starts: which columns they lack. Where it is not sure: nothing."""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sessionizer.jobs.ingest.file_reader import IngestOptions
from sessionizer.jobs.ingest.files import BLANK, BOM, Mark, check_files, first_bytes, survey
from sessionizer.jobs.ingest.guess import HEAD, objects
from sessionizer.jobs.ingest.ingest import NOTE, fence
from sessionizer.jobs.ingest.names import csv_header, renamed, require_used, source_of
from sessionizer.jobs.preflight import Ready
from sessionizer.lib.errors import SourceError, UsageError
from sessionizer.tables.delta import Commit
from sessionizer.tables.queries.local import LocalTable

DEEPEST = 50  # of the objects that are looked into
ROWS = 1 << 16  # bytes behind the header of a csv file among which rows are looked for


@dataclass(frozen=True)
class Names:
    """Of a file: its columns, and the paths of the fields within those; which of all these hold nothing but objects."""

    own: Sequence[str]
    within: Sequence[str] = ()
    objects: frozenset[str] = frozenset()

    def is_sure(self, rename: Mapping[str, str], *, has_table: bool) -> bool:
        """Whether a path that is not there is surely not one that Spark finds, by what the table holds, or takes."""
        there = {name.lower() for name in (*self.own, *self.within)}
        sure = set() if has_table else {name.lower() for name in self.objects}
        for path in (old.lower() for old in rename if old.lower() not in there):
            begins = {path[:n] for n, char in enumerate(path) if char == "."}
            if not begins & there <= sure:
                return False
        return True


def check_ahead(ready: Ready, files: Sequence[Path], options: IngestOptions) -> None:
    """Raise what `ingest` would raise because of the columns of a file, as far as its beginning tells.

    Errors: UsageError, SourceError.
    """
    check_files(files)
    if ready.tables is None or options.schema or options.format not in ("csv", "json"):
        return
    source, is_json = source_of(ready.config, options.source), options.format == "json"
    events = ready.tables.events[source.label]
    try:
        exists = events.exists()
        known = set(events.columns if exists and is_json else ())
    except Exception:  # whatever stands in the way, Spark says it
        return
    for file in files:
        try:
            names = _json_names(file) if is_json else _csv_names(file, options)
            if names is None or not names.is_sure(options.rename, has_table=bool(known)):
                if is_json:
                    return  # what it adds to the table is what those behind it may lack
                continue
            own, lifted = renamed(names.own, names.within, options.rename, known)
            require_used([*own, *lifted.values()], names.within, source, str(file))
            known |= {*own, *lifted.values()} if is_json else set()
        except (SourceError, UsageError):
            if not exists or not _may_be_known(file, events):
                raise


def _csv_names(file: Path, options: IngestOptions) -> Names | None:
    """The names of a csv file's columns; None where they cannot be told for sure, or there is no row."""
    if not options.csv_header:
        return None
    begin = len(BOM) if first_bytes(file, len(BOM)) == BOM else 0
    names, rows = csv_header(file, begin, file.stat().st_size + HEAD, options.csv_sep, options.csv_quote)
    has_rows = names and first_bytes(file, rows + ROWS)[rows:].strip(BLANK)
    return Names(names) if has_rows else None


def _json_names(file: Path) -> Names | None:
    """The names of a json file's columns and of fields within them; None where they cannot be told for sure."""
    head = first_bytes(file, HEAD)
    lines = [line for line in head.removeprefix(BOM).split(b"\n") if line.strip()]
    rows = objects(lines) if len(head) < HEAD else []
    if not rows or len(rows) < len(lines):  # Spark may read what Python does not
        return None
    ways, others = dict[tuple[str, ...], None](), set[tuple[str, ...]]()
    todo = deque[tuple[tuple[str, ...], dict[str, Any]]](((), row) for row in rows)
    while todo:
        way, members = todo.popleft()
        if len(way) == DEEPEST:
            return None
        for name, value in members.items():
            inner = (*way, name)
            ways[inner] = None
            if isinstance(value, dict):
                todo.append((inner, value))
            else:
                others.add(inner)
    paths = [".".join(way) for way in ways]
    if len({path.lower() for path in paths}) < len(paths):
        return None
    own, within = [way[0] for way in ways if len(way) == 1], [".".join(way) for way in ways if len(way) > 1]
    return Names(own, within, frozenset(".".join(way) for way in ways if way not in others))


def _may_be_known(file: Path, events: LocalTable) -> bool:
    """Whether some of its content may have been taken in before: then only the rest of it counts."""
    try:
        if events.has_fence(Commit(fence("ingest", survey(file, []).whole), 1)):
            return True
        history = list(events.history())
        notes = [json.loads(text)[NOTE] for entry in history if NOTE in (text := entry.metadata or "")]
        begun = survey(file, [Mark(note["bytes"], note["sha256"]) for note in notes]).known
        return bool(begun) or history[-1].version > 0
    except Exception:  # whatever stands in the way, Spark says it
        return True
