"""What the DAGs have to know of this deployment: variables of the environment, the same on every worker."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from pathlib import Path, PurePath
from typing import Any

_SAYS = re.compile(r"\s*[^\s#]")  # neither blank nor a comment
_NAMES_TABLES = re.compile(r"""["']?(source|sources|sessions)["']?\s*:""")  # which any config does, and no other file
NAME = "{name}"  # in a setting: the name of the config, where there are many
OF_MANY = {  # in place of the defaults
    "pool": "sessionizer_{name}",
    "events_asset": "sessionizer_events_{name}",
    "sessions_asset": "sessionizer_sessions_{name}",
}


@dataclass(frozen=True)
class Settings:
    """The settings of one sessions table.

    config: the config file, an absolute path. command: how `sessionizer` is started: its path, or `spark-submit …
    cli.py` for a cluster. …_asset: its name or URI. maintain_options: more options of `sessionizer maintain`. catalog:
    what OpenLineage calls the catalog of its tables. name: what its DAGs are told by; "": they are the only ones.
    """

    config: str
    command: tuple[str, ...] = ("sessionizer",)
    pool: str = "sessionizer"
    events_asset: str = "sessionizer_events"
    sessions_asset: str = "sessionizer_sessions"
    retries: int = 3
    retry_minutes: int = 1
    maintain_options: tuple[str, ...] = ()
    catalog: str = ""
    name: str = ""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "tuple[Settings, ...]":
        """The settings in `SESSIONIZER_…` variables; of a folder one for each config file in it, in order of names.

        Other files of the folder are passed over: those that begin with a dot, and YAML that names no table.
        Errors: ValueError for what cannot be right.
        """
        variables = {field.name: environment.get(f"SESSIONIZER_{field.name.upper()}") for field in fields(cls)}
        given: dict[str, Any] = {name: value for name, value in variables.items() if value and name != "name"}
        for name in given.keys() & {"command", "maintain_options"}:
            given[name] = tuple(shlex.split(given[name]))
        for name in given.keys() & {"retries", "retry_minutes"}:
            given[name] = int(given[name])
        config = given.setdefault("config", "")
        if not PurePath(config).is_absolute():
            raise ValueError(
                "SESSIONIZER_CONFIG must be the absolute path of a config file, or of a folder of them: "
                f"got {config!r}. Set it in the environment of the scheduler, the DAG processor and every worker."
            )
        if not Path(config).is_dir():
            return (cls(**given),)
        return cls(**{**OF_MANY, **given})._of_each(Path(config))

    def dag(self, what: str) -> str:
        """The id of its DAG for this."""
        return f"{self.name}.{what}" if self.name else what

    def of_tasks(self) -> dict[str, Any]:
        """What each of its tasks is given."""
        return {
            "config": self.config,
            "command": self.command,
            "catalog": self.catalog,
            "pool": self.pool,
            "retries": self.retries,
            "retry_delay": timedelta(minutes=self.retry_minutes),
            "retry_exponential_backoff": True,
            "max_retry_delay": timedelta(minutes=30),
        }

    def _of_each(self, folder: Path) -> "tuple[Settings, ...]":
        files = sorted(file for file in folder.iterdir() if _is_config(file))
        names = [file.stem for file in files]
        if wrong := next((name for name in names if not re.fullmatch(r"[\w-]+", name) or names.count(name) > 1), None):
            raise ValueError(
                f"each config file in the folder SESSIONIZER_CONFIG must have a name of its own, of letters, digits, _ "
                f"and -, for its DAGs are called so: got {wrong!r}. Rename the file."
            )
        if len(files) > 1 and NAME not in self.sessions_asset:
            raise ValueError(
                "SESSIONIZER_SESSIONS_ASSET must hold {name} where SESSIONIZER_CONFIG is a folder: each sessions table "
                f"is an asset of its own: got {self.sessions_asset!r}."
            )
        return tuple(
            replace(
                self,
                config=str(file),
                name=file.stem,
                **{field: getattr(self, field).replace(NAME, file.stem) for field in OF_MANY},
            )
            for file in files
        )


def _is_config(file: Path) -> bool:
    """Whether it may be one: YAML that is no draft, and names a source or sessions, or is still empty."""
    if file.name.startswith(".") or file.suffix not in (".yaml", ".yml") or not file.is_file():
        return False
    lines = [line for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if _SAYS.match(line)]
    return not lines or lines[0].startswith("{") or any(_NAMES_TABLES.match(line) for line in lines)
