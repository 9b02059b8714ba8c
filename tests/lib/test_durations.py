import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionizer.lib.durations import DAY, HOUR, LONGEST, MILLISECOND, MINUTE, SECOND, format_duration, parse_duration

INT64 = st.integers(-LONGEST - 1, LONGEST)


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("0", 0),
        ("-0", 0),
        ("+0", 0),
        ("0s", 0),
        ("5s", 5 * SECOND),
        ("30m", 30 * MINUTE),
        ("-5s", -5 * SECOND),
        ("+5s", 5 * SECOND),
        ("1.s", SECOND),
        (".5s", SECOND // 2),
        ("1.004s", SECOND + 4 * MILLISECOND),
        ("2h45m", 2 * HOUR + 45 * MINUTE),
        ("45m2h", 2 * HOUR + 45 * MINUTE),
        ("1.5h", 90 * MINUTE),
        ("-1m30.5s", -90 * SECOND - SECOND // 2),
        ("300ms", 300 * MILLISECOND),
        ("1us", 1),
        ("1\u00b5s", 1),
        ("1\u03bcs", 1),
        ("1000ns", 1),
        ("500ns500ns", 1),
        ("1d", DAY),
        ("1.5d12h", 2 * DAY),
        ("0.100000000000000000000h", 6 * MINUTE),
        ("9223372036854775807us", LONGEST),
        ("-9223372036854775808us", -LONGEST - 1),
    ],
)
def test_reads_what_go_reads_and_days(text: str, microseconds: int) -> None:
    assert parse_duration(text) == microseconds


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("", ["a number and a unit"]),
        ("  ", ["a number and a unit"]),
        ("1" * 300 + "s", ["a number and a unit"]),
        ("-", ["a number is missing"]),
        ("+-5s", ["a number must stand before '-5s'"]),
        ("s", ["a number must stand before 's'"]),
        (".s", ["a number must stand before '.s'"]),
        (".", ["a number must stand before '.'"]),
        ("30", ["need a unit", "'30'", "'30s'"]),
        ("1h30", ["need a unit", "'1h30m'"]),
        ("1.2.3s", ["need a unit"]),
        ("30 s", ["no spaces", "'30s'"]),
        ("1h 30m", ["no spaces", "'1h30m'"]),
        ("30 min", ["no spaces", "Write '30m'"]),
        ("2 Hours 5 mins", ["no spaces", "Write '2h5m'"]),
        ("1 fortnight", ["no spaces", "Write it like '2h45m'"]),
        ("30min", ["'min' is not a unit", "Write '30m'"]),
        ("30M", ["'M' is not a unit", "Write '30m'"]),
        ("2w", ["'w' is not a unit", "ns, us, ms, s, m, h and d"]),
        ("5s!", ["'s!' is not a unit"]),
        ("1,5h", ["',' is not a unit"]),
        ("1e3s", ["'e' is not a unit"]),
        ("1ns", ["whole microseconds", "1us"]),
        ("0.3333333333333333333h", ["whole microseconds"]),
        ("9223372036854775808us", ["64 bits"]),
        ("-9223372036854775809us", ["64 bits"]),
        ("106751992d", ["64 bits"]),
        ("٣s", ["a number must stand before"]),
        (30, ["need a unit", "got 30", "'30s'"]),
        (1.5, ["need a unit", "'1.5s'"]),
        (True, ["is text", "True"]),
        (None, ["is text"]),
        ({"expr": "1"}, ["is text"]),
    ],
)
def test_refuses_and_says_what_to_write(text: object, fragments: list[str]) -> None:
    with pytest.raises(ValueError, match="duration") as error:
        parse_duration(text)  # type: ignore[arg-type]
    assert all(fragment in str(error.value) for fragment in fragments), str(error.value)


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0s"),
        (1, "1µs"),
        (-1, "-1µs"),
        (999, "999µs"),
        (1_100, "1.1ms"),
        (300 * MILLISECOND, "300ms"),
        (SECOND - 1, "999.999ms"),
        (SECOND, "1s"),
        (1_500_000, "1.5s"),
        (-MINUTE, "-1m0s"),
        (MINUTE + 1, "1m0.000001s"),
        (HOUR, "1h0m0s"),
        (2 * HOUR + 45 * MINUTE, "2h45m0s"),
        (DAY, "24h0m0s"),
        (-LONGEST - 1, "-2562047788h0m54.775808s"),
    ],
)
def test_writes_as_go_does(microseconds: int, text: str) -> None:
    assert format_duration(microseconds) == text


@given(INT64)
def test_reading_what_was_written_gives_the_same_number(microseconds: int) -> None:
    assert parse_duration(format_duration(microseconds)) == microseconds


@given(st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from("dhms")), min_size=1, max_size=5))
def test_parts_add_up(parts: list[tuple[int, str]]) -> None:
    whole = parse_duration("".join(f"{number}{unit}" for number, unit in parts))
    assert whole == sum(parse_duration(f"{number}{unit}") for number, unit in parts)
