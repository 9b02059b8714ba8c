"""Loading a config: the YAML file, and the variables that override it."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from sessionizer.jobs.config_problems import LONGEST_KEY, problem_of
from sessionizer.lib.config import Config
from sessionizer.lib.errors import ConfigError, explain

PREFIX = "SESSIONIZER__"

_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})\Z")
_LONG = re.compile(r"[-+]?(0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?\Z|[-+]?[0-9]+[eE][-+]?[0-9]+\Z")
_BOOL = re.compile(r"(true|True|TRUE|false|False|FALSE)\Z")
_NULL = re.compile(r"(~|null|Null|NULL|)\Z")
_MOST_PROBLEMS = 20  # that one error lists


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
            problem = f"{value[:LONGEST_KEY]!r} is no {node.tag.rpartition(':')[2]}"
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


class _Plain(_Loader):
    """The same with numbers of any length, and those with a point or an exponent."""

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        text = str(self.construct_scalar(node))
        return int(text) if _LONG.match(text) else float(text)


_Plain.add_implicit_resolver("tag:yaml.org,2002:int", _LONG, list("-+0123456789"))
_Plain.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
for _tag in ("int", "float"):
    _Plain.add_constructor(f"tag:yaml.org,2002:{_tag}", _Plain.construct_number)


def plain_yaml(text: str) -> Any:
    """What YAML, or JSON, that is no config holds, read as configs are. Errors: yaml.YAMLError."""
    return yaml.load(text, _Plain)


def load_config(path: str | Path, env: Mapping[str, str] | None = None) -> Config:
    """Load a config file; variables such as `SESSIONIZER__SESSION__GAP=45m` override its fields.

    Relative paths in it are relative to its folder. `env` is the process environment unless given. Lists and
    mappings in variables are JSON or YAML; an empty variable is null.

    Raises:
        ConfigError: naming every field that breaks a rule, or why the file cannot be read.
    """
    file = named_so(Path(path))
    fields = _read(file)
    origins = _override(fields, os.environ if env is None else env)
    try:
        return Config.model_validate(fields, context={"folder": file.absolute().parent})
    except ValidationError as error:
        found = error.errors(include_url=False)
        problems = [problem_of(e, origins) for e in found[:_MOST_PROBLEMS]]
    if len(found) == 1:
        rule, value, remedy = problems[0]
        raise ConfigError(f"{file}: {rule}", value=value, remedy=remedy)
    lines = "".join(f"\n  - {explain(*problem)}" for problem in problems)
    more = f"\n  … and {len(found) - len(problems)} more" if len(found) > len(problems) else ""
    raise ConfigError(f"{file} has {len(found)} problems:{lines}{more}")


def named_so(file: Path) -> Path:
    """The file, or the one of the other suffix that YAML goes by, if only that is there."""
    other = file.with_suffix({".yaml": ".yml", ".yml": ".yaml"}.get(file.suffix, file.suffix))
    return other if not file.exists() and other.is_file() else file


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
    if not isinstance(fields, dict | None):
        raise ConfigError(f"{file} must hold `key: value` lines", value=fields, remedy="Begin with `source:`")
    return fields or {}


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
        path = _field_of(variable)
        section = fields
        for part in path[:-1]:
            if not isinstance(section.get(part), dict):
                section[part] = {}
            section = section[part]
        text = env[variable]
        section[path[-1]] = _parse(text, variable) if text.lstrip().startswith(("[", "{")) else _core(text)
        origins[path] = variable
    return origins


def _field_of(variable: str) -> tuple[str, ...]:
    first, *rest = variable.removeprefix(PREFIX).split("__")
    if first.lower() == "spark" and rest:
        return "spark", "__".join(rest)  # settings of Spark tell capitals apart
    return tuple(part.lower() for part in (first, *rest))


def _core(text: str) -> int | bool | str | None:
    """What a plain text means in YAML 1.2: null, a boolean, a whole number, else itself."""
    if _NULL.match(text):
        return None
    if _BOOL.match(text):
        return text.lower() == "true"
    return int(text) if _INT.match(text) else text
