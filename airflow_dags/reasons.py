"""Why a command has failed, by its JSON document, in a sentence."""

from collections.abc import Mapping
from typing import Any

FOUND, WRONG = 1, 2  # exit codes


def reason(document: Mapping[str, Any]) -> str:
    """The error that it tells; else what `verify` or `check` have found."""
    if "error" in document:
        return str(document["error"])
    if "expectations" in document:
        return "; ".join(_expectation(one) for one in document["expectations"] if one["error"] or not one["holds"])
    broken = [f"broken: {name} ({number} rows)" for name, number in document.get("rules", {}).items() if number]
    of = next((name for name in ("windows", "sessions") if name in document), None)
    differ = [] if of is None else [f"{document['differing']} of {document[of]} {of} differ from their events"]
    return "; ".join([*differ, *broken]) or "it does not say why"


def _expectation(one: Mapping[str, Any]) -> str:
    """One that does not hold: of which suite, about what, and in how many rows."""
    what = f"{one['suite']}: {one['expectation']} ({one['about']})"
    if one["error"]:
        return f"{what} could not be evaluated: {one['error']}"
    return f"{what} is broken" + ("" if one["broken"] is None else f" in {one['broken']} rows")


def is_for_good(code: int, document: Mapping[str, Any]) -> bool:
    """Whether trying again cannot change it: a wrong command or config, or a check that has found something.

    Python ends by the exit code of the latter, too, where it breaks down; it then leaves no document.
    """
    return code == WRONG or (code == FOUND and "error" not in document)
