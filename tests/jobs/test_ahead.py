"""What is said of files before Spark starts; what only the ingest itself can know is left to it."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.ingest.ahead import check_ahead
from sessionizer.jobs.ingest.file_reader import IngestOptions
from sessionizer.jobs.preflight import check
from sessionizer.lib.config import Config
from sessionizer.lib.errors import SessionizerError
from tests.jobs.test_ingest import AT, Lake, lake_at

CSV, JSON = IngestOptions("csv"), IngestOptions("json")
LIFTED = replace(JSON, rename={"user.id": "key"})
REF = replace(JSON, rename={"ref": "referrer"})


def config_at(folder: Path, **source: Any) -> Config:
    source = {"table": str(folder / "lake/events"), "key": ["key"], **source}
    return Config.model_validate({"source": source, "sessions": {"table": f"{folder}/lake/sessions"}})


def said(folder: Path, options: IngestOptions, *contents: str, config: Config | None = None) -> str:
    """What is wrong with files of these contents; nothing: no word."""
    files = [folder / f"{n}.{options.format}" for n in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_text(content)
    try:
        check_ahead(check(config or config_at(folder)), files, options)
    except SessionizerError as error:
        return str(error)
    return ""


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps({"event_time": AT, **row}) + "\n" for row in rows)


MISSPELT = lines({"user": {"ident": 1}})


def test_what_is_surely_missing_is_said(tmp_path: Path) -> None:
    assert "got 'key'" in said(tmp_path, CSV, f"kee,event_time\n1,{AT}\n")
    assert "got 'user.id'. did you mean user.ident?" in said(tmp_path, LIFTED, MISSPELT)
    assert "got 'ref'" in said(tmp_path, REF, lines({"key": 1}))
    assert "got 'ref'" in said(tmp_path, REF, lines({"key": 1}), lines({"key": 1, "ref": 1}))


@pytest.mark.parametrize(
    ("options", "contents"),
    [
        pytest.param(replace(JSON, rename={"ref": "x"}), [lines({"key": 1, "Ref": 1}, {"ref": 2})], id="capitals"),
        pytest.param(LIFTED, [lines({"user": {"id": 1}}, {"user": {"ID": 1}})], id="capitals within"),
        pytest.param(REF, [lines({"key": 1, "ref": 1}), lines({"key": 1})], id="known from an earlier file"),
        pytest.param(REF, ["[" + lines({"key": 1, "ref": 1}), lines({"key": 1})], id="unknown earlier file"),
        pytest.param(replace(JSON, schema="key string"), [lines({"a": 1})], id="declared and absent"),
        pytest.param(replace(LIFTED, schema="user struct<id: string>"), [MISSPELT], id="declared object"),
        pytest.param(replace(CSV, schema="kee string"), [f"kee,event_time\n1,{AT}\n"], id="declared csv"),
        pytest.param(LIFTED, [lines({"user": {**{f"m{n}": n for n in range(150)}, "id": 1}})], id="many members"),
        pytest.param(
            replace(JSON, rename={"a.b.c.d.e.f.g.h": "key"}),
            [lines({"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": 1}}}}}}}})],
            id="deep members",
        ),
        pytest.param(LIFTED, [lines({"user": {"id": 1}}, {"user": "oops"})], id="an odd line"),
        pytest.param(LIFTED, [lines({"user": None})], id="no object"),
        pytest.param(
            replace(JSON, rename={"a.b": "x", "c": "y"}),
            [lines({"a": None, "c": 1, "key": 1}), lines({"key": 2})],
            id="behind a file that is not sure",
        ),
        pytest.param(LIFTED, [lines({"user": "oops"})], id="texts"),
        pytest.param(CSV, ["kee,event_time\n"], id="a header alone"),
        pytest.param(CSV, ["kee,event_time\n\n \r\n"], id="a header and blanks"),
        pytest.param(CSV, [""], id="an empty csv"),
        pytest.param(JSON, ["\n\n"], id="an empty json"),
        pytest.param(LIFTED, ['{"user": ' * 200 + "1" + "}" * 200 + "\n"], id="too deep"),
    ],
)
def test_what_is_not_sure_is_left_to_the_ingest(tmp_path: Path, options: IngestOptions, contents: list[str]) -> None:
    assert said(tmp_path, options, *contents) == ""


def test_nothing_is_said_where_the_table_cannot_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(tmp_path, LIFTED, MISSPELT, config=config_at(tmp_path, table="main.shop.events")) == ""
    with monkeypatch.context() as changed:
        changed.setitem(os.environ, "HADOOP_CONF_DIR", "/nowhere")
        assert said(tmp_path, LIFTED, MISSPELT) == ""
    log = tmp_path / "lake/events/_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("torn")
    assert said(tmp_path, LIFTED, MISSPELT) == ""


def test_many_names_of_many_lines_take_no_time(tmp_path: Path) -> None:
    rows = [{"event_time": AT, f"n{n % 3000}": 1, "user": {f"n{n % 3000}": 1}} for n in range(20_000)]
    assert "got 'key'" in said(tmp_path, JSON, lines(*rows))


def test_what_is_in_is_not_asked_again(spark: SparkSession, tmp_path: Path) -> None:
    lake: Lake = lake_at(spark, tmp_path, key=["key"])
    jsonl = lines({"user": {"id": "u", "plan": 1}})
    csv = f"key,event_time\nk,{AT}\n"
    lake.ingest(LIFTED, lake.file("0.json", jsonl))
    lake.ingest(CSV, lake.file("0.csv", csv))
    other = replace(CSV, rename={"a": "b"})
    assert said(tmp_path, JSON, jsonl, config=lake.config) == ""
    assert said(tmp_path, other, csv, config=lake.config) == ""
    assert said(tmp_path, JSON, jsonl + jsonl, config=lake.config) == ""  # it counts what it has grown by
    assert said(tmp_path, LIFTED, lines({"user": {"plan": 1}}), config=lake.config) == ""  # the table has user.id
    assert "got 'key'" in said(tmp_path, JSON, "\n" + jsonl, config=lake.config)
    assert "got 'a'" in said(tmp_path, other, "\n" + csv, config=lake.config)
