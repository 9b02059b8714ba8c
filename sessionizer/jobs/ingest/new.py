"""new: a config to begin with, guessed from a file of events."""

import json
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from sessionizer.jobs.config_file import load_config
from sessionizer.jobs.ingest.files import check_files
from sessionizer.jobs.ingest.guess import Column, Guess, guess
from sessionizer.jobs.ingest.time_formats import ISO
from sessionizer.lib import columns as C
from sessionizer.lib.config import json_schema
from sessionizer.lib.errors import UsageError, counted

SCHEMA = "sessionizer.schema.json"
PLAIN = re.compile(r"[A-Za-z]\w*", re.ASCII)
SPECIAL = {"true", "false", "null", "yes", "no", "on", "off"}  # which YAML, or who reads it, takes for something else
MOST_SUMS, MOST_TEXTS = 3, 2


@dataclass(frozen=True)
class Begin:
    """What to begin with: a look at the first file, and what is chosen of it. gap: a duration."""

    files: tuple[Path, ...]
    found: Guess
    key: str | None
    time: str | None
    gap: str = "30m"


def begin(files: Sequence[Path]) -> Begin:
    """The likeliest choice. Errors: UsageError, SourceError for files that cannot be looked at."""
    check_files(files)
    found = guess(files[0])
    return Begin(tuple(files), found, next(iter(found.keys), None), next(iter(found.time_formats), None))


def write(chosen: Begin, config: Path) -> None:
    """Write the config, and beside it the JSON Schema that editors complete and check it by.

    Errors: UsageError where there is one, or where nothing in the file can be the time.
    """
    if config.exists():
        raise UsageError("there is a config already", value=str(config), remedy="name another file with -c")
    if chosen.time is None:
        raise UsageError(
            "no column of the file looks like a time",
            value=", ".join(column.name for column in chosen.found.columns),
            remedy="name it with --time",
        )
    config.parent.mkdir(parents=True, exist_ok=True)
    draft = config.with_name(f".{config.name}.{os.getpid()}.yaml")
    try:
        draft.write_text(text_of(chosen), encoding="utf-8")
        load_config(draft, env={})  # what is written is a config, whatever the columns are called
        (config.parent / SCHEMA).write_text(json.dumps(json_schema(), indent=2) + "\n", encoding="utf-8")
        draft.replace(config)
    finally:
        draft.unlink(missing_ok=True)


def text_of(chosen: Begin) -> str:
    """The config, with words on what was seen."""
    found, time, names = chosen.found, chosen.time or C.EVENT_TIME, _names(chosen)
    others = [names.get(name, name) for name in found.keys if name != chosen.key][:3]
    lines = [
        f"# yaml-language-server: $schema={SCHEMA}",
        f"# Guessed from {chosen.files[0].name}; what else there is: docs/config.md, or your editor by the schema.",
        "source:",
        "  table: warehouse/events",
        _line(f"  key: [{'' if chosen.key is None else names[chosen.key]}]", _about_key(chosen, others)),
        _line(f"  event_time: {names[time]}", _about_time(chosen, time)),
        "sessions:",
        "  table: warehouse/sessions",
        "session:",
        _line(f"  gap: {chosen.gap}", "a longer pause ends a session; `sessionizer advise` looks at yours"),
        "time:",
        _line("  allowed_lateness: 24h", "how far behind the latest an event may come and still count"),
        "aggregates:",
        *[f"  - {{name: {kind}_{names[of]}, fn: {fn}, of: {names[of]}}}" for kind, fn, of in _aggregates(chosen)],
    ]
    if lines[-1] == "aggregates:":
        lines[-1] = "aggregates: []"
    return "\n".join(lines) + "\n"


def next_commands(chosen: Begin, config: Path) -> list[str]:
    """The two commands that come next."""
    found, named = chosen.found, [] if str(config) == "sessionizer.yaml" else ["-c", str(config)]
    options = ["--format", found.format, *named]
    form = found.time_formats.get(chosen.time or "", ISO)
    options += ["--time-format", form] if form != ISO else []
    options += ["--csv-sep", "\\t" if found.csv_sep == "\t" else found.csv_sep] if found.csv_sep != "," else []
    names = (chosen.time, chosen.key)
    typed = [c for c in found.columns if not (found.declared or c.kind == "string" or c.name in names or _is_name(c))]
    options += ["--schema", ", ".join(f"{_ddl(column.name)} {column.kind}" for column in typed)] if typed else []
    for name, new in _names(chosen).items():
        options += ["--rename", f"{name}={new}"] if new != name else []
    load = shlex.join(["sessionizer", "ingest", *map(str, chosen.files), *options])
    return [load, shlex.join(["sessionizer", "run", "--init", *named])]


def summary(chosen: Begin, config: Path) -> str:
    """What was written, in a sentence."""
    names = _names(chosen)
    whose = f"of {names[chosen.key]}" if chosen.key else "of all events together"
    when = names[chosen.time or C.EVENT_TIME]
    return f"wrote {config}: sessions {whose} by {when}, a pause of {chosen.gap} ends one"


def _aggregates(chosen: Begin) -> list[tuple[str, str, str]]:
    """Sums of numbers, and how many different texts: how it is called, the function, the column."""
    if chosen.found.format == "access-log":
        return [("total", "sum", "bytes"), ("different", "count_distinct", "path")]
    taken = (chosen.key, chosen.time)
    free = [c for c in chosen.found.columns if c.name not in taken and c.there and not c.is_within]
    sums = [c for c in free if c.kind in ("bigint", "double") and not _is_name(c)][:MOST_SUMS]
    texts = [c for c in free if c.kind == "string" and 1 < c.distinct < len(c.there)][:MOST_TEXTS]
    return [("total", "sum", c.name) for c in sums] + [("different", "count_distinct", c.name) for c in texts]


def _is_name(column: Column) -> bool:
    """Numbers that name something are not added up."""
    return bool(re.search(r"(?i)(^|_)(id|key|no|nr|code|zip|port|year|lat|lon)$|Id$", column.name))


def _about_key(chosen: Begin, others: Sequence[str]) -> str:
    if chosen.key is None:
        return "one stream of sessions: no column looked like somebody"
    column = chosen.found.column(chosen.key)
    told = f"{column.distinct:,} different in {counted(len(column.values), 'row')}" if column.values else ""
    return "; ".join(part for part in (told, f"or: {', '.join(others)}" if others else "") if part)


def _about_time(chosen: Begin, time: str) -> str:
    """A value, and what else it may mean."""
    found = chosen.found
    seen, alike = found.column(time).there[:1], " and ".join(found.fit_alike.get(time, ()))
    told = f", read as {found.time_formats[time]}; {alike} fits as well" if alike else ""
    return f"such as {seen[0]}{told}" if seen else ""


def _line(text: str, comment: str) -> str:
    return f"{text:<32}# {' '.join(comment.split())}" if comment else text


def _names(chosen: Begin) -> dict[str, str]:
    """What each column is called in the table: a name that SQL, YAML and Delta take as it is, and no other has.

    The key is called as no column of ours is. Of fields within columns those that are chosen become columns.
    """
    columns = [c.name for c in chosen.found.columns if not c.is_within or c.name in (chosen.key, chosen.time)]
    names = {name: name for name in columns if _is_plain(name, is_key=name == chosen.key)}
    for name in columns:
        if name not in names:
            made = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower()
            made = made if _is_plain(made, is_key=name == chosen.key) else f"the_{made or 'column'}"
            taken = {other.lower() for other in names.values()}
            alike = (f"{made}_{n}" for n in count(2))
            names[name] = made if made not in taken else next(other for other in alike if other not in taken)
    return names


def _is_plain(name: str, *, is_key: bool) -> bool:
    ours = (*C.FIXED_SESSION_COLUMNS, *C.FIXED_EVENT_COLUMNS) if is_key else ()
    return bool(PLAIN.fullmatch(name)) and name.lower() not in {*map(str.lower, ours), *SPECIAL}


def _ddl(column: str) -> str:
    return column if PLAIN.fullmatch(column) else C.quoted(column)
