"""Which gap? What a histogram of inter-event times says; plain numbers in, plain numbers out. Times: seconds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sessionizer.jobs.reporting.gaps import BINS_PER_DOUBLING, Sample
from sessionizer.lib.errors import UsageError

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
CANDIDATES = tuple(int(m * MINUTE) for m in (1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1440))
FEWEST = 100  # intervals, for a histogram to mean anything
FROM, TO = MINUTE, DAY  # where the knee is looked for

# Two kinds of intervals are two only if they lie apart (Ashman's D) and neither is a trifle.
APART, LEAST_PART = 2.0, 0.05
SMOOTHING = 1.5  # bins
DEEP = 0.8  # a valley lies below this share of both peaks beside it

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """A gap, the sessions it makes of all events, and how many may change at a time, on average."""

    gap: float
    sessions: int
    sessions_per_key: float
    live: int


@dataclass(frozen=True)
class Mixture:
    """Two log-normal kinds of intervals: within sessions and between them. split: as likely one as the other."""

    within_median: float
    between_median: float
    within_share: float
    distance: float
    split: float


@dataclass(frozen=True)
class Advice(Sample):
    """The gap to take, and what speaks for it, beside the figures that it is drawn from."""

    gap: float
    method: str
    knee: float
    valley: float | None
    mixture: Mixture | None
    candidates: Sequence[Candidate]


def advise(sample: Sample, lateness: float) -> Advice:
    """Advice from a sample. lateness: how long after its end a session may change.

    The gap is where an interval is as likely to lie within a session as between two (the split of a mixture of two
    log-normals, Halfaker et al. 2015); where the intervals are not of two kinds, the knee of the curve of sessions.
    Either is rounded to the nearest usual duration.
    Errors: UsageError where there is too little to go by.
    """
    if sum(count for _, count in sample.histogram) < FEWEST:
        raise UsageError(
            f"advice needs at least {FEWEST} pairs of successive events of one key",
            value=sample.intervals,
            remedy="take a larger --sample, or more data",
        )
    mixture = find_mixture(sample.histogram)
    knee = find_knee(sample)
    best = mixture.split if mixture else knee
    return Advice(
        **vars(sample),
        gap=min(CANDIDATES, key=lambda gap: abs(np.log(gap / best))),
        method="mixture" if mixture else "knee",
        knee=knee,
        valley=find_valley(sample.histogram),
        mixture=mixture,
        candidates=[_candidate(sample, *longer, lateness) for longer in sample.longer],
    )


def find_mixture(histogram: Sequence[tuple[float, int]]) -> Mixture | None:
    """Two normals of log2(interval), fitted by expectation and maximisation; None where there are not two."""
    x, weight = _dense(histogram)
    x = x + 0.5 / BINS_PER_DOUBLING
    below = np.cumsum(weight) / weight.sum()
    mean = np.array([x[np.searchsorted(below, 0.25)], x[np.searchsorted(below, 0.9)]])
    spread, part = np.full(2, max(float(np.average((x - x.mean()) ** 2) ** 0.5) / 2, 0.5)), np.full(2, 0.5)
    for _ in range(1000):
        density = part * np.exp(-(((x[:, None] - mean) / spread) ** 2) / 2) / spread + 1e-300
        belongs = density / density.sum(axis=1, keepdims=True) * weight[:, None]
        number, before = belongs.sum(axis=0), mean
        mean = (belongs * x[:, None]).sum(axis=0) / number
        spread = np.sqrt((belongs * (x[:, None] - mean) ** 2).sum(axis=0) / number) + 1e-3
        part = number / number.sum()
        if np.abs(mean - before).max() < 1e-6:
            break
    distance = float(np.sqrt(2) * abs(mean[1] - mean[0]) / np.sqrt((spread**2).sum()))
    if distance < APART or part.min() < LEAST_PART:
        return None
    order = np.argsort(mean)
    mean, spread, part = mean[order], spread[order], part[order]
    between = np.linspace(mean[0], mean[1], 10_000)
    likely = part * np.exp(-(((between[:, None] - mean) / spread) ** 2) / 2) / spread
    split = between[np.argmax(likely[:, 1] >= likely[:, 0])]
    medians = 2**mean
    return Mixture(float(medians[0]), float(medians[1]), float(part[0]), distance, float(2**split))


def find_valley(histogram: Sequence[tuple[float, int]]) -> float | None:
    """The lowest place of the smoothed log-histogram between two peaks that both rise well above it, or None."""
    x, count = _dense(histogram)
    steps = np.arange(-6, 7)
    kernel = np.exp(-((steps / SMOOTHING) ** 2) / 2)
    smooth = np.convolve(count, kernel / kernel.sum(), mode="same")
    left, right = np.maximum.accumulate(smooth), np.maximum.accumulate(smooth[::-1])[::-1]
    depth = smooth / np.minimum(left, right)
    depth[2**x < 10] = 1.0  # clocks of whole seconds leave holes there
    lowest = int(np.argmin(depth))
    return float(2 ** x[lowest]) if depth[lowest] < DEEP else None


def find_knee(sample: Sample) -> float:
    """Where the curve of sessions over log(gap), from a minute to a day, lies farthest below its chord (Kneedle)."""
    x, count = _dense(sample.histogram)
    sessions = sample.keys + count.sum() - np.cumsum(count)
    edge = 2 ** (x + 1 / BINS_PER_DOUBLING)
    inside = (edge >= FROM) & (edge <= TO)
    if inside.sum() < 3:
        return float(30 * MINUTE)
    across, down = np.log(edge[inside]), sessions[inside]
    across = (across - across[0]) / (across[-1] - across[0])
    height = (down - down[-1]) / max(down[0] - down[-1], 1)
    return float(edge[inside][np.argmax(1 - across - height)])


def _candidate(sample: Sample, gap: float, longer: int, within: float, lateness: float) -> Candidate:
    """Little's law: sessions at a time = the time that they may change, all together, over the time that passes."""
    sessions = sample.keys + longer
    live = (within + sessions * (gap + lateness)) / max(sample.span, 1.0)
    all_sessions, all_live = (round(number / sample.share) for number in (sessions, min(live, sessions)))
    return Candidate(gap, all_sessions, sessions / max(sample.keys, 1), all_live)


def _dense(histogram: Sequence[tuple[float, int]]) -> tuple[Floats, Floats]:
    """log2 of the lower edges and the counts, with the empty bins between them."""
    bins = {round(np.log2(low) * BINS_PER_DOUBLING): count for low, count in histogram}
    edges = np.arange(min(bins), max(bins) + 1)
    return edges / BINS_PER_DOUBLING, np.array([bins.get(int(e), 0) for e in edges], dtype=float)
