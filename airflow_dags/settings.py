"""What the DAGs have to know of this deployment: variables of the environment, the same on every worker."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import PurePath
from typing import Any


@dataclass(frozen=True)
class Settings:
    """The settings of one sessions table.

    config: the config file, an absolute path. command: how `sessionizer` is started: its path, or `spark-submit …
    cli.py` for a cluster. …_asset: its name or URI. maintain_options: more options of `sessionizer maintain`.
    """

    config: str
    command: tuple[str, ...] = ("sessionizer",)
    pool: str = "sessionizer"
    events_asset: str = "sessionizer_events"
    sessions_asset: str = "sessionizer_sessions"
    retries: int = 3
    retry_minutes: int = 1
    maintain_options: tuple[str, ...] = ()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Settings":
        """The settings in `SESSIONIZER_…` variables. Errors: ValueError for what cannot be right."""
        variables = {field.name: environment.get(f"SESSIONIZER_{field.name.upper()}") for field in fields(cls)}
        given: dict[str, Any] = {name: value for name, value in variables.items() if value}
        for name in given.keys() & {"command", "maintain_options"}:
            given[name] = tuple(shlex.split(given[name]))
        for name in given.keys() & {"retries", "retry_minutes"}:
            given[name] = int(given[name])
        config = given.setdefault("config", "")
        if not PurePath(config).is_absolute():
            raise ValueError(
                f"SESSIONIZER_CONFIG must be the absolute path of a config file: got {config!r}. "
                "Set it in the environment of the scheduler, the DAG processor and every worker."
            )
        return cls(**given)
