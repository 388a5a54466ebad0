"""InfiMNIST-style deformations as an augmenter, and the choice of their strength.

The deformations are those of ``dreamwarp.data.infimnist``, the same for every class. Nothing is
learned but the range of the images' values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dreamwarp.data.class_distances import BLOCK, ClassDistances
from dreamwarp.data.dataset import check_part
from dreamwarp.data.infimnist import AMPLITUDE, LOW_32_BITS, WIDTH, deform, smooth_fields
from dreamwarp.data.sampling_strategy import SamplingStrategy, count_new
from dreamwarp.draws import Seed, Stream, as_key, integers
from dreamwarp.progress import Meter

# What `choose_strength` compares, in pixels.
WIDTHS, AMPLITUDES = (2.0, 3.0, 4.0, 6.0, 8.0), (0.25, 0.5, 0.75, 1.0)


class InfiMNISTAugmenter(BaseEstimator):  # type: ignore[misc]
    """More samples by hand-made deformations, behind the interface of ``dreamwarp.Augmenter``.

    Parameters
    ----------
    width, amplitude : float
        Smoothness and strength of the fields that move pixels, in pixels. The defaults are what
        :func:`choose_strength` chose on MNIST.
    sampling_strategy : str, float, dict or callable
        How many samples of a class ``fit_resample`` returns, as in imbalanced-learn: ``"auto"``, as
        many as the largest class has; or what a dict says for its label. For more see
        :func:`dreamwarp.data.sampling_strategy.count_new`.
    image_shape : (rows, columns) or (channels, rows, columns), optional
        For images that come as flat rows (n, features).
    seed : int, numpy.random.Generator or None
        Fixes fields and samples. Sample k depends on the seed and k alone.

    Attributes
    ----------
    classes_ : (n_classes,)
        Labels, once each, in order.
    value_range_ : (low, high)
        What new values are clipped to: 0 to 255 for uint8, else the range of the images fitted.
    fields_ : (1522, rows, columns)

    Examples
    --------
    >>> augmenter = InfiMNISTAugmenter(seed=0).fit(X, y)
    >>> X_new, y_new = augmenter.sample(100_000)
    """

    def __init__(
        self,
        *,
        width: float = WIDTH,
        amplitude: float = AMPLITUDE,
        sampling_strategy: SamplingStrategy = "auto",
        image_shape: tuple[int, ...] | None = None,
        seed: Seed = 0,
    ) -> None:
        self.width = width
        self.amplitude = amplitude
        self.sampling_strategy = sampling_strategy
        self.image_shape = image_shape
        self.seed = seed

    def fit(self, X: ArrayLike, y: ArrayLike) -> InfiMNISTAugmenter:
        """Keep samples to deform.

        Parameters
        ----------
        X : (n, rows, columns), (n, channels, rows, columns), or flat rows with ``image_shape``
            Integers, float32 or float64; finite.
        y : (n,)
            Labels: integers or strings.
        """
        samples = _as_samples(X)
        self._y = check_part("X", samples, y)
        self._images = _as_images(samples, self.image_shape)
        self._sample_shape = samples.shape[1:]
        self.value_range_ = _find_range(samples)
        self.classes_, codes = np.unique(self._y, return_inverse=True)
        # The members of class c are `_order[_starts[c]:][:_counts[c]]`.
        self._order, self._counts = np.argsort(codes, kind="stable"), np.bincount(codes)
        self._starts = np.cumsum(self._counts) - self._counts
        self._key = as_key(self.seed)
        self.fields_ = smooth_fields(
            self._images.shape[2:], width=self.width, amplitude=self.amplitude, seed=self._key
        )
        return self

    def sample(
        self, n: int, *, balanced: bool = True, first: int = 0, n_threads: int | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """New samples and their labels.

        Parameters
        ----------
        n : int
        balanced : bool
            Whether classes take turns. If not, they come as often as they were fitted. Either way
            the members of a class take turns.
        first : int
            Number of the first sample: ``sample(5, first=10)`` gives samples 10 to 14.
        n_threads : int, optional

        Returns
        -------
        X_new : (n, ...)
            In shape, type and range like the samples fitted.
        y_new : (n,)
        """
        check_is_fitted(self)
        numbers = _count_from(first, n)
        sources = self._balanced_sources(numbers) if balanced else numbers % len(self._y)
        return self._deform(self._images, sources, numbers, n_threads), self._y[sources]

    def transform(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        first: int = 0,
        n_threads: int | None = None,
    ) -> NDArray[Any]:
        """One random deformation of each sample.

        Parameters
        ----------
        X : (n, ...)
            In shape and type like the samples fitted.
        y : (n,), optional
            Ignored: all classes are deformed alike.
        first : int
            Number of the first deformation. Other numbers give other deformations.
        n_threads : int, optional

        Returns
        -------
        (n, ...)
        """
        check_is_fitted(self)
        samples = _as_samples(X)
        if samples.shape[1:] != self._sample_shape or samples.dtype != self._images.dtype:
            raise ValueError(
                f"`X` must be {self._images.dtype} of shape (n, "
                f"{', '.join(map(str, self._sample_shape))}) like the samples fitted, got "
                f"{samples.dtype} of shape {samples.shape}. Convert it, or fit anew."
            )
        numbers = _count_from(first, len(samples))
        images = _as_images(samples, self.image_shape)
        return self._deform(images, np.arange(len(samples)), numbers, n_threads)

    def fit_resample(self, X: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
        """The samples and, after them, new ones of the classes that have too few.

        New samples are those that ``sample`` gives.

        Returns
        -------
        X_resampled : (n + n_new, ...)
        y_resampled : (n + n_new,)
        """
        self.fit(X, y)
        n_new, n_classes = count_new(self.sampling_strategy, self._y), len(self.classes_)
        # The j-th balanced sample of class c has this number.
        numbers = np.concatenate([c + n_classes * np.arange(n) for c, n in enumerate(n_new)])
        sources = self._balanced_sources(numbers)
        X_new = self._deform(self._images, sources, numbers, None)
        return np.concatenate((_as_samples(X), X_new)), np.concatenate((self._y, self._y[sources]))

    def _balanced_sources(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        turns, codes = np.divmod(numbers, len(self.classes_))
        return self._order[self._starts[codes] + turns % self._counts[codes]]

    def _deform(
        self,
        images: NDArray[Any],
        sources: NDArray[np.int64],
        numbers: NDArray[np.int64],
        n_threads: int | None,
    ) -> NDArray[Any]:
        # Deformations are drawn, not counted up as in InfiMNIST: were the number of images a
        # multiple of 39, an image would meet few of them again and again.
        deformations = integers(
            self._key, numbers, LOW_32_BITS, stream=Stream.WARP, n_threads=n_threads
        )
        new = deform(
            images,
            sources,
            deformations,
            self.fields_,
            value_range=self.value_range_,
            n_threads=n_threads,
        )
        return new.reshape(len(new), *self._sample_shape)


# -- checks


def _as_samples(X: ArrayLike) -> NDArray[Any]:
    samples = np.asarray(X)
    native = samples.dtype.newbyteorder("=")
    if native.kind not in "iu" and native not in (np.float32, np.float64):
        raise TypeError(
            f"`X` must be integers, float32 or float64, got {samples.dtype}. Use `X.astype(...)`."
        )
    if native.kind == "f" and not np.isfinite(samples).all():
        raise ValueError("`X` must be finite, got NaN or infinity in it.")
    return samples.astype(native, copy=False)


def _as_images(samples: NDArray[Any], image_shape: tuple[int, ...] | None) -> NDArray[Any]:
    """Samples as (n, channels, rows, columns)."""
    shape = samples.shape[1:] if image_shape is None else tuple(image_shape)
    if len(shape) not in (2, 3) or math.prod(shape) != math.prod(samples.shape[1:]):
        raise ValueError(
            "`X` must be images of shape (n, rows, columns) or (n, channels, rows, columns), or "
            f"flat rows of `image_shape`, got shape {samples.shape} and image_shape={image_shape}."
        )
    return samples.reshape(len(samples), *shape[-3:-2] or (1,), *shape[-2:])


def _find_range(samples: NDArray[Any]) -> tuple[float, float]:
    if samples.dtype == np.uint8:
        return 0.0, 255.0
    return float(samples.min()), float(samples.max())


def _check_count(name: str, value: int) -> int:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 0:
        raise ValueError(f"`{name}` must be a whole number, at least 0, got {value!r}.")
    return int(value)


def _count_from(first: int, n: int) -> NDArray[np.int64]:
    start = _check_count("first", first)
    return np.arange(start, start + _check_count("n", n))


# -- strength


class Strength(NamedTuple):
    """What ``choose_strength`` found.

    Attributes
    ----------
    width, amplitude : float
        The best setting.
    errors : (n_widths, n_amplitudes)
        Validation error of each setting, from 0 to 1.
    error_without : float
        Validation error without deformed samples.
    """

    width: float
    amplitude: float
    errors: NDArray[np.float64]
    error_without: float


def choose_strength(
    X: ArrayLike,
    y: ArrayLike,
    X_validation: ArrayLike,
    y_validation: ArrayLike,
    *,
    widths: Sequence[float] = WIDTHS,
    amplitudes: Sequence[float] = AMPLITUDES,
    n_samples: int = 100_000,
    image_shape: tuple[int, ...] | None = None,
    seed: int = 0,
) -> Strength:
    """Compare widths and amplitudes by the error of the nearest neighbour on validation data.

    For every setting, validation samples get the label of their nearest neighbour among the samples
    and ``n_samples`` deformed ones, class-balanced. The setting with the least error wins; among
    equals, the first. Keep test data out of this: what is chosen on it looks better than it is.

    Parameters
    ----------
    X, y : (n, ...), (n,)
        Samples to deform, and their labels.
    X_validation, y_validation : (m, ...), (m,)
        Samples to judge by: none of X.
    widths, amplitudes : sequences of float
        Settings to compare, each with each, in pixels.
    n_samples : int
        Deformed samples per setting.
    image_shape : tuple, optional
        As for ``InfiMNISTAugmenter``.
    seed : int

    Notes
    -----
    The defaults of ``InfiMNISTAugmenter`` come from such a comparison on MNIST, with the settings
    that are the defaults here: X and y the ``few`` of ``paper_split``, 500 images per class from
    the first 50,000 training images, judged by the last 10,000. Errors hardly differ between widths
    of 3 to 8 and amplitudes of 0.5 to 1. Amplitudes of 0, which leaves the shifts, 1.5 and 2 were
    compared on half of the validation images, and were worse than 0.75 at every width.
    """
    samples, queries = _as_samples(X), _as_samples(X_validation)
    labels, truth = check_part("X", samples, y), check_part("X_validation", queries, y_validation)
    _check_comparison(samples, queries, widths, amplitudes)
    classes, codes = np.unique(np.concatenate([labels, truth]), return_inverse=True)
    codes, truth = codes[: len(labels)], codes[len(labels) :]
    start = ClassDistances.among(queries, samples, codes, len(classes))
    errors = np.empty((len(widths), len(amplitudes)))
    with Meter("comparing strengths", errors.size * _check_count("n_samples", n_samples)) as meter:
        for place in np.ndindex(errors.shape):
            nearest, (row, column) = start, place
            augmenter = InfiMNISTAugmenter(
                width=widths[row], amplitude=amplitudes[column], image_shape=image_shape, seed=seed
            )
            for block in _sample_blocks(augmenter.fit(samples, labels), n_samples):
                nearest = nearest.improve(block[0], np.searchsorted(classes, block[1]))
                meter.advance(len(block[1]))
            errors[place] = nearest.errors(truth).mean()
    row, column = divmod(int(errors.argmin()), len(amplitudes))
    return Strength(widths[row], amplitudes[column], errors, float(start.errors(truth).mean()))


def _check_comparison(
    samples: NDArray[Any],
    queries: NDArray[Any],
    widths: Sequence[float],
    amplitudes: Sequence[float],
) -> None:
    if samples.shape[1:] != queries.shape[1:]:
        raise ValueError(
            f"`X_validation` must have samples of shape {samples.shape[1:]} like `X`, got "
            f"{queries.shape[1:]}."
        )
    if len(widths) == 0 or len(amplitudes) == 0:
        raise ValueError(
            "`widths` and `amplitudes` must have at least one value each, got "
            f"{len(widths)} and {len(amplitudes)}."
        )


def _sample_blocks(
    augmenter: InfiMNISTAugmenter, n: int
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    for first in range(0, n, BLOCK):
        yield augmenter.sample(min(BLOCK, n - first), first=first)
