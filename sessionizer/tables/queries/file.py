"""A file of a table, on the disk or in an object store, read without Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class File:
    """A file of a table, and its rows as the log counts them (None: it does not).

    is_final: of which partition of sessions or windows it is; None: of another table.
    """

    path: str
    rows: int | None
    store: Any = None  # the file system that it lies in; None: the disk
    is_final: bool | None = None

    def exists(self) -> bool:
        """Whether it is still there."""
        return Path(self.path).exists() if self.store is None else bool(self.store.get_file_info(self.path).is_file)

    def count(self) -> int:
        """How many rows it has."""
        return self._open().metadata.num_rows if self.rows is None else self.rows

    def read(self, columns: Sequence[str] | None = None) -> Any:
        """Its rows as a pyarrow table, those of these columns that it has."""
        return self._open().read(columns)

    def text(self) -> str:
        """What is in it, of one that is text."""
        if self.store is None:
            return Path(self.path).read_text(encoding="utf-8")
        with self.store.open_input_file(self.path) as file:
            return bytes(file.read()).decode()

    def _open(self) -> Any:
        from pyarrow.parquet.core import ParquetFile  # noqa: PLC0415  (unlike a dataset it does without pandas)

        return ParquetFile(self.path, filesystem=self.store, coerce_int96_timestamp_unit="us")
