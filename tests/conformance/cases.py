"""Cases of other systems, as they lie in a folder of vectors."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice, permutations
from pathlib import Path
from typing import Any

BUNDLED = Path(__file__).parent / "vectors"


class NotApplicable(Exception):
    """A case means something else than this product; the reason, one of `not_applicable`, names the difference."""


class UnknownShape(ValueError):
    """A case that the adapters do not understand: an error, for nobody knows what it means."""


@dataclass(frozen=True)
class Case:
    """One case of one system: a configuration, what comes in, and what comes out there."""

    system: str
    file: str
    name: str
    kind: str
    config: Mapping[str, Any]
    body: Mapping[str, Any]

    def only(self, *known: str) -> None:
        """Refuse a case that says more than these fields of `config` and the fields every case has.

        Errors: UnknownShape names the first field that is not known.
        """
        for name in self.config:
            if name not in known and name not in OF_ITS_TEST and not name.startswith("permut"):
                raise UnknownShape(f"{self.kind} with config.{name}")

    def expects(self, *known: str) -> None:
        """Refuse a case with an expectation, or an input, that is none of these.

        Errors: UnknownShape names the first field that is not known.
        """
        for name in self.body:
            if name not in known and name not in OF_EVERY_CASE and not name.startswith(("derived", "permut")):
                raise UnknownShape(f"{self.kind} with {name}")

    def orders(self) -> "list[Case]":
        """The case in each order of its records that it says makes no difference; itself, where it says none.

        `permutable_records` and the like: true (any order), places of records (any order of these), or orders.
        """
        told = [v for part in (self.body, self.config) for name, v in part.items() if name.startswith("permut")]
        name = next((name for name in ("records", "rows", "ranges") if isinstance(self.body.get(name), list)), None)
        if not any(told):
            return [self]
        if name is None:
            raise UnknownShape("records in any order, of a case without")
        records = self.body[name]
        return [
            replace(self, body={**self.body, name: [records[n] for n in order]})
            for order in _orders(len(records), next(t for t in told if t))
        ]


def _orders(number: int, told: Any) -> list[list[int]]:
    places = list(range(number))
    match told:
        case [[*_], *_]:
            return [list(order) for order in told]
        case [int(), *_]:
            places = told
        case True | str():
            pass
        case _:
            raise UnknownShape(f"records in the order {told!r}")
    found = []
    for order in islice(permutations(places), 24) if len(places) <= MOST_PERMUTED else _some(places):
        whole = list(range(number))
        for place, n in zip(sorted(places), order, strict=True):
            whole[place] = n
        found.append(whole)
    return found


def _some(places: list[int]) -> list[list[int]]:
    middle = len(places) // 2
    return [places, places[::-1], places[middle:] + places[:middle], places[::2] + places[1::2]]


MOST_PERMUTED = 4  # of more records not every order is tried
# What says how a test was made, not what its outcome depends on.
OF_ITS_TEST = ("api", "assigner", "generator", "state", "stores", "segment_interval_ms", "variants_same_result")
OF_EVERY_CASE = ("name", "source", "system", "kind", "config", "notes", "also", "base_ts", "expected_order")


def load(folder: Path) -> list[Case]:
    """All cases of a folder: files of Kafka hold arrays, those of its peers objects with `system` and `cases`."""
    found = []
    for file in sorted(folder.rglob("*.json")):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            of_file = "kafka"
            if isinstance(content, dict):
                of_file, content = content["system"], content["cases"]
            found += [_case(of_file, file.stem, number, body) for number, body in enumerate(content)]
        except (ValueError, KeyError, TypeError):
            found.append(Case(file.parent.name, file.stem, "(whole file)", "file without cases", {}, {}))
    return found


def _case(system: str, file: str, number: int, body: Any) -> Case:
    if not isinstance(body, dict) or not isinstance(body.get("config", {}), dict):
        return Case(system, file, f"#{number}", "case that is no object", {}, {})
    return Case(
        system=str(body.get("system", system)),
        file=file,
        name=str(body.get("name", f"#{number}")),
        kind=str(body.get("kind", "case without a kind")),
        config=body.get("config", {}),
        body=body,
    )
