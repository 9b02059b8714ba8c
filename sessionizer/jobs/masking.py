"""A config without its secrets: fit to be shown."""

import re
from typing import Any

from sessionizer.lib.config import Config, location_kind
from sessionizer.lib.errors import MASK, without_passwords

SECRET_NAME = re.compile(r"secret|passw|token|credential|signature|sas|account[._-]?key|access[._-]?key|\bkey\b", re.I)
_SECRET_VALUE = re.compile(r"(secret|passw\w*|pwd|token|sig|key)\s*[=:]|://[^/@\s]+@", re.I)


def masked(config: Config) -> dict[str, Any]:
    """The config with its defaults, without what is not set, and without secrets: fit to be shown.

    Of `spark:` every value is hidden whose name or content looks like a secret; of URLs, users and queries.
    """
    fields: dict[str, Any] = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    fields["spark"] = {
        name: MASK if SECRET_NAME.search(name) or _SECRET_VALUE.search(value) else value
        for name, value in config.spark.items()
    }
    return {name: _with_plain_urls(value) for name, value in fields.items() if value not in ({}, [])}


def _with_plain_urls(value: object) -> object:
    """Locations of tables without users and queries, at any depth."""
    if isinstance(value, dict):
        return {name: _with_plain_urls(inner) for name, inner in value.items()}
    if isinstance(value, str) and location_kind(value) == "url":
        return without_passwords(value).partition("?")[0]
    return value
