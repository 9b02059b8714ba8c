"""Two kinds of times told apart: mixtures fitted to a histogram of ln(time) by expectation and maximisation.

Each kind is log-normal, or Weibull, of which the exponential is one: people who come back, and Poisson visits. All four
pairs are tried, as no one can know the shapes beforehand, and where the two meet depends on them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_PART = 0.02  # of the intervals, for a kind to be one
STARTS = (0.4, 0.6, 0.8, 0.93)  # of the intervals lie below the cuts that the fits begin with
ROUNDS, NEWTON, ENOUGH = 200, 3, 1e-8
FIRST_ROUNDS = 12  # after them only the likeliest start goes on
NARROWEST = 0.15  # spread in ln(time): a narrower kind is one value rather than a kind
EULER, GUMBEL = 0.5772156649015329, 1.2825498301618641  # mean below the place, and spread, of a standard Gumbel
SAMPLES, SAMPLE_ROUNDS = 12, 30


@dataclass(frozen=True)
class Normal:
    """ln of a log-normal time."""

    mean: float = 0.0
    spread: float = 1.0

    @property
    def median(self) -> float:
        """Half of all times lie below."""
        return self.mean

    def log_density(self, x: Floats) -> Floats:
        """Natural logarithm of the density."""
        told: Floats = -(((x - self.mean) / self.spread) ** 2) / 2 - np.log(self.spread * np.sqrt(2 * np.pi))
        return told

    def fitted(self, x: Floats, weight: Floats) -> "Normal":
        """By the moments."""
        mean = float(np.average(x, weights=weight))
        return Normal(mean, max(float(np.average((x - mean) ** 2, weights=weight)) ** 0.5, NARROWEST))


@dataclass(frozen=True)
class Gumbel:
    """ln of a Weibull time: ln of its scale, and its shape; with shape 1 the time is exponential."""

    at: float = 0.0
    steep: float = 1.0

    @property
    def mean(self) -> float:
        """The mean of ln(time)."""
        return self.at - EULER / self.steep

    @property
    def median(self) -> float:
        """Half of all times lie below."""
        return self.at + float(np.log(np.log(2))) / self.steep

    @property
    def spread(self) -> float:
        """The standard deviation."""
        return GUMBEL / self.steep

    def log_density(self, x: Floats) -> Floats:
        """Natural logarithm of the density."""
        z = self.steep * (x - self.at)
        told: Floats = np.log(self.steep) + z - np.exp(np.minimum(z, 700))
        return told

    def fitted(self, x: Floats, weight: Floats) -> "Gumbel":
        """Some steps of Newton's from this one; its equation has one root, and rises."""
        mean, top, steep = float(np.average(x, weights=weight)), float(x.max()), self.steep
        for _ in range(NEWTON):
            powers = weight * np.exp(steep * (x - top))
            tilted = float(np.average(x, weights=powers))
            slope = float(np.average((x - tilted) ** 2, weights=powers)) + steep**-2
            steep = float(np.clip(steep - (tilted - 1 / steep - mean) / slope, steep / 2, steep * 2))
        steep = min(steep, GUMBEL / NARROWEST)
        powers = weight * np.exp(steep * (x - top))
        return Gumbel(top + float(np.log(powers.sum() / weight.sum())) / steep, steep)


Shape = Normal | Gumbel


@dataclass(frozen=True)
class Fit:
    """Two kinds, the shorter first, and their parts of all. likelihood: its ln. split: as likely of either."""

    kinds: tuple[Shape, Shape]
    parts: tuple[float, float]
    likelihood: float
    split: float

    @property
    def distance(self) -> float:
        """Ashman's D: how far apart the kinds lie, in units of their spread."""
        one, other = self.kinds
        return abs(other.mean - one.mean) * 2**0.5 / float(np.hypot(one.spread, other.spread))

    def log_densities(self, x: Floats) -> Floats:
        """Of each kind, with its part."""
        return np.stack([np.log(part) + kind.log_density(x) for part, kind in zip(self.parts, self.kinds, strict=True)])

    def log_density(self, x: Floats) -> Floats:
        """Of both together."""
        told: Floats = np.logaddexp(*self.log_densities(x))
        return told

    def misplaced(self, x: Floats, weight: Floats, cut: float) -> float:
        """The share of the intervals that lie on the wrong side of a cut."""
        each = self.log_densities(x)
        within = np.exp(each[0] - np.logaddexp(*each))
        return float((weight * np.where(x > cut, within, 1 - within)).sum() / weight.sum())


def single(x: Floats, weight: Floats) -> Shape:
    """The likeliest shape of all together."""
    gumbel = Gumbel().fitted(x, weight).fitted(x, weight).fitted(x, weight)
    shapes: list[Shape] = [Normal().fitted(x, weight), gumbel]
    return max(shapes, key=lambda shape: float((weight * shape.log_density(x)).sum()))


def best_fits(x: Floats, weight: Floats) -> list[Fit]:
    """The likeliest mixture of each pair of shapes, the likeliest first; none where there are no two kinds."""
    below = np.cumsum(weight) / weight.sum()
    cuts = [float(x[np.searchsorted(below, start)]) for start in STARTS]
    found = []
    shapes: tuple[Shape, ...] = (Normal(), Gumbel())
    for pair in product(shapes, shapes):
        begun = [fit for cut in cuts if (fit := _from_cut(pair, x, weight, cut)) is not None]
        for start in sorted(begun, key=lambda fit: -fit.likelihood)[:1]:
            found += [fit] if (fit := _climbed(start, x, weight, ROUNDS)) is not None else []
    return sorted(found, key=lambda fit: -fit.likelihood)


def plausible(fits: Sequence[Fit], x: Floats, weight: Floats) -> list[Fit]:
    """Those that fit the data hardly worse than the best one does: by no more than the best one is wrong itself."""
    doubling = np.floor(x / np.log(2) * 2).astype(int)
    parts = np.bincount(doubling - doubling.min(), weights=weight) / weight.sum()
    model = np.bincount(doubling - doubling.min(), weights=np.exp(fits[0].log_density(x)) * (x[1] - x[0]))
    there = parts > 0
    least = 1 / weight.sum()  # of one interval where the model has none at all
    wrong = float((parts[there] * np.log(parts[there] / np.maximum(model[there], least))).sum())
    wrong -= there.sum() / 2 / weight.sum()
    margin = max(wrong * weight.sum(), 3.0)
    return [fit for fit in fits if fits[0].likelihood - fit.likelihood <= margin]


def resampled_splits(fit: Fit, x: Floats, weight: Floats) -> tuple[float, float]:
    """Between which the split falls for nine of ten other samples of the same size; the seed is always the same."""
    random = np.random.default_rng(0)
    drawn = (random.poisson(weight).astype(float) for _ in range(SAMPLES))
    begin = replace(fit, likelihood=-np.inf)
    splits = [again.split for other in drawn if (again := _climbed(begin, x, other, SAMPLE_ROUNDS)) is not None]
    low, high = np.quantile([fit.split, *splits], [0.05, 0.95])
    return float(low), float(high)


def _from_cut(pair: tuple[Shape, Shape], x: Floats, weight: Floats, cut: float) -> Fit | None:
    short = x <= cut
    if min(weight[short].sum(), weight[~short].sum()) <= 0:
        return None
    kinds = (pair[0].fitted(x[short], weight[short]), pair[1].fitted(x[~short], weight[~short]))
    share = float(weight[short].sum() / weight.sum())
    return _climbed(Fit(kinds, (share, 1 - share), -np.inf, np.nan), x, weight, FIRST_ROUNDS)


def _climbed(fit: Fit, x: Floats, weight: Floats, rounds: int) -> Fit | None:
    """Uphill, to where the likelihood grows no more; None where one kind vanishes, or hides behind the other."""
    for _ in range(rounds):
        each = fit.log_densities(x)
        together = np.logaddexp(*each)
        likelihood = float((weight * together).sum())
        if likelihood - fit.likelihood < ENOUGH * abs(likelihood):
            break
        belongs = np.exp(each - together) * weight + 1e-12
        share = float(belongs[0].sum() / belongs.sum())
        if min(share, 1 - share) < LEAST_PART:
            return None
        kinds = (fit.kinds[0].fitted(x, belongs[0]), fit.kinds[1].fitted(x, belongs[1]))
        fit = Fit(kinds, (share, 1 - share), likelihood, np.nan)
    split = _split(fit)
    return None if split is None else replace(fit, split=split)


def _split(fit: Fit) -> float | None:
    """Between the medians, where the longer kind becomes the likelier one; None where it does not."""
    between = np.linspace(fit.kinds[0].median, fit.kinds[1].median, 10_000)
    short, long = fit.log_densities(between)
    likelier = long >= short
    if fit.kinds[0].median >= fit.kinds[1].median or likelier[0] or not likelier.any():
        return None
    return float(between[np.argmax(likelier)])
