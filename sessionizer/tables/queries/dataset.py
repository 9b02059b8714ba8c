"""The rows of a Delta table as a pyarrow dataset.

deltalake has one of its own, which takes all statistics of the log for what Arrow may rely on: files with a time that
Python lacks, or with NaN, of which the log tells no edges or wrong ones, are passed over there.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable

ROUNDED = 1_000  # µs: statistics may tell times in whole milliseconds


def dataset_of(log: DeltaTable, files: Any) -> Any:
    """All rows of the log's version. files: Arrow's file system whose root is the table's.

    Errors: ValueError, DeltaError as of the log, or where files lie elsewhere.
    """
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow.dataset import (  # noqa: PLC0415  (half a second: it imports pandas)
        FileSystemDataset,
        ParquetFileFormat,
        ParquetFragmentScanOptions,
        ParquetReadOptions,
    )

    options = ParquetReadOptions(coerce_int96_timestamp_unit="us")
    kind = ParquetFileFormat(options, default_fragment_scan_options=ParquetFragmentScanOptions(pre_buffer=True))
    schema = pa.schema(log.schema().to_arrow())
    told = pa.table(log.get_add_actions())
    paths = told["path"].to_pylist()
    if any(path.startswith("/") or urlsplit(path).scheme for path in paths):
        raise ValueError("files of it lie elsewhere, as those of a shallow clone do")
    fragments = [
        kind.make_fragment(unquote(path), filesystem=files, partition_expression=known)
        for path, known in zip(paths, _known(told, schema), strict=True)
    ]
    return FileSystemDataset(fragments, schema, kind, files)


def _known(told: Any, schema: Any) -> Iterator[Any]:
    """What is true of all rows of each file: the values of its partition, and between which edges its times lie."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow.dataset import field, scalar  # noqa: PLC0415

    values, low, high, nulls = (_columns(told, name) for name in ("partition", "min", "max", "null_count"))
    times = [name for name in low if name in high and name in nulls and pa.types.is_temporal(schema.field(name).type)]
    for i in range(told.num_rows):
        known = scalar(True)
        for name, of in values.items():
            value = of[i].cast(schema.field(name).type)
            known &= field(name) == value if value.is_valid else field(name).is_null()
        for name in times:
            if (edges := _edges(low[name][i], high[name][i], schema.field(name).type)) is not None:
                within = (field(name) >= edges[0]) & (field(name) <= edges[1])
                known &= within if nulls[name][i].as_py() == 0 else within | field(name).is_null()
        yield known


def _columns(told: Any, name: str) -> Mapping[str, Any]:
    """The members of one of the log's structs, by name."""
    if name not in told.column_names:
        return {}
    whole = told[name].combine_chunks()
    return {of.name: whole.field(of.name) for of in whole.type}


def _edges(low: Any, high: Any, kind: Any) -> tuple[Any, Any] | None:
    """The first and the last time or day; None where the log does not tell both."""
    import pyarrow as pa  # noqa: PLC0415

    if not (low.is_valid and high.is_valid):
        return None
    if pa.types.is_timestamp(kind):
        high = pa.scalar(high.cast(pa.int64()).as_py() + ROUNDED, pa.int64())
    return low.cast(kind), high.cast(kind)
