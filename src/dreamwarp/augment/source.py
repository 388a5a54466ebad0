"""Samples by number: which sample is warped, and how, follows from the seed and the number."""

from __future__ import annotations

import copy
import hashlib
import json
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.augment.fingerprint import fingerprint
from dreamwarp.augment.members import Members
from dreamwarp.core.draws import Seed, Stream, as_key, integers
from dreamwarp.core.labels import check_label
from dreamwarp.core.samples import check_finite, check_layout
from dreamwarp.core.validation import check_choice, check_factor, check_whole
from dreamwarp.data.dataset import DataSet
from dreamwarp.data.sample_sets import MAX_NUMBER
from dreamwarp.model import WarpModel
from dreamwarp.model.labels import MAX_LISTED, encode
from dreamwarp.model.strength import apply_strength, resolve_strength
from dreamwarp.model.warpmodel import NO_TEMPLATE
from dreamwarp.space.resample import Interpolation
from dreamwarp.space.warp import Warp

Array = NDArray[Any]
Integers = NDArray[np.int64]
Balance = Literal["classes", "data"]
BALANCES = ("classes", "data")

# Values made at a time: what is behind them, some 16 bytes each, should stay in a processor's cache
# as far as it can, and Python's share of the time should be small.
BLOCK_VALUES = 2**20
MAX_BLOCK = 4096
# Blocks are multiples of this where they can be: kernels do as many warps, or some such, abreast.
ABREAST = 64
# Memory for samples on their way, where one call makes many.
BLOCK_BYTES = 64 * 2**20


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
    classes: Array

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
    its class. It depends on the seed and k alone: not on batches, threads, processes or machine
    count. Which member and which θ are the same to the bit on every machine; warped values, on one
    kind of processor. On another, positions differ by at most twice the tolerance of
    :meth:`Warp.image`.

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
    interpolation : {"linear", "nearest", "cubic"}
        How warped samples are read off.

    Attributes
    ----------
    data : DataSet
    form : SampleForm
    codes : (n,)
        Class of every sample of the data, as a place in ``form.classes``.
    knows_templates : bool
        Whether numbers of these samples mean the same to the model.
    key, strength, balance
        As given.

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
        interpolation: Interpolation = "linear",
    ) -> None:
        if not isinstance(model, WarpModel):
            raise TypeError(f"`model` must be a WarpModel, got {type(model).__name__}.")
        self.model = model
        self.data = _as_data_set(data)
        self.key = as_key(seed)
        self.balance = check_choice("balance", balance, BALANCES)
        self.strength = resolve_strength(model, strength)
        self.interpolation = interpolation
        _check_axes(model, self.data)
        _check_classes(model, self.data)
        check_finite(self.data.name, self.data.X)
        classes, self.codes = np.unique(self.data.y, return_inverse=True)
        self.form = SampleForm(self.data.X.shape[1:], self.data.X.dtype.newbyteorder("="), classes)
        self.knows_templates = _knows_templates(model, self.data)
        self._members = Members.of(self.codes)

    def with_options(
        self,
        *,
        model: WarpModel | None = None,
        key: int | None = None,
        strength: float | None = None,
        balance: Balance | None = None,
    ) -> SampleSource:
        """The same data by other draws. A model must know the same classes and samples."""
        other = copy.copy(self)
        if model is not None:
            other.model, other.strength = model, model.strength
        if key is not None:
            other.key = key
        if strength is not None:
            other.strength = check_factor("strength", strength)
        if balance is not None:
            other.balance = check_choice("balance", balance, BALANCES)
        return other

    def make(self, first: int, n: int, *, n_threads: int | None = None) -> tuple[Array, Array]:
        """Samples ``first`` to ``first + n - 1`` and their labels.

        Returns
        -------
        X : (n, *shape)
            In shape and type like the data.
        y : (n,)
        """
        numbers = np.arange(first, first + n, dtype=np.int64)
        templates = self.choose(numbers, n_threads=n_threads)
        return self.warp(numbers, templates, n_threads=n_threads), self.data.y[templates]

    def choose(
        self, numbers: Integers, *, code: int | None = None, n_threads: int | None = None
    ) -> Integers:
        """Which sample of the data each new one, by its number (n,), is made of: (n,).

        Parameters
        ----------
        code : int, optional
            The class of all of them. Default: as ``balance`` says.
        """
        if code is None and self.balance == "data":
            return integers(
                self.key, numbers, len(self.codes), stream=Stream.TEMPLATE, n_threads=n_threads
            )
        counts = self._members.counts
        codes = numbers % len(counts) if code is None else np.full(len(numbers), code)
        places = integers(
            self.key, numbers, counts[codes], stream=Stream.TEMPLATE, n_threads=n_threads
        )
        return self._members.pick(codes, places)

    def warp(
        self, numbers: Integers, templates: Integers, *, n_threads: int | None = None
    ) -> Array:
        """Samples ``templates`` (n,) of the data as new samples ``numbers`` (n,)."""
        known = templates if self.knows_templates else np.full(len(templates), NO_TEMPLATE)
        labels = self.form.classes[self.codes[templates]]
        return self.warp_others(self.data.X, templates, labels, numbers, known, n_threads=n_threads)

    def warp_others(
        self,
        X: Array,
        chosen: Integers,
        labels: Array | None,
        numbers: Integers,
        templates: Integers,
        *,
        unknown: Literal["error", "pool"] = "error",
        n_threads: int | None = None,
    ) -> Array:
        """``X[chosen]``, each under the warp that its number draws for its label.

        Parameters
        ----------
        X : (m, *shape)
            Of any size that the space of the model can warp.
        chosen, numbers : (n,)
        labels : (n,), or None for warps of all classes
        templates : (n,)
            Numbers of samples that the model knows; ``NO_TEMPLATE`` for others.
        unknown : {"error", "pool"}
            What labels of no class get.
        """
        dtype = X.dtype.newbyteorder("=")

        def make(block: slice) -> Array:
            theta = self.model.draw(
                None if labels is None else labels[block], numbers[block], seed=self.key,
                templates=templates[block], unknown=unknown, n_threads=n_threads,
            )  # fmt: skip
            samples = X[chosen[block]].astype(dtype, copy=False)
            return self.apply(apply_strength(theta, self.strength), samples, n_threads=n_threads)

        size = max(1, BLOCK_BYTES // (8 * max(1, int(np.prod(X.shape[1:])))))
        if len(chosen) <= size:
            return make(slice(0, len(chosen)))
        out = np.empty((len(chosen), *X.shape[1:]), dtype)
        for first in range(0, len(chosen), size):
            out[first : first + size] = make(slice(first, first + size))
        return out

    def apply(
        self, theta: NDArray[np.float64], samples: Array, *, n_threads: int | None = None
    ) -> Array:
        """Samples (n, ...) under warps θ (n, d), within the range of each sample."""
        warp = Warp(self.model.space, theta)
        warped = warp.image(samples, interpolation=self.interpolation, n_threads=n_threads)
        if self.interpolation == "cubic":  # which overshoots
            axes = tuple(range(1, samples.ndim))
            low, high = (f(samples, axis=axes, keepdims=True) for f in (np.min, np.max))
            np.clip(warped, low, high, out=warped)
        return warped

    @cached_property
    def data_fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of the samples and labels that are warped."""
        X = self.data.X
        digest = hashlib.sha256(json.dumps([self.form.labels, X.shape, fingerprint(X)]).encode())
        digest.update(self.codes.astype("<i8").data)
        return digest.hexdigest()


# -- checks


def check_range(first: int, n: int) -> tuple[int, int]:
    """``first`` and ``n`` as numbers of samples; raise if they are out of range."""
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
    check_layout(
        data.name, data.X.shape, model.space.ndim,
        f"Use samples like those that the model's {model.space!r} was fitted to. Rows of numbers "
        "need their axes back, images by X.reshape(n, rows, columns).",
    )  # fmt: skip
    # Here rather than at the first block, by when files have been begun.
    Warp(model.space, np.zeros(model.space.dim)).check_samples(data.X[:MAX_BLOCK])


def _check_classes(model: WarpModel, data: DataSet) -> None:
    unknown = data.classes[encode(data.classes, model.classes) < 0]
    if len(unknown):
        raise ValueError(
            f"the model must know every class of `{data.name}`, and has no {_listed(unknown)}. It "
            f"knows {_listed(model.classes)}. Use the data that it was fitted to, or fit a model "
            "to this."
        )


def _knows_templates(model: WarpModel, data: DataSet) -> bool:
    fitted = model.settings.get("samples")
    return model.kind != "template" or fitted is None or fitted == fingerprint(data.X)


def _listed(labels: Any) -> str:
    few = ", ".join(repr(check_label(label)) for label in labels[:MAX_LISTED])
    more = len(labels) - MAX_LISTED
    return f"{few} and {more} more" if more > 0 else few
