"""Cases of other systems, as they lie in a folder of vectors."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUNDLED = Path(__file__).parent / "vectors"


class NotApplicable(Exception):
    """A case asks for something that this product does not have; the reason names it."""


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

        Errors: NotApplicable names the first field that is not known.
        """
        for name in self.config:
            if name not in known:
                raise NotApplicable(f"{self.kind} with config.{name}")

    def expects(self, *known: str) -> None:
        """Refuse a case with an expectation, or an input, that is none of these.

        Errors: NotApplicable names the first field that is not known.
        """
        for name in self.body:
            if name not in known and name not in OF_EVERY_CASE and not name.startswith("derived"):
                raise NotApplicable(f"{self.kind} with {name}")


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
