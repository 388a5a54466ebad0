"""Samples by number: which sample is warped, and how, follows from the seed and the number."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.augment.fingerprint import fingerprint, parts
from dreamwarp.augment.members import Members
from dreamwarp.core.draws import Seed, Stream, as_key, integers
from dreamwarp.core.validation import check_choice, check_whole
from dreamwarp.data.dataset import DataSet
from dreamwarp.data.sample_sets import MAX_NUMBER
from dreamwarp.model import WarpModel
from dreamwarp.model.labels import MAX_LISTED, check_label, encode
from dreamwarp.model.strength import apply_strength, resolve_strength
from dreamwarp.model.warpmodel import NO_TEMPLATE
from dreamwarp.space.warp import Warp

Balance = Literal["classes", "data"]
BALANCES = ("classes", "data")

# Values made at a time: what is behind them, some 16 bytes each, should stay in a processor's cache
# as far as it can, and Python's share of the time should be small.
BLOCK_VALUES = 2**20
MAX_BLOCK = 4096
# Blocks are multiples of this where they can be: kernels do as many warps, or some such, abreast.
ABREAST = 64


class SampleForm(NamedTuple):
    """What all samples of a set have in common.

    Attributes
    ----------
    shape : tuple of int
        Of one sample.
    dtype : numpy.dtype
        Of the values, in native byte order.
    classes : (n_classes,)
        Labels, once each, in order.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    classes: NDArray[Any]

    @property
    def n_bytes(self) -> int:
        """Size of one sample."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    @property
    def labels(self) -> list[Any]:
        """The classes as plain Python objects."""
        return [check_label(label) for label in self.classes]

    @property
    def block_size(self) -> int:
        """Samples to make at a time."""
        size = max(1, min(MAX_BLOCK, BLOCK_VALUES // max(1, int(np.prod(self.shape)))))
        return size // ABREAST * ABREAST or size


class SampleSource:
    """An endless, numbered supply of samples: data warped by draws from a model.

    Sample k is a member of the data, drawn at random, warped by a θ that is drawn from the model of
    its class. All of it depends on the seed and k alone, to the bit on one kind of processor: not
    on batches, threads, processes or machine count.

    Parameters
    ----------
    model : WarpModel
        Must know every class of the data. One of kind ``"template"`` that an `Augmenter` fitted
        knows samples by their numbers; if these are other samples, all get warps of their class.
    data : DataSet, or pair (X, y)
        Samples to warp, and their labels. Of a data set, the part to learn from.
    seed : int, numpy.random.Generator or None
    strength : float, optional
        Factor on the learned warps. Default: the one that the model recommends.
    balance : {"classes", "data"}
        ``"classes"``: classes take turns, sample k has the label ``classes[k % n_classes]``.
        ``"data"``: labels come at random, as often as they do in the data.

    Examples
    --------
    >>> source = SampleSource(model, dw.data.mnist(), seed=0)
    >>> X, y = source.make(1_000_000, 64)  # samples 1,000,000 to 1,000,063
    """

    def __init__(
        self,
        model: WarpModel,
        data: DataSet | tuple[Any, Any],
        *,
        seed: Seed = 0,
        strength: float | None = None,
        balance: Balance = "classes",
    ) -> None:
        if not isinstance(model, WarpModel):
            raise TypeError(f"`model` must be a WarpModel, got {type(model).__name__}.")
        self.model = model
        self.data = _as_data_set(data)
        self.key = as_key(seed)
        self.balance = check_choice("balance", balance, BALANCES)
        self.strength = resolve_strength(model, strength)
        _check_axes(model, self.data)
        _check_classes(model, self.data)
        _check_finite(self.data)
        classes, codes = np.unique(self.data.y, return_inverse=True)
        self.form = SampleForm(self.data.X.shape[1:], self.data.X.dtype.newbyteorder("="), classes)
        self._codes, self._members = codes, Members.of(codes)
        self._names, self._are_known = _names(model, classes), _are_known(model, self.data)

    def make(
        self, first: int, n: int, *, n_threads: int | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Samples ``first`` to ``first + n - 1`` and their labels.

        Returns
        -------
        X : (n, *shape)
            In shape and type like the data.
        y : (n,)
        """
        numbers = np.arange(first, first + n, dtype=np.int64)
        templates, codes = self._choose(numbers, n_threads)
        labels = self.form.classes[codes]
        known = templates if self._are_known else np.full(n, NO_TEMPLATE)
        theta = self.model.draw(
            self._names[codes], numbers, seed=self.key, templates=known, n_threads=n_threads
        )
        samples = self.data.X[templates].astype(self.form.dtype, copy=False)
        warps = Warp(self.model.space, apply_strength(theta, self.strength))
        return warps.image(samples, n_threads=n_threads), labels

    @cached_property
    def data_fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of the samples and labels that are warped."""
        X = self.data.X
        digest = hashlib.sha256(json.dumps([self.form.labels, X.shape, fingerprint(X)]).encode())
        digest.update(self._codes.astype("<i8").data)
        return digest.hexdigest()

    def _choose(
        self, numbers: NDArray[np.int64], n_threads: int | None
    ) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Which sample of the data each new one is made of (n,), and its class by number (n,)."""
        if self.balance == "data":
            templates = integers(
                self.key, numbers, len(self._codes), stream=Stream.TEMPLATE, n_threads=n_threads
            )
            return templates, self._codes[templates]
        counts = self._members.counts
        codes = numbers % len(counts)
        places = integers(
            self.key, numbers, counts[codes], stream=Stream.TEMPLATE, n_threads=n_threads
        )
        return self._members.pick(codes, places), codes


# -- checks


def check_range(first: int, n: int) -> tuple[int, int]:
    """Number of the first sample, and how many, if such samples there are."""
    first, n = check_whole("first", first, 0), check_whole("n", n, 1)
    if first >= MAX_NUMBER:
        raise ValueError(f"`first` must be below 2^62, as all numbers of samples, got {first}.")
    if first + n > MAX_NUMBER:
        raise ValueError(
            f"samples are numbered below 2^62, got `first` {first} and `n` {n}. Ask for fewer."
        )
    return first, n


def _as_data_set(data: Any) -> DataSet:
    if isinstance(data, DataSet):
        return data
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise TypeError(f"`data` must be a DataSet or a pair (X, y), got {type(data).__name__}.")
    return DataSet("data", np.asarray(data[0]), np.asarray(data[1]))


def _check_axes(model: WarpModel, data: DataSet) -> None:
    ndim = model.space.ndim
    if data.X.ndim not in (ndim + 1, ndim + 2):
        raise ValueError(
            f"`{data.name}` must have samples of {ndim} spatial axes, with or without channels "
            f"before them, as the model's {model.space!r}, got samples of shape {data.X.shape[1:]}."
            " Use samples like those that the model was fitted to. Rows of numbers need their axes "
            "back, images by X.reshape(n, rows, columns)."
        )
    # Here rather than at the first block, by when files have been begun.
    Warp(model.space, np.zeros(model.space.dim))._check_samples(data.X[:MAX_BLOCK])


def _names(model: WarpModel, classes: NDArray[Any]) -> NDArray[Any]:
    """Classes as the model calls them: to a data set, booleans are 0 and 1."""
    are_truths = isinstance(model.classes[0], bool) and set(classes.tolist()) <= {0, 1}
    return classes.astype(bool) if are_truths else classes


def _check_classes(model: WarpModel, data: DataSet) -> None:
    unknown = data.classes[encode(_names(model, data.classes), model.classes) < 0]
    if len(unknown):
        raise ValueError(
            f"the model must know every class of `{data.name}`, and has no {_listed(unknown)}. It "
            f"knows {_listed(model.classes)}. Use the data that it was fitted to, or fit a model "
            "to this."
        )


def _are_known(model: WarpModel, data: DataSet) -> bool:
    """Whether numbers of these samples mean the same to the model."""
    fitted = model.settings.get("samples")
    return model.kind != "template" or fitted is None or fitted == fingerprint(data.X)


def _check_finite(data: DataSet) -> None:
    if data.X.dtype.kind != "f":
        return
    for first, part in parts(data.X):
        is_finite = np.isfinite(part).all(axis=tuple(range(1, part.ndim)))
        if not is_finite.all():
            raise ValueError(
                f"`{data.name}` must be finite, and sample {first + int(is_finite.argmin())} has "
                "NaN or infinity in it. Leave such samples out, or fill in what is missing."
            )


def _listed(labels: Any) -> str:
    few = ", ".join(repr(check_label(label)) for label in labels[:MAX_LISTED])
    more = len(labels) - MAX_LISTED
    return f"{few} and {more} more" if more > 0 else few
