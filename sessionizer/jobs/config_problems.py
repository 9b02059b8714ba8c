"""What is wrong with a config: each of pydantic's errors as a rule, a value and a remedy that a user can act on."""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from sessionizer.jobs.masking import SECRET_NAME
from sessionizer.lib.config import Config
from sessionizer.lib.errors import MASK

LONGEST_KEY = 60


class Problem(NamedTuple):
    """A rule that is broken, by which value, and what to do about it."""

    rule: str
    value: object = None
    remedy: str = ""


def problem_of(error: ErrorDetails, origins: Mapping[tuple[str, ...], str]) -> Problem:
    """The problem that pydantic has found. origins: which variable has set which field."""
    parts = tuple(part for part in error["loc"] if not str(part).startswith("("))  # tags of alternatives
    names = tuple(str(part) for part in parts if not isinstance(part, int))
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{_short(part)}" for part in parts).lstrip(".")
    # What has set this field, a section around it, or (an unknown section) a field in it.
    setters = (v for path, v in origins.items() if names and path[: len(names)] == names[: len(path)])
    setter = next(setters, None)
    label = f"{field} (set by {setter})" if setter and error["type"] != "missing" else field
    if error["type"] == "extra_forbidden":
        return _unknown_key(label, names)
    return _broken(label or ("" if error["type"] == "broken_rule" else "a key"), names, error)


def _short(key: str) -> str:
    return key if len(key) <= LONGEST_KEY else f"{key[:LONGEST_KEY]}…"


def _unknown_key(label: str, names: tuple[str, ...]) -> Problem:
    known = [path[-1] for path, _ in _fields() if path[:-1] == names[:-1]]
    near = difflib.get_close_matches(names[-1].lower(), known, n=1)
    elsewhere = [".".join(path) for path, _ in _fields() if path[-1] == names[-1].lower()]
    if suggestions := near or elsewhere:
        return Problem(f"{label} is not a known key", remedy=f"Did you mean {suggestions[0]}?")
    return Problem(f"{label} is not a known key", remedy=f"Known here: {', '.join(known)}")


def _allowed(error: ErrorDetails) -> str:
    return str(error.get("ctx", {}).get("expected", "a duration such as 30m")).replace("'", "")


_PLAIN_RULES = {
    **dict.fromkeys(
        ("model_type", "dict_type"), ("must hold `key: value` lines", "Indent them below it, or remove it")
    ),
    **dict.fromkeys(("string_too_short", "string_pattern_mismatch"), ("must not be empty", "Give it a value")),
    "too_short": ("must name at least one", "Add one, or remove the key"),
    "string_unicode": ("must be text without halves of characters", "Remove \\ud800 and the like"),
    "bool_type": ("must be true or false", "Write true or false, without quotes"),
}


def _broken(label: str, names: tuple[str, ...], error: ErrorDetails) -> Problem:
    value = "null" if error["input"] is None else error["input"]
    if names[:1] == ("spark",) and SECRET_NAME.search(label):
        value = MASK
    context = error.get("ctx", {})
    match error["type"]:
        case "broken_rule":
            rule = f"{label} {context['rule']}".strip()
            own = context["value"]
            return Problem(rule, value if own is None else own, context["remedy"])
        case "value_error":
            return Problem(f"{label}: {context['error']}")
        case "missing":
            return Problem(f"{label} is missing", remedy=f"Add it: {dict(_fields())[names].description}")
        case "literal_error":
            near = difflib.get_close_matches(str(value).lower(), re.findall(r"'(\w+)'", context["expected"]), n=1)
            remedy = f"Did you mean {near[0]}?" if near else f"Use {_allowed(error)}"
            return Problem(f"{label} must be {_allowed(error)}", value, remedy)
        case "tuple_type":
            example = error["input"] if isinstance(error["input"], str) else "a, b"
            return Problem(f"{label} must be a list", value, f"Write it in brackets: [{example}]")
        case "string_type":
            remedy = "Put the value in quotes" if isinstance(value, int) else "Write one text"
            return Problem(f"{label} must be text", value, remedy)
        case "invalid_key":
            return Problem(f"{label}: a key must be text", error["loc"][-1], "Put it in quotes, or remove it")
        case "int_type" | "greater_than_equal":
            least = context.get("ge", 1)
            return Problem(f"{label} must be a whole number of at least {least}", value, "Write one without quotes")
        case "less_than_equal":
            return Problem(f"{label} must be at most {context['le']}", value, "Write a smaller number")
        case "start_form":
            return Problem(f"{label} {error['msg']}", value, "Use one of these forms")
    if error["type"] in _PLAIN_RULES:
        rule, remedy = _PLAIN_RULES[error["type"]]
        return Problem(f"{label} {rule}", value, remedy)
    return Problem(f"{label}: {error['msg']}", value)


def _fields(model: type[BaseModel] = Config, section: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each key that there may be, with those of the sections around it, and its field."""
    for name, field in model.model_fields.items():
        path = (*section, field.alias or name)
        yield path, field
        for inner in _models_in(field.annotation):
            yield from _fields(inner, path)


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
