"""Files of an object store, on this machine for as long as they are read or written."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sessionizer.lib.config import location_kind
from sessionizer.lib.errors import SessionizerError, UsageError
from sessionizer.tables.places.object_store import ObjectStore, arrow_path, copying, is_stored

HIDDEN = ("_", ".")  # what names of files, and of folders, begin with that hold no rows


@dataclass(frozen=True)
class Fetched:
    """Files to read, in order. folder: where those of a store are for now, each below the name of its bucket."""

    files: list[Path]
    folder: str

    def told(self, text: str) -> str:
        """The text with the names that the files have in their store."""
        return text.replace(f"{self.folder}{os.sep}", "s3://")


@contextmanager
def fetched(names: Sequence[str], settings: Mapping[str, str]) -> Iterator[Fetched]:
    """These files; those of a store (`s3://…`) are copied, and of a folder there all files below it, in order of name.

    settings: the config's `spark:`. Errors: UsageError for what is not there; RunFailed where the store refuses; those
    raised inside tell of the files by the names that they have in their store.
    """
    with TemporaryDirectory(prefix="sessionizer-", ignore_cleanup_errors=True) as folder:
        found, files = Fetched([], folder), None
        for name in names:
            if location_kind(name) != "url":
                found.files.append(Path(name))
            else:
                files = files or _store(name, settings).files()
                found.files.extend(_copied(name, files, Path(folder)))
        try:
            yield found
        except SessionizerError as error:
            error.rule, error.remedy = found.told(error.rule), found.told(error.remedy)
            error.value = found.told(error.value) if isinstance(error.value, str) else error.value
            raise


@contextmanager
def delivered(name: str, settings: Mapping[str, str]) -> Iterator[Path]:
    """A file to write; one of a store (`s3://…`) is of this machine inside, and copied there as a whole at the end.

    Errors: UsageError for another URL, RunFailed where the store refuses.
    """
    if location_kind(name) != "url":
        yield Path(name)
        return
    files = _store(name, settings, "a file to write lies").files()
    from pyarrow.fs import LocalFileSystem, copy_files  # noqa: PLC0415  (as below)

    with TemporaryDirectory(prefix="sessionizer-") as folder:
        file = Path(folder, name.rstrip("/").rpartition("/")[2])
        yield file
        with copying():
            copy_files(str(file), arrow_path(name), LocalFileSystem(), files)


def check_deliverable(name: str, settings: Mapping[str, str]) -> None:
    """Raise where a file of this name could not be delivered, as far as that can be known. Errors: UsageError."""
    if location_kind(name) == "url":
        _store(name, settings, "a file to write lies")


def _store(name: str, settings: Mapping[str, str], what: str = "files to ingest lie") -> ObjectStore:
    if not is_stored(name):
        raise UsageError(f"{what} on this machine or at s3://", value=name, remedy="copy it by other means")
    if (store := ObjectStore.of(settings, os.environ)) is None:
        raise UsageError(
            "files at s3:// are read and written without Spark, and the config names credentials that only Spark "
            "understands",
            value=name,
            remedy="copy them by other means, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead",
        )
    return store


def _copied(name: str, files: Any, folder: Path) -> Iterator[Path]:
    from pyarrow.fs import LocalFileSystem, copy_files  # noqa: PLC0415  (as below)

    with copying():
        paths = below(arrow_path(name), files)
        if not paths:
            raise UsageError("a file to ingest must exist", value=name, remedy="check the bucket and the path")
        for path in paths:
            copy = folder / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy_files(path, str(copy), files, LocalFileSystem())
            yield copy


def below(path: str, files: Any) -> list[str]:
    """The file of this path, or of a folder all files below it, in order of name."""
    from pyarrow.fs import FileSelector  # noqa: PLC0415  (it loads a library that files on the disk need not)

    if files.get_file_info(path).is_file:
        return [path]
    there = files.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
    return sorted(f.path for f in there if f.is_file and not _is_hidden(f.path[len(path) :].strip("/")))


def _is_hidden(path: str) -> bool:
    """Whether a file, or a folder that it lies in, is of no rows; `_day=1` is a partition, as Spark has it."""
    *folders, name = path.split("/")
    inside = [folder for folder in folders if "=" not in folder or folder.startswith(".")]
    return any(one.startswith(HIDDEN) for one in (*inside, name))
