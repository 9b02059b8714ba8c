"""What OpenLineage is told of a task; imported only where its provider is."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from airflow.providers.openlineage.conf import execution_timeout
from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import RunFacet, output_statistics_output_dataset

from airflow_dags.command import figures
from airflow_dags.datasets import of_each, reads_and_writes


@attrs.define
class SessionizerRunFacet(RunFacet):
    """What the runs of a command have done together: the same as in the extra of an asset event."""

    figures: dict[str, Any]


def patience() -> float:
    """Seconds that the tables may be asked for: past its timeout the provider sends no event at all."""
    return 0.7 * float(execution_timeout())


def lineage(arguments: Sequence[str], known: Mapping[str, tuple[str, str]], document: Any) -> OperatorLineage:
    """The datasets of a command, among those known by namespace and name; with its JSON document, what it has done."""
    reads, writes = reads_and_writes(arguments)
    reads, writes = of_each(reads, known, read=True), of_each(writes, known, read=False)
    done = figures(document["runs"]) if document and "runs" in document and writes else {}
    outputs = [OutputDataset(*known[name]) for name in writes if name in known]
    if done and writes[0] in known:
        rows = done.get("rows_added", 0) + done.get("rows_changed", 0)
        written = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=rows)
        outputs[0].outputFacets = {"outputStatistics": written}
    return OperatorLineage(
        inputs=[InputDataset(*known[name]) for name in reads if name in known],
        outputs=outputs,
        run_facets={"sessionizer": SessionizerRunFacet(figures=done)} if done else {},
    )
