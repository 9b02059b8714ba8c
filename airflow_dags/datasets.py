"""What a command reads and writes, by the names of OpenLineage."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from urllib.parse import urlsplit

ALSO_CALLED = {"s3a": "s3", "s3n": "s3"}
BUCKETS = ("s3", "gs", "abfs", "abfss", "wasb", "wasbs")  # in which paths begin without a slash
OF_SESSIONS = ("sessions", "rejected_events", "runs", "event_sessions", "session_updates")
OF_WINDOWS = ("windows", "rejected_window_events", "window_runs")
MAKE_ROWS = ("run", "slide", "backfill", "readmit", "rebuild")
ONLY_LOOK = {"--dry-run", "--compare"}


def reads_and_writes(arguments: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tables whose rows a command takes, and those that it writes, as `show` names them; a config may lack some.

    None of a command that only tells of the tables.
    """
    command, asked = arguments[0], set(arguments[1:])
    made = OF_WINDOWS if command == "slide" or "--windows" in asked else OF_SESSIONS
    if command == "ingest":
        source = _value_of("--source", arguments)
        return (), ("events" if source is None else f"events_{source}", "rejected_events")
    if command == "maintain":
        return (), () if asked & ONLY_LOOK else (*OF_SESSIONS, *OF_WINDOWS)
    if command == "verify" or (command in MAKE_ROWS and asked & ONLY_LOOK):
        return ("events", *made[:2]), ()
    return (("events",), made) if command in MAKE_ROWS else ((), ())


def _value_of(option: str, arguments: Sequence[str]) -> str | None:
    """What an option is set to, as `--source clicks` or `--source=clicks`; None where it is not given."""
    apart = [part for word in arguments for part in (word.split("=", 1) if word.startswith("--") else [word])]
    return next((value for name, value in pairwise(apart) if name == option), None)


def of_each(names: Sequence[str], known: Iterable[str], *, read: bool) -> tuple[str, ...]:
    """The names of tables; in place of `events`, where there are several sources, those of each: `events_clicks`.

    Behind them, of those that are read, those of mapping tables, by which events get a column: `mapping`, or
    `mapping_clicks`.
    """
    several = tuple(name for name in known if name.startswith("events_")) or ("events",)
    mapped = tuple(name for name in known if read and (name == "mapping" or name.startswith("mapping_")))
    return tuple(one for name in names for one in ((*several, *mapped) if name == "events" else (name,)))


def datasets(locations: Mapping[str, str], catalog: str) -> dict[str, tuple[str, str]]:
    """Namespace and name of each table that has them.

    catalog: the namespace of tables that the config names (`db.events`); "": they are left out.
    """
    found = {name: dataset(location, catalog) for name, location in locations.items()}
    return {name: one for name, one in found.items() if one[0]}


def dataset(location: str, catalog: str) -> tuple[str, str]:
    """Namespace and name of a table, as OpenLineage's own Spark and Airflow name files; location: as in the config."""
    if location.startswith("/"):
        return "file", location.rstrip("/")
    scheme, place, path, *_ = urlsplit(location)
    if not scheme:
        return catalog, location.replace("`", "").removeprefix("spark_catalog.")
    scheme = ALSO_CALLED.get(scheme, scheme)
    if scheme in ("s3", "gs"):
        place = place.rpartition("@")[2]  # keys are nobody's business
    namespace = f"{scheme}://{place}" if place else scheme
    return namespace, path.strip("/") if scheme in BUCKETS else "/" + path.strip("/")
