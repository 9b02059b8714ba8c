"""Great Expectations: checks of the tables, and the gate before a commit. The library is imported when it is used."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from sessionizer.jobs.quality.expectations import UNEXPECTED_ROWS, Expectation, Suite, read_suite
from sessionizer.lib import columns as C
from sessionizer.lib.errors import ConfigError, RunFailed, counted

LIBRARY = "great_expectations"
SHOWN = 10  # rows that break an expectation


@dataclass(frozen=True)
class Verdict:
    """What became of an expectation: it holds, or `broken` rows break it, or (error) it could not be evaluated."""

    suite: str
    expectation: str
    about: str
    why: str
    holds: bool
    broken: int | None = None
    rows: tuple[str, ...] = ()
    error: str | None = None


class Quality:
    """Validates frames; with `docs`, a folder, it also writes Data Docs there."""

    def __init__(self, docs: Path | None = None) -> None:
        os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")  # nothing is reported to anyone
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import great_expectations as gx  # noqa: PLC0415  (takes seconds, and is an extra)
        self.gx: Any = gx
        self.context = self.gx.get_context(mode="ephemeral")
        self.context.variables.progress_bars = {"globally": False}
        self.source = self.context.data_sources.add_spark("tables", persist=False)
        self.docs = docs
        for name in list(self.context.variables.data_docs_sites or {}):
            self.context.delete_data_docs_site(name)
        if docs is not None:
            backend = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs.absolute())}
            index = {"class_name": "DefaultSiteIndexBuilder"}
            site = {"class_name": "SiteBuilder", "site_index_builder": index, "store_backend": backend}
            self.context.add_data_docs_site("site", site)

    def validate(self, frame: DataFrame, name: str, suite: Suite, named_by: tuple[str, ...] = ()) -> list[Verdict]:
        """The verdict on each expectation. named_by: the columns whose values tell which rows break one.

        Queries are a suite of their own: GE shows their rows (200 at most) only where it would give all rows of others.
        """
        queries = [e for e in suite if e.type == UNEXPECTED_ROWS]
        others = [e for e in suite if e.type != UNEXPECTED_ROWS]
        told: dict[str, Any] = {"result_format": "SUMMARY", "partial_unexpected_count": SHOWN}
        if named_by:
            told["unexpected_index_column_names"] = [*named_by]
        batch = self.source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("all")
        parts = ((name, others, told), (f"{name}_queries", queries, {"result_format": "COMPLETE"}))
        results = [self._run(frame, batch, *part) for part in parts if part[1]]
        return [_verdict(name, result) for found in results for result in found]

    def _run(self, frame: DataFrame, batch: Any, name: str, suite: Suite, told: dict[str, Any]) -> list[Any]:
        expectations = self.gx.ExpectationSuite(name=name, expectations=[_made(e) for e in suite])
        definition = self.gx.ValidationDefinition(name=name, data=batch, suite=self.context.suites.add(expectations))
        checkpoint = self.gx.Checkpoint(
            name=name,
            validation_definitions=[self.context.validation_definitions.add(definition)],
            actions=[self.gx.checkpoint.UpdateDataDocsAction(name="docs", site_names=["site"])] if self.docs else [],
            result_format=told,
        )
        run = self.context.checkpoints.add(checkpoint).run(batch_parameters={"dataframe": frame})
        (validated,) = run.run_results.values()
        return list(validated.results)


def gate(rows: DataFrame, file: Path, name: str, identity: tuple[str, ...]) -> None:
    """Raise a RunFailed unless the rows that a run is about to write are as the suite of this file expects.

    name: what they are; identity: the columns that tell them apart.
    """
    suite = read_suite(file)
    verdicts = Quality().validate(rows, "about_to_be_written", suite, identity)
    if errors := [v for v in verdicts if v.error is not None]:
        raise RunFailed(
            f"{counted(len(errors), 'expectation')} of {file} could not be evaluated: "
            + "; ".join(f"{v.expectation} ({v.about}): {v.error}" for v in errors),
            remedy="mend the file: this says nothing about the data; nothing was written",
        )
    if broken := [v for v in verdicts if not v.holds]:
        raise RunFailed(
            f"the {name} to be written break {counted(len(broken), 'expectation')} of {file}: "
            + "; ".join(f"{v.expectation} ({v.about}) in {_rows(v)}" for v in broken),
            remedy="mend the source, or the expectations if they are wrong; nothing was written",
        )


def require_library() -> None:
    """Raise a ModuleNotFoundError at once, where the import would, but take seconds until it did."""
    if find_spec(LIBRARY) is None:
        raise ModuleNotFoundError(name=LIBRARY)


def _rows(verdict: Verdict) -> str:
    number = "some rows" if verdict.broken is None else counted(verdict.broken, "row")
    return f"{number}: {', '.join(verdict.rows)}" if verdict.rows else number


def _made(expectation: Expectation) -> Any:
    """GE's own object. Errors: ConfigError where there is none of this type, or it takes other arguments."""
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration  # noqa: PLC0415

    notes = {"notes": expectation.why}
    configuration = ExpectationConfiguration(type=expectation.type, kwargs=dict(expectation.kwargs), meta=notes)
    try:
        return configuration.to_domain_obj()
    except Exception as error:
        raise ConfigError(
            "there is no such expectation, or it takes other arguments",
            value=f"{expectation.type} {dict(expectation.kwargs)}",
            remedy=str(error).splitlines()[0],
        ) from error


def _verdict(suite: str, result: Any) -> Verdict:
    """One of GE's results. One that crashed is called unsuccessful, as if data were wrong: `exception_info` tells."""
    configuration, found = result.expectation_config, result.result or {}
    kwargs = configuration.kwargs
    error = _exception(result.exception_info)
    broken = found.get("unexpected_count")
    if broken is None and configuration.type == UNEXPECTED_ROWS:
        broken = found.get("observed_value")
    return Verdict(
        suite=suite,
        expectation=configuration.type,
        about=_about(kwargs),
        why=str((configuration.meta or {}).get("notes", "")),
        holds=bool(result.success) and error is None,
        broken=int(broken) if isinstance(broken, int | float) and not result.success and error is None else None,
        rows=() if result.success or error is not None else _broken_rows(found),
        error=error,
    )


def _exception(info: Mapping[str, Any] | None) -> str | None:
    """The message of the exception that an expectation ended in; GE gives one, or one for each metric."""
    each = [info, *info.values()] if info else []
    for one in each:
        if isinstance(one, Mapping) and one.get("raised_exception"):
            return str(one.get("exception_message") or "no message").splitlines()[0]
    return None


def _about(kwargs: Mapping[str, Any]) -> str:
    """The columns of an expectation, or its query."""
    columns = [kwargs[name] for name in ("column", "column_A", "column_B", "column_list") if name in kwargs]
    query = str(kwargs.get("unexpected_rows_query", "the table"))
    return ", ".join(map(str, columns)) or query.partition(" WHERE ")[2] or query


def _broken_rows(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Which rows: by the column that names them, where GE gives it, else the values."""
    rows = found.get("partial_unexpected_index_list") or (found.get("details") or {}).get("unexpected_rows")
    if rows is None:
        return tuple(str(value) for value in (found.get("partial_unexpected_list") or [])[:SHOWN])
    told = (", ".join(f"{k}={v}" for k, v in _named(row).items()) for row in rows)
    return tuple(dict.fromkeys(told))[:SHOWN]


def _named(row: Any) -> Mapping[str, Any]:
    values: Mapping[str, Any] = row.asDict() if hasattr(row, "asDict") else row
    return {C.SESSION_ID: values[C.SESSION_ID]} if C.SESSION_ID in values else values
