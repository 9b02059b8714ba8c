"""Whatever bytes a config file holds, there comes out a config, or an error that helps; never anything else."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionizer.jobs.config_file import load_config
from sessionizer.jobs.masking import masked
from sessionizer.lib.config import Config
from sessionizer.lib.errors import ConfigError, printable
from tests.mutations import mutated
from tests.summary import Tally

ROOT = Path(__file__).parents[2]
HEAD = "source: {table: lake/events, key: [user]}\nsessions: {table: lake/sessions}\n"
LONGEST_ERROR = 12_000
SCHEMA = Config.model_json_schema()["$defs"]
TOKENS = (
    *(b"null", b"~", b"true", b"yes", b"[]", b"{}", b"''", b"0", b"-1", b"9" * 30, b"9" * 5000, b"1e999", b".nan"),
    *(b"0x1f", b"1_000", b"1:30", b"2026-01-01", b"!!python/object/apply:os.system [x]", b"!!binary a", b"!!int x"),
    *(b"!!bool x", b"!!timestamp x", b"!!float x", b"!!set {a}", b"!!omap [a]", b"!!pairs [a]", b"!!str", b"!!null x"),
    *(b"!!map []", b"!!seq {}", b"!x y", b"&a ", b"*a", b"<<: *a", b"? [a]: b", b"? {a: b}\n: c", b"---\n", b"...\n"),
    *(b"%YAML 9.9\n---\n", b"\t", b"\r", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80"),
    *(b"\xe2\x80\xa8", b'"\\ud800"', b'"\\U00110000"', b'"\\0"', b'"\\e[31m"', b'"\\u202e"', b"|", b">", b"'", b'"'),
    *(b": ", b"- ", b"[", b"]", b"{", b"}", b"#", b"a" * 5000, b"[" * 50, b"1h" * 300, b"[/red]", b"${HOME}", b"_"),
    *(b"source", b"sessions", b"table", b"key", b"gap", b"per", b"expr", b"earliest", b"true: true", b"s3a://u:p@b/x"),
)


def written_configs() -> list[bytes]:
    """Each example, and each config in the documents."""
    examples = [file.read_bytes() for file in sorted((ROOT / "examples").glob("*.yaml"))]
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    snippets = [s for d in documents for s in re.findall(r"```yaml\n(.*?)```", d.read_text("utf-8"), re.DOTALL)]
    return [*examples, *(snippet.encode() for snippet in snippets)]


def loaded(file: Path, content: bytes, env: Mapping[str, str] | None = None) -> Config | None:
    """The config, which is whole; or none, and the error helps."""
    file.write_bytes(content)
    try:
        config = load_config(file, env or {})
    except ConfigError as error:
        helps(str(error))
        return None
    assert Config.model_validate(config.model_dump(mode="json", by_alias=True)) == config
    assert re.fullmatch("[0-9a-f]{64}", config.fingerprint())
    found = yaml.safe_load(yaml.safe_dump(masked(config)))
    assert all(source["table"] for source in found.get("sources") or [found["source"]])
    return config


def helps(error: str) -> None:
    """Fit for a terminal, of a length that is read, and every problem in it with a rule and a remedy."""
    assert printable(error) == error
    assert len(error) < LONGEST_ERROR
    error.encode()
    first, *more = re.split(r"\n  - ", error)
    problems = [p for p in more if not p.startswith("…")] if more else [first]
    for problem in problems:
        assert re.search(r"[.?…] \S.*[.?!]|\n  … and \d+ more$", problem, re.DOTALL), problem


def flood(file: Path, seed: int, cases: int) -> int:
    """How many of so many configs, each of them mutated, are configs still."""
    random, written = Random(seed), written_configs()
    return sum(loaded(file, mutated(random, random.choice(written), TOKENS)) is not None for _ in range(cases))


def test_a_damaged_config_is_a_config_or_an_error_that_helps(tmp_path: Path, tally: Tally) -> None:
    tally.add("damaged configs loaded", 400)
    assert 0 < flood(tmp_path / "sessionizer.yaml", seed=1, cases=400) < 400


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 7))
def test_any_of_thousands_of_damaged_configs_is_a_config_or_an_error_that_helps(
    tmp_path: Path, tally: Tally, seed: int
) -> None:
    tally.add("damaged configs loaded", 2_000)
    assert 0 < flood(tmp_path / "sessionizer.yaml", seed, cases=2_000) < 2_000


texts = st.one_of(st.sampled_from(["", " ", "30m", "earliest", "a.b", "table", "x: y", "\x1b[1m"]), st.text(max_size=8))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


@given(data=st.data())
@settings(max_examples=100)
def test_a_value_of_any_kind_in_any_field_is_a_config_or_an_error_that_helps(
    tmp_path: Path, data: st.DataObject
) -> None:
    fields = yaml.safe_load(written_configs()[-1] if data.draw(st.booleans()) else HEAD) or {}
    section = data.draw(st.sampled_from([*Config.model_fields]))
    known = SCHEMA.get("SessionRule" if section == "session" else section.capitalize(), {}).get("properties", {})
    if known and isinstance(fields.get(section, {}), dict):
        fields.setdefault(section, {})[data.draw(st.sampled_from([*known]))] = data.draw(values)
    else:
        fields[section] = data.draw(values)
    loaded(tmp_path / "sessionizer.yaml", yaml.dump(fields, allow_unicode=True).encode("utf-8", "surrogatepass"))


@given(
    env=st.dictionaries(
        st.sampled_from(
            ["SOURCE__KEY", "SESSION__GAP", "SPARK__A", "SPARK", "", "__", "TIME", "AGGREGATES__0", "X__Y"]
        ),
        st.one_of(
            texts, st.sampled_from(["[a", "{a: b}", "[*a]", "null", "true\n", "9" * 5000, "[!!bool x]", "\udcff"])
        ),
        max_size=3,
    )
)
@settings(max_examples=100)
def test_variables_of_any_kind_give_a_config_or_an_error_that_helps(tmp_path: Path, env: dict[str, str]) -> None:
    variables = {f"SESSIONIZER__{name}": value for name, value in env.items()}
    loaded(tmp_path / "sessionizer.yaml", HEAD.encode(), variables)


def nested(name: str, one: str) -> str:
    """Nine of the one before, eight times: small to write, huge to unfold."""
    lines = [f"{name}0: &{name}0 {one}"]
    for level in range(1, 9):
        several = ",".join([f"*{name}{level - 1}"] * 9)
        lines.append(f"{name}{level}: &{name}{level} " + (f"[{several}]" if name == "l" else f"{{<<: [{several}]}}"))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (nested("l", "[x]") + HEAD + "aggregates: *l8\n", "aggregates[0] must hold `key: value` lines"),
        (nested("m", "{x: 1}") + HEAD + "time: *m8\n", "time.x is not a known key"),
        (HEAD + "time: &t {<<: *t, x: 1}\n", "time.x is not a known key"),
        (HEAD + "aggregates: &a [*a]\n", "aggregates[0] must hold `key: value` lines"),
        (HEAD + "spark: {x: " + "[" * 1000 + "]" * 1000 + "}\n", "is nested too deep"),
        ("".join(" " * depth + "a:\n" for depth in range(900)), "is nested too deep"),
        (HEAD + "".join(f"k{n}: 1\n" for n in range(5000)), "has 5000 problems"),
        (HEAD + "limits: {max_versions_per_run: !!int 0x" + "f" * 6000 + "}\n", "is no int"),
        (HEAD + "sessions: {table: x}\n", "the key 'sessions' is there twice"),
        (HEAD + "x: !!python/object/apply:os.system [touch pwned]\n", "could not determine a constructor"),
    ],
    ids=["laughs", "merges", "merge of itself", "list of itself", "brackets", "steps", "keys", "int", "twice", "code"],
)
def test_a_config_that_is_made_to_exhaust_is_refused_in_a_moment(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "sessionizer.yaml"
    file.write_text(text)
    began = time.process_time()
    with pytest.raises(ConfigError) as caught:
        load_config(file, {})
    assert time.process_time() - began < 5
    helps(str(caught.value))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b'"\\e[31m\\ud800": [/red]',
        pytest.param(b'source: {table: "a\\0b", key: [u]}', marks=pytest.mark.slow),
        pytest.param(b"source: {key: ['\x1b]0;x\x07']}", marks=pytest.mark.slow),
        pytest.param(b"a: !!bool x", marks=pytest.mark.slow),
    ],
    ids=["half a character", "null byte", "escape", "tag"],
)
def test_the_command_says_what_is_wrong_without_a_traceback(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "sessionizer.yaml").write_bytes(content)
    command = [sys.executable, "-m", "sessionizer.jobs.cli", "status"]
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, timeout=120, check=False)
    error = done.stderr.decode()
    assert (done.returncode, done.stdout) == (2, b"")
    assert error.startswith("error: sessionizer.yaml")
    assert "Traceback" not in error
    helps(error.strip())
