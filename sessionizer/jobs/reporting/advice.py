"""Which gap? What a histogram of inter-event times says; plain numbers in, plain numbers out. Times: seconds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sessionizer.jobs.reporting.gaps import BINS_PER_DOUBLING, Longer, Sample
from sessionizer.jobs.reporting.mixture import Fit, Floats, Shape, best_fits, plausible, resampled_splits, single
from sessionizer.lib.errors import UsageError

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
CANDIDATES = tuple(int(m * MINUTE) for m in (1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1440))
FINENESS = ((MINUTE, 1.0), (10 * MINUTE, 15.0), (HOUR, MINUTE), (10 * HOUR, 5 * MINUTE), (np.inf, 30 * MINUTE))
NEAR = 1.1  # a usual duration this near is as good
FEWEST = 100  # intervals, for a histogram to mean anything
FROM, TO = MINUTE, DAY  # where the knee is looked for

APART, FAR_APART = 2.5, 3.0  # Ashman's D of two kinds, and of two that can be told apart for sure
BURST = 10.0  # below it no visit ends: two kinds that meet there are parts of one page and pages
AT_ONCE = 0.1  # of the intervals below a second: what lies there is left out
RARE = 0.0001  # of all intervals, the shortest and the longest: they are left out
EMPTY = (0.0, 0.0001, 0.001)  # a trough holds at most this share of all; rather none
SIDE, WIDE = 0.02, 1.25  # each side of it holds at least this share; it is so wide
MISSED = 10  # intervals that a mixture expects in a trough beyond those that are there, if it does not fit
SMOOTHING = 0.375  # doublings
DEEP, SURELY = 0.8, 4.0  # a valley lies below this share of both peaks beside it, by so many standard deviations
LOWER = 4  # doublings below half a tick, where those of no time are put
HIGH, MEDIUM = 1.2, 2.0  # confidence: the split is known to such a factor


@dataclass(frozen=True)
class Candidate:
    """A gap, the sessions it makes of all events, and how many may change at a time, on average."""

    gap: float
    sessions: int
    sessions_per_key: float
    live: int


@dataclass(frozen=True)
class Mixture:
    """Two kinds of intervals: within sessions and between them.

    split: as likely one as the other; lowest, highest: what other shapes that fit as well, and other samples, make of
    it. misplaced: the share of the intervals that is on the wrong side of the gap.
    """

    within_median: float
    between_median: float
    within_share: float
    distance: float
    split: float
    lowest: float
    highest: float
    misplaced: float


@dataclass(frozen=True)
class Found:
    """The gap to take, and what speaks for it. method: trough, mixture or knee; confidence: high, medium or low.

    trough: from where to where hardly any interval lies; valley: where the smoothed histogram is lowest.
    """

    gap: float
    method: str
    confidence: str
    knee: float
    valley: float | None
    trough: tuple[float, float] | None
    mixture: Mixture | None


@dataclass(frozen=True)
class Advice:
    """What was found, in which figures, and what other gaps would make of them."""

    found: Found
    sample: Sample
    candidates: Sequence[Candidate]


def find_gap(sample: Sample) -> Found:
    """The gap where the fewest intervals are taken for what they are not.

    Where there is a trough, two kinds of intervals with hardly any between them, it lies in there. Else it is where an
    interval is as likely to lie within a session as between two (Halfaker et al. 2015). Where the intervals are not of
    two kinds, it is the knee of the curve of sessions, which says nothing of visits.
    Errors: UsageError where there is too little to go by.
    """
    if sum(count for _, count in sample.histogram) < FEWEST:
        raise UsageError(
            f"advice needs at least {FEWEST} pairs of successive events of one key",
            value=sample.intervals,
            remedy="take a larger --sample, or more data",
        )
    edges, count = dense(sample, spread=True)
    longer = count[edges >= 0].sum()
    if FEWEST <= longer < (1 - AT_ONCE) * count.sum():
        edges, count = edges[edges >= 0], count[edges >= 0]
    edges, count = _without_rarest(edges, count)
    middles = (edges + 0.5 / BINS_PER_DOUBLING) * np.log(2)
    knee, valley = find_knee(sample), find_valley(edges, count)
    fit, bounds = _two_kinds(middles, count, max(BURST, 2 * sample.clock))
    trough = _trough(edges, count, fit or single(middles, count))
    if trough is not None:
        low, high = trough
        best = (low * high) ** 0.5
        inside = [usual for usual in CANDIDATES if low * NEAR <= usual <= high / NEAR]
        gap = min(inside, key=lambda usual: abs(np.log(usual / best)), default=rounded(best))
        return Found(gap, "trough", "high", knee, valley, trough, _told(fit, trough, middles, count, gap))
    if fit is None:
        return Found(rounded(knee), "knee", "low", knee, valley, None, None)
    gap = rounded(float(np.exp(fit.split)))
    known = max(np.exp(fit.split) / bounds[0], bounds[1] / np.exp(fit.split))
    clear = known <= HIGH and fit.distance >= FAR_APART
    confidence = "low" if valley is None or known > MEDIUM else "high" if clear else "medium"
    return Found(gap, "mixture", confidence, knee, valley, None, _told(fit, bounds, middles, count, gap))


def candidates(sample: Sample, longer: Sequence[Longer], lateness: float) -> list[Candidate]:
    """What each gap would make of all events. lateness: how long after its end a session may change."""
    return [_candidate(sample, one, lateness) for one in longer]


def rounded(seconds: float) -> float:
    """The nearest usual duration, if it is near, else to about two digits."""
    usual = min(CANDIDATES, key=lambda gap: abs(np.log(gap / seconds)))
    if max(usual / seconds, seconds / usual) <= NEAR:
        return float(usual)
    fine = next(fine for below, fine in FINENESS if seconds < below)
    return max(1.0, round(seconds / fine) * fine)


def dense(sample: Sample, *, spread: bool = False) -> tuple[Floats, Floats]:
    """log2 of the lower edges and the counts, with the empty bins between them.

    spread: times that are multiples of a clock's ticks stand for those of half a tick around them, and none at all for
    those below half a tick: bins that are narrower than a tick would be empty by turns.
    """
    bins = {round(np.log2(low) * BINS_PER_DOUBLING): count for low, count in sample.histogram}
    numbers = np.arange(min(bins), max(bins) + 1)
    counts = np.array([bins.get(int(n), 0) for n in numbers], dtype=float)
    if not (spread and sample.clock):
        return numbers / BINS_PER_DOUBLING, counts
    half = sample.clock / 2
    ticks = np.arange(1, 2 * BINS_PER_DOUBLING) * sample.clock  # beyond them each bin has several
    none = sample.intervals - counts.sum()
    sums = np.concatenate([[0.0], np.cumsum(counts)]) + none
    behind = np.floor(np.log2(ticks) * BINS_PER_DOUBLING + 1e-9).astype(int) + 1  # the edge behind each tick's bin
    first = int(np.floor(np.log2(half) * BINS_PER_DOUBLING)) - LOWER * BINS_PER_DOUBLING
    edges = np.arange(first, max(bins) + 2)
    plain = sums[np.clip(edges - min(bins), 0, len(counts))]
    known = sums[np.clip(behind - min(bins), 0, len(counts))]
    even = np.interp(2 ** (edges / BINS_PER_DOUBLING), [0.0, half, *(ticks + half)], [0.0, none, *known])
    below = np.where(edges <= behind[-1], even, np.maximum(plain, known[-1]))
    return edges[:-1] / BINS_PER_DOUBLING, np.diff(below)


def _without_rarest(edges: Floats, count: Floats) -> tuple[Floats, Floats]:
    """But for the few at either end: one of years, a clock gone wrong, would bend the shape of a kind by itself."""
    most = RARE * count.sum()
    there = (np.cumsum(count) > most) & (np.cumsum(count[::-1])[::-1] > most)
    return edges[there], count[there]


def find_valley(edges: Floats, count: Floats) -> float | None:
    """The lowest place of the smoothed log-histogram between two peaks that surely rise well above it, or None."""
    wide = SMOOTHING * BINS_PER_DOUBLING
    steps = np.arange(-int(4 * wide), int(4 * wide) + 1)
    kernel = np.exp(-((steps / wide) ** 2) / 2)
    smooth = np.convolve(np.pad(count, len(steps) // 2), kernel / kernel.sum(), mode="valid")
    left, right = np.maximum.accumulate(smooth), np.maximum.accumulate(smooth[::-1])[::-1]
    peak = np.minimum(left, right)
    surely = (peak - smooth) * np.sqrt(2 * np.pi**0.5 * wide / np.maximum(peak + smooth, 1e-9)) >= SURELY
    surely &= edges >= np.log2(BURST)
    depth = np.where(surely, smooth / np.maximum(peak, 1e-9), 1.0)
    lowest = int(np.argmin(depth))
    return float(2 ** edges[lowest]) if depth[lowest] < DEEP else None


def find_knee(sample: Sample) -> float:
    """Where the curve of sessions over log(gap), from a minute to a day, lies farthest below its chord (Kneedle)."""
    x, count = dense(sample)
    sessions = sample.keys + count.sum() - np.cumsum(count)
    edge = 2 ** (x + 1 / BINS_PER_DOUBLING)
    inside = (edge >= FROM) & (edge <= TO)
    if inside.sum() < 3:
        return float(30 * MINUTE)
    across, down = np.log(edge[inside]), sessions[inside]
    across = (across - across[0]) / (across[-1] - across[0])
    height = (down - down[-1]) / max(down[0] - down[-1], 1)
    return float(edge[inside][np.argmax(1 - across - height)])


def _two_kinds(middles: Floats, count: Floats, least: float) -> tuple[Fit | None, tuple[float, float]]:
    """The best mixture, and between which bounds its split is known; no mixture where the kinds do not lie apart.

    least: kinds that meet below it are left for the next longer ones.
    """
    fits = best_fits(middles, count)
    fits = plausible(fits, middles, count) if fits else []
    best = next((fit for fit in fits if fit.distance >= APART), None)
    if best is None:
        return None, (0.0, 0.0)
    if np.exp(best.split) < least:
        rest = middles > np.log(least)
        return _two_kinds(middles[rest], count[rest], least) if count[rest].sum() >= FEWEST else (None, (0.0, 0.0))
    ranges = [resampled_splits(fit, middles, count) for fit in fits]
    lows, highs = zip(*ranges, strict=True)
    return best, (float(np.exp(min(lows))), float(np.exp(max(highs))))


def _trough(edges: Floats, count: Floats, expected: Fit | Shape) -> tuple[float, float] | None:
    """The emptiest wide stretch, with parts of all on both sides; None where it is expected to be so empty."""
    for empty in EMPTY:
        low, high, inside = _emptiest(count, empty)
        if high - low >= np.log2(WIDE) * BINS_PER_DOUBLING and 2 ** edges[low] >= BURST:
            middles = (edges[low:high] + 0.5 / BINS_PER_DOUBLING) * np.log(2)
            number = count.sum() * np.exp(expected.log_density(middles)).sum() * np.log(2) / BINS_PER_DOUBLING
            if number > 2 * inside + MISSED:
                return float(2 ** edges[low]), float(2 ** edges[high])
    return None


def _emptiest(count: Floats, empty: float) -> tuple[int, int, float]:
    """The widest run of bins that holds at most this share of all: its first bin, the one behind it, what it holds."""
    sums = np.concatenate([[0.0], np.cumsum(count)])
    total = sums[-1]
    lows = np.arange(*np.searchsorted(sums, [SIDE * total, (1 - SIDE) * total]))
    if not len(lows):
        return 0, 0, 0.0
    most = np.minimum(sums[lows] + empty * total, (1 - SIDE) * total)
    highs = np.searchsorted(sums, most, side="right") - 1
    widest = int(np.argmax(highs - lows))
    low, high = int(lows[widest]), int(highs[widest])
    return low, high, float(sums[high] - sums[low])


def _told(fit: Fit | None, bounds: tuple[float, float], middles: Floats, count: Floats, gap: float) -> Mixture | None:
    if fit is None:
        return None
    within, between = (float(np.exp(kind.median)) for kind in fit.kinds)
    split, misplaced = float(np.exp(fit.split)), fit.misplaced(middles, count, float(np.log(gap)))
    return Mixture(within, between, fit.parts[0], fit.distance, split, *bounds, misplaced)


def _candidate(sample: Sample, longer: Longer, lateness: float) -> Candidate:
    """Little's law: sessions at a time = the time that they may change, all together, over the time that passes."""
    sessions = sample.keys + longer.number
    live = (longer.within + sessions * (longer.gap + lateness)) / max(sample.span, 1.0)
    all_sessions, all_live = (round(number / sample.share) for number in (sessions, min(live, sessions)))
    return Candidate(longer.gap, all_sessions, sessions / max(sample.keys, 1), all_live)
