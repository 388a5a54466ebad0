"""Similarities of a warped source and its target: log-likelihoods of the target.

A similarity has two methods that take the values of warped sources and targets, (n, channels, m):

``log_likelihood(values, targets)``  (n,), up to a constant
``derivatives(values, targets)``     slopes and curvatures, (n, channels, m): first derivatives of
                                     the log-likelihood with respect to the values, and minus its
                                     second derivatives, or non-negative approximations of these,
                                     which affect the size of steps but not the maximum
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.compiled import kernel, part

Values = NDArray[np.float32]
Array = NDArray[np.float64]

SIMILARITIES = ("ssd", "ncc", "mi")


class Similarity(Protocol):
    """Interface of similarities; see the module docstring."""

    def log_likelihood(self, values: Values, targets: Values) -> Array:
        """Log-likelihood of each pair, up to a constant: (n,)."""
        ...

    def derivatives(self, values: Values, targets: Values) -> tuple[Array, Array]:
        """Slopes and curvatures, (n, channels, m)."""
        ...


# -- independent Gaussian noise


@kernel
def sum_squares(first, last, values, targets, sums):
    """Σ (values - targets)² of each pair, in float64."""
    for t in range(first, last):
        total = 0.0
        for c in range(values.shape[1]):
            for i in range(values.shape[2]):
                difference = np.float64(values[t, c, i]) - targets[t, c, i]
                total += difference * difference
        sums[t] = total


def squared_error(values: Values, targets: Values) -> Array:
    """Σ (values - targets)² of each pair: (n,)."""
    sums = np.empty(len(values))
    sum_squares(0, len(values), values, targets, sums)
    return sums


@dataclass(frozen=True)
class SquaredError:
    """Independent Gaussian noise of standard deviation σ, as in the paper: -SSD / (2 σ²)."""

    sigma: float

    def log_likelihood(self, values: Values, targets: Values) -> Array:
        """-SSD / (2 σ²)."""
        return squared_error(values, targets) * (-0.5 / self.sigma**2)

    def derivatives(self, values: Values, targets: Values) -> tuple[Array, Array]:
        """(targets - values) / σ², and 1 / σ²."""
        precision = 1.0 / self.sigma**2
        slopes = np.multiply(targets - values, precision, dtype=np.float64)
        return slopes, np.broadcast_to(precision, slopes.shape)


# -- invariant to gain and offset


@dataclass(frozen=True)
class NormalizedCrossCorrelation:
    """Targets are a gain times the values plus an offset plus noise, all three unknown.

    Maximised over the three, the log-likelihood of m pixels is -m/2 log(1 - ρ²), where ρ is the
    correlation. ``noise`` is the fraction of the variance that is noise in every fit. It is added
    to 1 - ρ², so that a perfect fit has a finite likelihood. Gains may be negative.

    The noise of neighbouring pixels is correlated: ``independent`` is the effective fraction of
    independent pixels.
    """

    noise: float = 0.01
    independent: float = 1.0

    def log_likelihood(self, values: Values, targets: Values) -> Array:
        """-m/2 log(1 - ρ² + noise)."""
        correlation = self._standardise(values, targets)[2]
        pixels = self.independent * values[0].size if len(values) else 0.0
        return -0.5 * pixels * np.log1p(self.noise - correlation**2)

    def derivatives(self, values: Values, targets: Values) -> tuple[Array, Array]:
        """The curvature is that of a regression with fixed noise."""
        v, t, correlation, deviation = self._standardise(values, targets)
        m, shape = v.shape[1], values.shape
        unexplained = 1.0 + self.noise - correlation**2
        by_correlation = self.independent * m * correlation / unexplained
        by_values = (t - correlation[:, None] * v) / (m * deviation[:, None])
        slopes = by_correlation[:, None] * by_values
        precision = self.independent * correlation**2 / (unexplained * deviation**2)
        curvatures = np.broadcast_to(precision[:, None, None], shape)
        return slopes.reshape(shape), curvatures

    @staticmethod
    def _standardise(values: Values, targets: Values) -> tuple[Array, Array, Array, Array]:
        """Standardised values and targets (n, m), correlation, standard deviation of values."""
        v, t = (a.reshape(len(a), -1).astype(np.float64) for a in (values, targets))
        v -= v.mean(axis=1, keepdims=True)
        t -= t.mean(axis=1, keepdims=True)
        deviation = np.maximum(np.sqrt(np.mean(v * v, axis=1)), 1e-6)
        deviation_t = np.maximum(np.sqrt(np.mean(t * t, axis=1)), 1e-6)
        v /= deviation[:, None]
        t /= deviation_t[:, None]
        return v, t, np.mean(v * t, axis=1), deviation


# -- invariant to any relation of intensities


@part
def weigh_bins(value, low, scale, n_bins, weights, slopes):
    """Cubic B-spline weights of the four bins near a value, and slopes; returns the first bin.

    Bins are ``1 / scale`` apart. One bin is beyond each end of the range of the values, so that all
    four exist for every value.
    """
    x = min(max((value - low) * scale, 0.0), n_bins - 3.0) + 1.0
    whole = min(int(x), n_bins - 3)
    u = x - whole
    v = 1.0 - u
    weights[0] = v * v * v / 6.0
    weights[1] = 2.0 / 3.0 - u * u * (1.0 - 0.5 * u)
    weights[2] = 2.0 / 3.0 - v * v * (1.0 - 0.5 * v)
    weights[3] = u * u * u / 6.0
    slopes[0] = -0.5 * v * v
    slopes[1] = u * (1.5 * u - 2.0)
    slopes[2] = -v * (1.5 * v - 2.0)
    slopes[3] = 0.5 * u * u
    return whole - 1


@part
def fill_histogram(values, targets, ranges, n_bins, weights, slopes, weights_t, slopes_t, joint):
    """Joint histogram of values and targets (m,) with Parzen windows; sums to one."""
    joint[:] = 0.0
    for i in range(len(values)):
        a = weigh_bins(values[i], ranges[0], ranges[1], n_bins, weights, slopes)
        b = weigh_bins(targets[i], ranges[2], ranges[3], n_bins, weights_t, slopes_t)
        for p in range(4):
            for q in range(4):
                joint[a + p, b + q] += weights[p] * weights_t[q] / len(values)


@part
def log_ratios(joint, ratios):
    """log p(a, b) / (p(a) p(b)) of every pair of bins, 0 if empty; returns the expectation."""
    n_bins = len(joint)
    information = 0.0
    for a in range(n_bins):
        for b in range(n_bins):
            ratios[a, b] = 0.0
            if joint[a, b] > 0.0:
                row, column = 0.0, 0.0
                for c in range(n_bins):
                    row += joint[a, c]
                    column += joint[c, b]
                ratios[a, b] = np.log(joint[a, b] / (row * column))
                information += joint[a, b] * ratios[a, b]
    return information


@kernel
def mutual_information(first, last, values, targets, ranges, n_bins, information, slopes):
    """Mutual information of each pair and, unless ``slopes`` is empty, m times its derivatives.

    Parameters
    ----------
    values, targets : (n, m)
    ranges : (n, 4)
        Lowest value and number of bins per unit: first of values, then of targets.
    information : (n,)
    slopes : (n, m) or (n, 0)
    """
    joint, ratios = np.empty((n_bins, n_bins)), np.empty((n_bins, n_bins))
    a_weights, a_slopes, b_weights, b_slopes = np.empty(4), np.empty(4), np.empty(4), np.empty(4)
    for t in range(first, last):
        x, y, limits = values[t], targets[t], ranges[t]
        fill_histogram(x, y, limits, n_bins, a_weights, a_slopes, b_weights, b_slopes, joint)
        information[t] = log_ratios(joint, ratios)
        for i in range(slopes.shape[1]):
            a = weigh_bins(x[i], limits[0], limits[1], n_bins, a_weights, a_slopes)
            b = weigh_bins(y[i], limits[2], limits[3], n_bins, b_weights, b_slopes)
            # Derivatives of the marginals cancel because the windows sum to one.
            total = 0.0
            for p in range(4):
                for q in range(4):
                    total += a_slopes[p] * b_weights[q] * ratios[a + p, b + q]
            slopes[t, i] = total * limits[1]


@dataclass(frozen=True)
class MutualInformation:
    """m times the mutual information of values and targets, in nats, for m pixels.

    This is the log-likelihood ratio of the targets with and without the values given, under the
    joint density of the pair (a histogram smoothed by cubic B-splines). It needs no σ.
    ``independent`` is the effective fraction of independent pixels.
    """

    n_bins: int = 20
    independent: float = 1.0

    def log_likelihood(self, values: Values, targets: Values) -> Array:
        """Pixels times mutual information."""
        return self.independent * values[0].size * self._inform(values, targets, False)[0]

    def derivatives(self, values: Values, targets: Values) -> tuple[Array, Array]:
        """Slopes, and as curvature their mean square, its expected value at the true warp."""
        slopes = self.independent * self._inform(values, targets, True)[1]
        curvature = np.mean(slopes * slopes, axis=1) / self.independent
        self._add_range_slopes(values.reshape(slopes.shape), slopes)
        shape = values.shape
        return slopes.reshape(shape), np.broadcast_to(curvature[:, None, None], shape)

    @staticmethod
    def _add_range_slopes(values: NDArray[Any], slopes: Array) -> None:
        """Add to slopes (n, m) the effect of the lowest and highest values, which set the bins.

        If the lowest value moves, every other value moves relative to the bins, in proportion to
        its distance from the highest; and vice versa.
        """
        everyone, low, high = np.arange(len(values)), values.argmin(axis=1), values.argmax(axis=1)
        lowest, highest = values[everyone, low], values[everyone, high]
        shares = (values - lowest[:, None]) / np.maximum(highest - lowest, 1e-6)[:, None]
        by_low = np.einsum("nm,nm->n", slopes, 1.0 - shares)
        by_high = np.einsum("nm,nm->n", slopes, shares)
        slopes[everyone, low] -= by_low
        slopes[everyone, high] -= by_high

    def _inform(self, values: Values, targets: Values, sloped: bool) -> tuple[Array, Array]:
        x, y = (a.reshape(len(a), -1) for a in (values, targets))
        ranges = np.concatenate([self._range(x), self._range(y)], axis=1)
        information = np.empty(len(x))
        slopes = np.empty((len(x), x.shape[1] if sloped else 0))
        mutual_information(0, len(x), x, y, ranges, self.n_bins, information, slopes)
        return information, slopes

    def _range(self, values: NDArray[Any]) -> Array:
        low, high = values.min(axis=1), values.max(axis=1)
        return np.stack([low, (self.n_bins - 3) / np.maximum(high - low, 1e-6)], axis=1)


# -- user-defined

LikelihoodFn = Callable[[NDArray[Any], NDArray[Any]], tuple[Any, Any]]


@dataclass(frozen=True)
class Custom:
    """A function ``(values, targets) -> (log_likelihood, gradient)``.

    Both arguments and the gradient (with respect to the values) have the shape of a batch of
    samples, (n, channels, *spatial); the log-likelihood has shape (n,).
    """

    function: LikelihoodFn
    shape: tuple[int, ...]

    def log_likelihood(self, values: Values, targets: Values) -> Array:
        """The function's log-likelihood."""
        return self._call(values, targets)[0]

    def derivatives(self, values: Values, targets: Values) -> tuple[Array, Array]:
        """The function's gradient, and its mean square as curvature, as for mutual information."""
        slopes = self._call(values, targets)[1]
        curvature = np.mean(slopes * slopes, axis=(1, 2), keepdims=True)
        return slopes, np.broadcast_to(curvature, slopes.shape)

    def _call(self, values: Values, targets: Values) -> tuple[Array, Array]:
        shape = (*values.shape[:2], *self.shape)
        likelihood, gradient = self.function(values.reshape(shape), targets.reshape(shape))
        likelihood = np.asarray(likelihood, dtype=np.float64)
        # A copy: numba would compile other kernels for read-only arrays.
        gradient = np.array(gradient, dtype=np.float64, order="C")
        if likelihood.shape != (len(values),) or gradient.shape != shape:
            raise ValueError(
                f"`similarity` must return log-likelihoods of shape ({len(values)},) and their "
                f"gradients with respect to the values, of shape {shape}, got "
                f"{likelihood.shape} and {gradient.shape}."
            )
        return likelihood, gradient.reshape(values.shape)
