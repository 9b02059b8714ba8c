"""Deaths of a process, as far as they can be had within one: what nothing catches, at a step that is named."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from tables.delta import Table

WRITES = ("append", "merge", "overwrite", "delete")


class Killed(BaseException):
    """As a kill, nothing catches it."""


@contextmanager
def killed_at(owner: Any, step: str) -> Iterator[None]:
    """What happens inside comes to this step of `owner`, a class or a module, and dies instead of it."""

    def die(*_: object) -> None:
        raise Killed

    with patch.object(owner, step, die), pytest.raises(Killed):
        yield


class killing:  # noqa: N801
    """Inside it the nth write to a table is the last thing that happens: just before it, or just after."""

    def __init__(self, nth: int, after: bool) -> None:
        self.left, self.after = nth, after
        self.patches = [patch.object(Table, name, self._deadly(getattr(Table, name))) for name in WRITES]

    def _deadly(self, write: Callable[..., None]) -> Callable[..., None]:
        def deadly(*arguments: Any, **named: Any) -> None:
            self.left -= 1
            if self.left or self.after:
                write(*arguments, **named)
            if not self.left:
                raise Killed

        return deadly

    def __enter__(self) -> None:
        for each in self.patches:
            each.start()

    def __exit__(self, *_: object) -> None:
        for each in self.patches:
            each.stop()
