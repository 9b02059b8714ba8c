"""Loading a config: the YAML file, the variables that override it, and errors a user can act on."""

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from lib.config import Config, location_kind
from lib.errors import MASK, ConfigError, explain, without_passwords

PREFIX = "SESSIONIZER__"

_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})\Z")
_BOOL = re.compile(r"(true|True|TRUE|false|False|FALSE)\Z")
_NULL = re.compile(r"(~|null|Null|NULL|)\Z")
_MOST_PROBLEMS = 20  # that one error lists
_LONGEST_KEY = 60


class _Loader(yaml.SafeLoader):
    """YAML 1.2 scalars only, so that `1:30`, `on`, `010` and dates stay text; no other tags, and no key twice."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        merged = {key.value if isinstance(key, yaml.ScalarNode) else id(key): (key, value) for key, value in node.value}
        node.value = list(merged.values())  # merges of merges would else multiply

    def construct_core(self, node: yaml.ScalarNode) -> int | bool | None:
        """A number, a boolean or null; a tag may call any text so."""
        value = _core(str(self.construct_scalar(node)))
        if isinstance(value, str):
            problem = f"{value[:_LONGEST_KEY]!r} is no {node.tag.rpartition(':')[2]}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return value

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return node


_Loader.yaml_implicit_resolvers = {}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", _NULL, ["~", "n", "N", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile("<<$"), ["<"])
_Loader.yaml_constructors = {
    tag: constructor
    for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.endswith((":str", ":seq", ":map"))
}
for _tag in ("int", "bool", "null"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.construct_core)


def load_config(path: str | Path, env: Mapping[str, str] | None = None) -> Config:
    """Load a config file; variables such as `SESSIONIZER__SESSION__GAP=45m` override its fields.

    Relative paths in it are relative to its folder. `env` is the process environment unless given. Lists and
    mappings in variables are JSON or YAML; an empty variable is null.

    Raises:
        ConfigError: naming every field that breaks a rule, or why the file cannot be read.
    """
    file = Path(path)
    fields = _read(file)
    origins = _override(fields, os.environ if env is None else env)
    try:
        return Config.model_validate(fields, context={"folder": file.absolute().parent})
    except ValidationError as error:
        found = error.errors(include_url=False)
        problems = [_problem(e, origins) for e in found[:_MOST_PROBLEMS]]
    if len(found) == 1:
        rule, value, remedy = problems[0]
        raise ConfigError(f"{file}: {rule}", value=value, remedy=remedy)
    lines = "".join(f"\n  - {explain(*problem)}" for problem in problems)
    more = f"\n  … and {len(found) - len(problems)} more" if len(found) > len(problems) else ""
    raise ConfigError(f"{file} has {len(found)} problems:{lines}{more}")


def _read(file: Path) -> dict[Any, Any]:
    if file.is_dir():
        raise ConfigError("the config must be a file, not a folder", value=str(file), remedy="Name the YAML file in it")
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            "there is no config file", value=str(file), remedy="Create it, or name another one with -c"
        ) from None
    except OSError as error:
        raise ConfigError(
            "the config file cannot be read", value=str(file), remedy=f"Mend this: {error.strerror}"
        ) from None
    fields = _parse(content, str(file))
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise ConfigError(f"{file} must hold `key: value` lines", value=fields, remedy="Begin with `source:`")
    return fields


def _parse(content: bytes | str, where: str) -> Any:
    try:
        return yaml.load(content, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(
            f"{where}{line} is not valid YAML: {error.problem}",
            remedy="Mend that line; text with : or # or quotes in it needs quotes around it",
        ) from None
    except RecursionError:
        raise ConfigError(f"{where} is nested too deep", remedy="Mend its brackets and indentation") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(
            f"{where} is not valid YAML: {str(error).splitlines()[0]}",
            remedy="Mend the value, and save the file as plain UTF-8 text",
        ) from None


def _override(fields: dict[Any, Any], env: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Put the values of variables into `fields`; return which variable set which field."""
    origins = {}
    for variable in sorted(name for name in env if name.startswith(PREFIX)):
        parents, last = _field_of(variable)
        section = fields
        for part in parents:
            if not isinstance(section.get(part), dict):
                section[part] = {}
            section = section[part]
        section[last] = _value_of(variable, env[variable])
        origins[(*parents, last)] = variable
    return origins


def _field_of(variable: str) -> tuple[tuple[str, ...], str]:
    first, *rest = variable.removeprefix(PREFIX).split("__")
    if first.lower() == "spark" and rest:
        return ("spark",), "__".join(rest)  # settings of Spark tell capitals apart
    *parents, last = (part.lower() for part in (first, *rest))
    return tuple(parents), last


def _value_of(variable: str, text: str) -> object:
    return _parse(text, variable) if text.lstrip().startswith(("[", "{")) else _core(text)


def _core(text: str) -> int | bool | str | None:
    """What a plain text means in YAML 1.2: null, a boolean, a whole number, else itself."""
    if _NULL.match(text):
        return None
    if _BOOL.match(text):
        return text.lower() == "true"
    return int(text) if _INT.match(text) else text


class _Problem(NamedTuple):
    rule: str
    value: object = None
    remedy: str = ""


def _problem(error: ErrorDetails, origins: Mapping[tuple[str, ...], str]) -> _Problem:
    parts = tuple(part for part in error["loc"] if not str(part).startswith("("))  # tags of alternatives
    names = tuple(str(part) for part in parts if not isinstance(part, int))
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{_short(part)}" for part in parts).lstrip(".")
    setter = _setter(names, origins)
    label = f"{field} (set by {setter})" if setter and error["type"] != "missing" else field
    if error["type"] == "extra_forbidden":
        return _unknown_key(label, names)
    return _broken(label or "a key", names, error)


def _short(key: str) -> str:
    return key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}…"


def _setter(names: tuple[str, ...], origins: Mapping[tuple[str, ...], str]) -> str | None:
    """Name the variable that set this field, a section around it, or (an unknown section) a field in it."""
    for field, variable in origins.items():
        if names and field[: len(names)] == names[: len(field)]:
            return variable
    return None


def _unknown_key(label: str, names: tuple[str, ...]) -> _Problem:
    known = list(_keys(_model_of(names[:-1])))
    near = difflib.get_close_matches(names[-1].lower(), known, n=1)
    elsewhere = [key for key in _all_keys(Config) if key.split(".")[-1] == names[-1].lower()]
    if suggestions := near or elsewhere:
        return _Problem(f"{label} is not a known key", remedy=f"Did you mean {suggestions[0]}?")
    return _Problem(f"{label} is not a known key", remedy=f"Known here: {', '.join(known)}")


def _allowed(error: ErrorDetails) -> str:
    return str(error.get("ctx", {}).get("expected", "a duration such as 30m")).replace("'", "")


_MAPPING = ("must hold `key: value` lines", "Indent them below it, or remove it")
_FILLED = ("must not be empty", "Give it a value")
_PLAIN_RULES = {
    "model_type": _MAPPING,
    "dict_type": _MAPPING,
    "string_too_short": _FILLED,
    "string_pattern_mismatch": _FILLED,
    "string_unicode": ("must be text without halves of characters", "Remove \\ud800 and the like"),
    "bool_type": ("must be true or false", "Write true or false, without quotes"),
}


def _broken(label: str, names: tuple[str, ...], error: ErrorDetails) -> _Problem:
    value = "null" if error["input"] is None else error["input"]
    if names[:1] == ("spark",) and _SECRET_NAME.search(label):
        value = MASK
    context = error.get("ctx", {})
    match error["type"]:
        case "broken_rule":
            rule = f"{label} {context['rule']}".strip()
            own = context["value"]
            return _Problem(rule, value if own is None else own, context["remedy"])
        case "value_error":
            return _Problem(f"{label}: {context['error']}")
        case "missing":
            return _Problem(f"{label} is missing", remedy=f"Add it: {_description(names)}")
        case "literal_error":
            near = difflib.get_close_matches(str(value).lower(), re.findall(r"'(\w+)'", context["expected"]), n=1)
            remedy = f"Did you mean {near[0]}?" if near else f"Use {_allowed(error)}"
            return _Problem(f"{label} must be {_allowed(error)}", value, remedy)
        case "tuple_type":
            example = error["input"] if isinstance(error["input"], str) else "a, b"
            return _Problem(f"{label} must be a list", value, f"Write it in brackets: [{example}]")
        case "string_type":
            remedy = "Put the value in quotes" if isinstance(value, int) else "Write one text"
            return _Problem(f"{label} must be text", value, remedy)
        case "invalid_key":
            return _Problem(f"{label}: a key must be text", error["loc"][-1], "Put it in quotes, or remove it")
        case "int_type" | "greater_than_equal":
            least = context.get("ge", 1)
            return _Problem(f"{label} must be a whole number of at least {least}", value, "Write one without quotes")
        case "less_than_equal":
            return _Problem(f"{label} must be at most {context['le']}", value, "Write a smaller number")
        case "start_form":
            return _Problem(f"{label} {error['msg']}", value, "Use one of these forms")
    if error["type"] in _PLAIN_RULES:
        rule, remedy = _PLAIN_RULES[error["type"]]
        return _Problem(f"{label} {rule}", value, remedy)
    return _Problem(f"{label}: {error['msg']}", value)


def _keys(model: type[BaseModel] | None) -> Iterator[str]:
    for name, field in model.model_fields.items() if model else ():
        yield field.alias or name


def _all_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        yield key
        for section in _models_in(field.annotation):
            yield from _all_keys(section, f"{key}.")


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _model_of(names: tuple[str, ...]) -> type[BaseModel] | None:
    model: type[BaseModel] | None = Config
    for name in names:
        fields = {field.alias or key: field for key, field in model.model_fields.items()} if model else {}
        model = next(_models_in(fields[name].annotation), None) if name in fields else None
    return model


def _description(names: tuple[str, ...]) -> str:
    section = _model_of(names[:-1])
    field = section.model_fields.get(names[-1]) if section else None
    return (field.description if field else None) or "it has no default"


_SECRET_NAME = re.compile(r"secret|passw|token|credential|signature|sas|account[._-]?key|access[._-]?key|\bkey\b", re.I)
_SECRET_VALUE = re.compile(r"(secret|passw\w*|pwd|token|sig|key)\s*[=:]|://[^/@\s]+@", re.I)


def masked(config: Config) -> dict[str, Any]:
    """The config with its defaults, without what is not set, and without secrets: fit to be shown.

    Of `spark:` every value is hidden whose name or content looks like a secret; of URLs, users and queries.
    """
    fields: dict[str, Any] = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    fields["spark"] = {
        name: MASK if _SECRET_NAME.search(name) or _SECRET_VALUE.search(value) else value
        for name, value in config.spark.items()
    }
    shown: dict[str, Any] = _with_plain_urls(fields)
    return {name: value for name, value in shown.items() if value not in ({}, [])}


def _with_plain_urls(fields: dict[str, Any]) -> dict[str, Any]:
    """Locations of tables without users and queries, at any depth."""
    shown: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            shown[name] = _with_plain_urls(value)
        elif isinstance(value, str) and location_kind(value) == "url":
            shown[name] = without_passwords(value).partition("?")[0]
        else:
            shown[name] = value
    return shown
