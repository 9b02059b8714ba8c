"""Plays of a source whose events get a user from a table of devices, in memory; and of one that has this column itself.

Events are told as in `play`, by device: `d1@5 d2@7=3`. Devices: `d1=ann d2=bob`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

from pyspark.sql import SparkSession

from sessionizer.lib.config import Config
from tests.exactness.play import told_short
from tests.exactness.several import Event, Several
from tests.machine.memory import in_memory

STITCH: dict[str, Any] = {"from": "u", "to": "user_id"}
WHO = [{"name": "who", "expr": "coalesce(user_id, u)"}]
EVENTS = "u STRING, at TIMESTAMP, n INT"
TOTAL = [{"name": "total", "fn": "sum", "of": "n"}]


class Stitched(Several):
    """A source `events`, and `devices`; whoever has no user is a key of their own."""

    def __init__(self, spark: SparkSession, folder: Path, **sections: Any) -> None:
        tables = {"events": {"schema": EVENTS}, "devices": {"schema": "u STRING, user_id STRING"}}
        super().__init__(spark, folder, tables, **sections)

    def configured(self, *_: str) -> Config:
        stitch = {"table": str(self.folder / "devices"), **STITCH}
        return self._config({"stitch": stitch})

    def _config(self, of_source: Mapping[str, Any]) -> Config:
        source = {"table": str(self.folder / "events"), "key": WHO, "event_time": "at", **of_source}
        sections = {"session": {"gap": "10m"}, "time": {"allowed_lateness": "0s"}, "aggregates": TOTAL}
        given = sections | self.sections
        source |= given.get("source", {})
        tables = {"source": source, "sessions": {"table": str(self.folder / "sessions")}}
        return Config.model_validate(given | tables)

    def change(self, **sections: Any) -> Self:
        """From now on by these sections."""
        self.sections |= sections
        self.config = self.configured()
        return self

    # The table of devices.

    def maps(self, devices: str) -> Self:
        """One more version of it, with these rows more; - is null."""
        told = (pair.split("=") for pair in devices.split())
        rows = [{"u": u, "user_id": None if user == "-" else user} for u, user in told]
        self.there["devices"] += rows
        self._changed("devices", insert=rows)
        return self

    def remaps(self, device: str, user: str | None) -> Self:
        """An UPDATE of the rows of a device."""
        before = [row for row in self.there["devices"] if row["u"] == device]
        after = [row | {"user_id": user} for row in before]
        self.there["devices"] = [row for row in self.there["devices"] if row["u"] != device] + after
        self._changed("devices", "UPDATE", update_preimage=before, update_postimage=after)
        return self

    def unmaps(self, device: str, user: str | None = None) -> Self:
        """A DELETE of the rows of a device, of one user alone if one is named."""
        gone = [r for r in self.there["devices"] if r["u"] == device and user in (None, r["user_id"])]
        self.there["devices"] = [row for row in self.there["devices"] if row not in gone]
        self._changed("devices", "DELETE", delete=gone)
        return self

    def users(self) -> dict[str, str]:
        """Whose each device is: the smallest user that it has a row of."""
        found: dict[str, str] = {}
        for row in self.there["devices"]:
            u, user = row["u"], row["user_id"]
            if user is not None:
                found[u] = min(user, found.get(u, user))
        return found

    # Together.

    def plays(self, text: str) -> Self:
        """Runs: `d1@0 d2@5 | d1=ann | d1@9 d2=ann` are three of them."""
        for part in text.split(" | "):
            words = part.split()
            if events := [word for word in words if "@" in word]:
                self.comes(events=" ".join(events))
            if devices := [word for word in words if "@" not in word]:
                self.maps(" ".join(devices))
            self.runs()
        return self


class Materialised(Stitched):
    """The same source with the column itself, which is updated just before a run that would read changed devices.

    What comes to the events waits until then, to be told with the users of that moment.
    """

    def __init__(self, spark: SparkSession, folder: Path, of: Stitched) -> None:
        self.of, self.waits, self.known = of, list[Any](), dict[str, str]()
        super().__init__(spark, folder, **of.sections)
        self.sources = {"events": {"schema": f"{EVENTS}, user_id STRING"}}
        self.there = {"events": []}

    def configured(self, *_: str) -> Config:
        return self._config({})

    def wait(self, change: Any, *arguments: Any, **values: Any) -> None:
        self.waits.append(partial(change, *arguments, **values))

    def catch_up(self) -> None:
        """All that has come since the last run, the users first."""
        users = self.of.users()
        before = [row for row in self.there["events"] if row["user_id"] != users.get(row["u"])]
        after = [row | {"user_id": users.get(row["u"])} for row in before]
        if before:
            stay = [row for row in self.there["events"] if row not in before]
            self.there["events"] = stay + after
            self._changed("events", "UPDATE", update_preimage=before, update_postimage=after)
        for change in self.waits:
            change()
        self.waits.clear()

    def comes(self, **events: str) -> Self:
        users = self.of.users()
        for text in events.values():
            new: list[Event] = [{**event, "user_id": users.get(event["u"])} for event in told_short(text)]
            self.there["events"] += new
            self._changed("events", insert=new)
        return self

    def becomes(self, name: str, n: int, **values: Any) -> Self:
        if "u" in values:
            values = {**values, "user_id": self.of.users().get(values["u"])}
        super().becomes(name, n, **values)
        return self


@contextmanager
def stitching(spark: SparkSession, folder: Path) -> Iterator[Any]:
    """Makes plays; tables are there until its end."""
    with in_memory():
        yield lambda **sections: Stitched(spark, folder, **sections)
