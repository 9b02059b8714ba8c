"""`new`: a config to begin with, guessed from a file."""

import gzip
import json
import shlex
from dataclasses import replace
from datetime import date, datetime
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sessionizer.jobs.command_line import options
from sessionizer.jobs.config_file import load_config
from sessionizer.jobs.ingest.guess import format_of, guess
from sessionizer.jobs.ingest.new import begin, next_commands, text_of, write
from sessionizer.lib.errors import SourceError, UsageError
from tests.jobs.test_without_spark import process

CSV = """Customer ID;Clicked At;Page;Amount;event id;user agent
017;31.12.2025 10:00:05;/;;1;x
017;31.12.2025 10:10:05;/cart;12.50;2;x
19;31.12.2025 10:10:05;"/ca;rt";3;3;y
19;31.12.2025 10:20:05;/;3;4;y
torn line
"""
JSON = """{"userId": "u1", "ts": 1767225600000, "device": {"os": "mac"}, "price": 1.5, "ok": true}
{"userId": "u1", "ts": 1767225660000, "device": {"os": "mac"}, "price": 2, "city": "Bonn"}
no json
{"userId": "u2", "ts": 1767225670000, "price": null}
"""
LOG = '10.0.0.1 - - [14/Oct/2019:10:50:18 +0200] "GET /a HTTP/1.1" 200 5 "-" "curl"\n' * 2


def file(folder: Path, name: str, content: str) -> Path:
    written = folder / name
    written.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    return written


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.csv", CSV, "csv"),
        ("a.TSV.gz", CSV, "csv"),
        ("a.jsonl", JSON, "json"),
        ("a.log", LOG, "access-log"),
        ("a.log.gz", LOG, "access-log"),
        ("a", JSON, "json"),
        ("a.txt", CSV, "csv"),
        ("a.dat", "PAR1…", "parquet"),
    ],
)
def test_the_format_is_that_of_the_suffix_or_of_the_content(tmp_path: Path, name: str, content: str, kind: str) -> None:
    assert format_of(file(tmp_path, name, content)) == kind


def test_a_messy_csv_file(tmp_path: Path) -> None:
    chosen = begin([file(tmp_path, "clicks.csv.gz", CSV)])
    found = chosen.found
    assert (found.csv_sep, chosen.key, chosen.time) == (";", "Customer ID", "Clicked At")
    assert found.time_formats == {"Clicked At": "dd.MM.yyyy HH:mm:ss"}
    assert [column.kind for column in found.columns] == ["string", "string", "string", "double", "bigint", "string"]
    text = text_of(chosen)
    assert "  key: [customer_id]            # 2 different in 4 rows; or: " in text
    assert "  event_time: clicked_at        # such as 31.12.2025 10:00:05" in text
    assert "{name: total_Amount, fn: sum, of: Amount}" in text
    assert "event_id" not in text  # numbers that name something are not added up
    load, then = next_commands(chosen, Path("sessionizer.yaml"))
    words = shlex.split(load)
    assert words[:2] == ["sessionizer", "ingest"]
    assert words[words.index("--schema") + 1] == "Amount double"
    assert words[words.index("--csv-sep") + 1] == ";"
    assert "Customer ID=customer_id" in words
    assert then == "sessionizer run --init"


def test_numbers_whose_digits_would_go_are_texts(tmp_path: Path) -> None:
    rows = [
        "id,thread,tag,phone,ratio,big",
        "1,1234567890123456789,99999999999999999999,+4930123,0.1,1e9999999999999999999",
        "2,9223372036854775807,7,+4930124,59.97,1e-9999999999999999999",
    ]
    found = begin([file(tmp_path, "a.csv", "\n".join(rows) + "\n")]).found
    assert [column.kind for column in found.columns] == ["bigint", "bigint", "string", "string", "double", "string"]


def test_lines_of_json(tmp_path: Path) -> None:
    chosen = begin([file(tmp_path, "events.jsonl", JSON)])
    assert (chosen.key, chosen.time, chosen.found.time_formats) == ("userId", "ts", {"ts": "epoch_ms"})
    load, _ = next_commands(chosen, Path("shop/our config.yaml"))
    assert load.endswith("events.jsonl --format json -c 'shop/our config.yaml' --time-format epoch_ms")


NESTED = [
    {"user": {"id": f"u{n % 2}", "plan": {"name": "pro"}}, "meta": {"ts": f"2026-01-01T10:0{n}:00Z"}, "n": [n]}
    for n in range(6)
]


def test_key_and_time_are_found_within_objects(tmp_path: Path) -> None:
    rows = [*NESTED, {"user": None, "meta": {"ts": None}}]
    written = file(tmp_path, "events.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    chosen = begin([written])
    assert (chosen.key, chosen.time) == ("user.id", "meta.ts")
    write(chosen, tmp_path / "sessionizer.yaml")
    config = load_config(tmp_path / "sessionizer.yaml", env={})
    assert (config.source.key, config.source.event_time) == (("user_id",), "meta_ts")
    words = shlex.split(next_commands(chosen, Path("sessionizer.yaml"))[0])
    renamed = [word for before, word in pairwise(words) if before == "--rename"]
    assert sorted(renamed) == ["meta.ts=meta_ts", "user.id=user_id"]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "events.parquet")
    chosen = begin([tmp_path / "events.parquet"])
    assert (chosen.key, chosen.time) == ("user.id", "meta.ts")


def test_what_the_files_lack_is_said_before_spark_starts(tmp_path: Path) -> None:
    nowhere = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
    file(tmp_path, "events.jsonl", "".join(json.dumps(row) + "\n" for row in NESTED))
    file(tmp_path, "events.csv", "usr,at,n\nu,2026-01-01,1\n")
    config = "source: {table: lake/events, key: [user_id], event_time: at}\nsessions: {table: lake/sessions}\n"
    file(tmp_path, "sessionizer.yaml", config)
    for words, says in (
        ("events.csv", "events.csv lacks a column that source.key names: got 'user_id'. did you mean usr?"),
        ("events.csv --rename user=user_id", "got 'user'. did you mean usr? The file has: usr, at, n."),
        ("events.csv nothing.csv", "a file to ingest must exist: got 'nothing.csv'"),
        ("events.jsonl --rename user.id=user_id", "events.jsonl lacks a column that source.event_time names: got 'at'"),
        (
            "events.jsonl --rename meta.ts=at",
            "did you mean user.id? The file has: user, meta, n, at, user.id, user.plan",
        ),
        ("events.jsonl --rename meta.ts=at", "--rename user.id=user_id gives it this name"),
        ("events.jsonl --rename usr.id=user_id", "got 'usr.id'. did you mean user.id?"),
    ):
        done = process("-m", "sessionizer.jobs.cli", "ingest", *words.split(), cwd=tmp_path, **nowhere)
        assert says in " ".join(done.stderr.split()), words
        assert (done.returncode in (2, 3), done.stdout) == (True, "")


def test_an_access_log(tmp_path: Path) -> None:
    chosen = begin([file(tmp_path, "access.log", LOG)])
    assert (chosen.key, chosen.time) == ("host", "event_time")


@pytest.mark.parametrize(
    ("values", "form"),
    [
        (["2026-01-01T10:00:00Z", "2026-01-01 10:00"], "iso"),
        (["1767225600", "1767225601.5"], "epoch_s"),
        (["1767225600000"] * 2, "epoch_ms"),
        (["13/01/2026 10:00"] * 2, "dd/MM/yyyy HH:mm"),
        (["01/13/2026 10:00:01"] * 2, "MM/dd/yyyy HH:mm:ss"),
        (["1/5/2026 9:03", "01/05/2026 10:03"], "M/d/yyyy H:mm"),
        (["1.2.2026 9:03", "13.12.2026 10:03"], "d.M.yyyy H:mm"),
        (["Mon Jan 05 09:03:00 +0000 2026"] * 2, None),
        (["10:00", "11:00"], None),
        (["7", "8"], None),
    ],
)
def test_formats_of_times(tmp_path: Path, values: list[str], form: str | None) -> None:
    rows = "".join(f"u,{value}\n" for value in values)
    assert guess(file(tmp_path, "a.csv", f"user,ts\n{rows}")).time_formats.get("ts") == form


def test_a_day_far_down_tells_it_from_a_month(tmp_path: Path) -> None:
    rows = "u,12/01/2026 10:00\n" * 960 + "u,13/01/2026 10:00\n" * 600
    chosen = begin([file(tmp_path, "a.csv", f"user,ts\n{rows}")])
    assert chosen.found.time_formats == {"ts": "dd/MM/yyyy HH:mm"}
    assert "  event_time: ts                # such as 12/01/2026 10:00\n" in text_of(chosen)


def test_where_day_and_month_cannot_be_told_apart_the_config_says_so(tmp_path: Path) -> None:
    chosen = begin([file(tmp_path, "a.csv", "user,ts\nu,02/01/2026 10:00\nu,03/01/2026 10:00\n")])
    told = "# such as 02/01/2026 10:00, read as MM/dd/yyyy HH:mm; dd/MM/yyyy HH:mm fits as well\n"
    assert (chosen.found.time_formats, told in text_of(chosen)) == ({"ts": "MM/dd/yyyy HH:mm"}, True)


def test_a_field_that_python_has_no_value_for_hides_none_beside_it(tmp_path: Path) -> None:
    time = pa.timestamp("us", "UTC")
    fields = {"user": pa.array(["u", "v", "u"]), "at": pa.array([1, 2, 3], time), "until": pa.array([2**62] * 3, time)}
    pq.write_table(
        pa.table({"e": pa.StructArray.from_arrays(list(fields.values()), list(fields))}), tmp_path / "a.parquet"
    )
    found = guess(tmp_path / "a.parquet")
    assert (found.time_formats, found.keys) == ({"e.at": "iso"}, ("e.user",))


def test_who_somebody_is(tmp_path: Path) -> None:
    rows = "".join(f"{n},agent{n % 2},v{n % 3},{n % 5}\n" for n in range(20))
    found = guess(file(tmp_path, "a.csv", f"event_id,user_agent,visitor_id,shelf\n{rows}"))
    assert found.keys == ("visitor_id", "shelf", "user_agent")
    assert guess(file(tmp_path, "b.csv", "time,x\n2026-01-01,1\n2026-01-02,2\n")).keys == ()


def test_of_columns_that_differ_in_capitals_alone_the_one_is_guessed_that_is_read(tmp_path: Path) -> None:
    rows = [{"User": "x", "user": f"u{n % 2}", "at": f"2026-01-01T00:0{n}:00Z", "n": n, "N": n} for n in range(4)]
    chosen = begin([file(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))])
    write(chosen, tmp_path / "sessionizer.yaml")
    config = load_config(tmp_path / "sessionizer.yaml", env={})
    assert (config.source.key, [a.of for a in config.aggregates]) == (("user",), ["n"])


def test_what_is_written_is_a_config_whatever_columns_are_called(tmp_path: Path) -> None:
    content = "on,a: b,1st,Zeit (UTC)\n" + "x,y,2,2026-01-01\n" * 3 + "z,y,2,2026-01-01\n"
    chosen = begin([file(tmp_path, "odd.csv", content)])
    write(chosen, tmp_path / "made" / "sessionizer.yaml")
    config = load_config(tmp_path / "made" / "sessionizer.yaml", env={})
    assert (config.source.key, config.source.event_time) == (("the_on",), "zeit_utc")
    assert "the_1st" not in config.source.key
    schema = json.loads((tmp_path / "made" / "sessionizer.schema.json").read_text())
    assert schema["title"] == "Config"
    with pytest.raises(UsageError, match="there is a config already"):
        write(chosen, tmp_path / "made" / "sessionizer.yaml")


@pytest.mark.parametrize(
    ("header", "key"), [("#,user,ts", "user"), ("页面,用户,时间", "the_column"), ("Пользователь,userId,ts", "userId")]
)
def test_columns_may_be_named_in_any_script_or_by_a_sign(tmp_path: Path, header: str, key: str) -> None:
    rows = "".join(f"{n % 3},u{n % 2},2026-01-01\n" for n in range(6))
    write(begin([file(tmp_path, "odd.csv", f"{header}\n{rows}")]), tmp_path / "sessionizer.yaml")
    assert load_config(tmp_path / "sessionizer.yaml", env={}).source.key == (key,)


def test_names_that_meet_each_other_or_ours_are_kept_apart(tmp_path: Path) -> None:
    content = "status,User ID,user_id,a-b,a b,x=1,at\n" + "s,u,v,1,2,3,2026-01-01\n" * 3 + "t,w,v,1,2,3,2026-01-02\n"
    chosen = replace(begin([file(tmp_path, "odd.csv", content)]), key="status")
    write(chosen, tmp_path / "sessionizer.yaml")
    config = load_config(tmp_path / "sessionizer.yaml", env={})
    assert config.source.key == ("the_status",)
    assert [a.of for a in config.aggregates if a.fn == "sum"] == ["a_b", "a_b_2", "x_1"]
    words = shlex.split(next_commands(chosen, Path("sessionizer.yaml"))[0])
    renamed = [word for before, word in pairwise(words) if before == "--rename"]
    assert renamed == ["status=the_status", "User ID=user_id_2", "a-b=a_b", "a b=a_b_2", "x=1=x_1"]
    assert options.pair("x=1=x_1", "--rename", "old=new", last=True) == ("x=1", "x_1")
    assert [path.name for path in tmp_path.iterdir()].count("sessionizer.yaml") == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("old-mac.csv", "user,at\ru,2026-01-01\ru,2026-01-02\r"),
        ("bom.csv", "\ufeffuser,at\nu,2026-01-01\nu,2026-01-02\n"),
        ("one.csv", "at\n2026-01-01\n"),
        ("huge.jsonl", '{"n": 1' + "0" * 400 + ', "at": "2026-01-01"}\n' + "[" * 100_000 + "\n"),
        ("nan.jsonl", '{"n": NaN, "at": "2026-01-01"}\n{"n": Infinity, "at": "2026-01-01"}\n'),
    ],
)
def test_odd_files_are_looked_at_all_the_same(tmp_path: Path, name: str, content: str) -> None:
    assert guess(file(tmp_path, name, content)).time_formats == {"at": "iso"}


def test_times_of_parquet_that_python_does_not_know_are_passed_over(tmp_path: Path) -> None:
    days = pa.array([40_000_000, 1], pa.int32()).cast(pa.date32())
    ends, zone = pa.array([2**60, 1], pa.timestamp("us")), pa.array([1, 2], pa.timestamp("us", "Mars/Olympus"))
    times = pa.array([datetime(2026, 1, 1)] * 2)
    pq.write_table(pa.table({"day": days, "to": ends, "zone": zone, "ts": times}), tmp_path / "a.parquet")
    found = guess(tmp_path / "a.parquet")
    assert found.column("day").values == [None, date(1970, 1, 2)]
    assert (found.column("zone").there, found.time_formats) == ([], {"ts": "iso", "day": "iso", "to": "iso"})


def test_what_is_no_file_of_events_is_refused(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "empty.csv").touch()
    for name in ("noise", "empty.csv"):
        with pytest.raises((SourceError, UsageError)):
            write(begin([tmp_path / name]), tmp_path / "sessionizer.yaml")
    assert not (tmp_path / "sessionizer.yaml").exists()


def test_what_cannot_be_guessed_is_asked_for(tmp_path: Path) -> None:
    chosen = begin([file(tmp_path, "a.csv", "who,what\nx,y\nx,z\n")])
    with pytest.raises(UsageError, match="no column of the file looks like a time"):
        write(chosen, tmp_path / "sessionizer.yaml")
    with pytest.raises(SourceError, match="must have rows"):
        begin([file(tmp_path, "b.csv", "who,what\n")])
    with pytest.raises(UsageError, match="must exist"):
        begin([tmp_path / "nowhere.csv"])


def test_the_command_says_what_comes_next(tmp_path: Path) -> None:
    file(tmp_path, "events.jsonl", JSON)
    nowhere = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
    done = process("-m", "sessionizer.jobs.cli", "new", "events.jsonl", "--gap", "20m", cwd=tmp_path, **nowhere)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == (
        "wrote sessionizer.yaml: sessions of userId by ts, a pause of 20m ends one. Next:"
    )
    assert load_config(tmp_path / "sessionizer.yaml", env={}).session.gap == options.duration("20m", "--gap")
    done = process(
        "-m", "sessionizer.jobs.cli", "new", "events.jsonl", "-c", "b.yaml", "--key", "who", cwd=tmp_path, **nowhere
    )
    assert (done.returncode, "--key must be a column" in done.stderr) == (2, True)
