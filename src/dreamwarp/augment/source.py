"""SampleSource: new samples by number.

Which sample of the data is warped, and by which θ, depends on the seed and the number. A sample of
the data that the model was fitted to is a template: models of kind "template" have warps for it.
"""

from __future__ import annotations

import copy
import hashlib
import json
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.defaults import BALANCES, Balance
from dreamwarp.core.draws import MAX_SAMPLE_NUMBER, Seed, Stream, as_key, integers
from dreamwarp.core.labels import check_label, list_labels
from dreamwarp.core.samples import check_finite, check_layout, chunks
from dreamwarp.core.validation import check_choice, check_factor, check_integer
from dreamwarp.data.dataset import DataSet
from dreamwarp.data.shapes import ShapeSet
from dreamwarp.model import WarpModel
from dreamwarp.model.labels import encode
from dreamwarp.model.strength import resolve_strength
from dreamwarp.space.resample import INTERPOLATIONS, Interpolation
from dreamwarp.space.warp import Warp

Array = NDArray[Any]
Integers = NDArray[np.int64]

# Memory for intermediate results of ``warp_samples``.
BLOCK_BYTES = 64 * 2**20


class SampleForm(NamedTuple):
    """Shape, type and classes of a set of samples."""

    shape: tuple[int, ...]  # of one sample
    dtype: np.dtype[Any]  # in native byte order
    classes: Array  # (n_classes,), labels, once each, in order
    affine: Array | None = None  # (4, 4), of volumes; see ``DataSet``

    @property
    def n_bytes(self) -> int:
        """Bytes per sample."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    @property
    def labels(self) -> list[Any]:
        """The classes as plain Python objects."""
        return [check_label(label) for label in self.classes]


class Members:
    """Samples grouped by class; ``codes`` (n,) are their classes, counted from 0."""

    def __init__(self, codes: Integers) -> None:
        self.counts = np.bincount(codes)
        self._starts = np.cumsum(self.counts) - self.counts
        self._order = np.argsort(codes, kind="stable")

    def pick(self, codes: Integers, places: Integers) -> Integers:
        """Index (n,) of sample number ``places[k]`` of class ``codes[k]``."""
        return self._order[self._starts[codes] + places]

    def draw(
        self, key: int, numbers: Integers, codes: Integers, n_threads: int | None = None
    ) -> Integers:
        """Index (n,) of a random member of class ``codes[k]``, for new sample ``numbers[k]``."""
        counts = self.counts[codes]
        places = integers(key, numbers, counts, stream=Stream.TEMPLATE, n_threads=n_threads)
        return self.pick(codes, places)


class SampleSource:
    """An unlimited, numbered supply of new samples: data warped by draws from a model.

    Sample k is a random sample of the data, warped by a θ drawn from the model of its class. It
    depends on the seed and k alone: not on batches, threads, processes or the number of machines.
    The choice of sample and θ is bit-identical on every machine. Warped values are bit-identical on
    the same kind of processor; between kinds, positions differ by at most twice the tolerance of
    :meth:`Warp.image`.

    Parameters
    ----------
    model : WarpModel
        Must have every class of the data. A model of kind ``"template"`` from an `Augmenter` knows
        the samples it was fitted to; other samples get warps of their class.
    data : DataSet, or pair (X, y)
        Samples to warp, and their labels. The training part of a data set is used.
    seed : int, numpy.random.Generator or None
    strength : float, optional
        Factor on the learned warps. Default: the recommended one.
    balance : {"classes", "data"}
        ``"classes"``: classes take turns, sample k has the label ``classes[k % n_classes]``.
        ``"data"``: labels are random, with the frequencies of the data.
    interpolation : {"linear", "nearest", "cubic"}
        How values between pixels are computed.

    Attributes
    ----------
    data : DataSet
    form : SampleForm
    codes : (n,)
        Class of every sample of the data, an index into ``form.classes``.
    knows_templates : bool
        Whether indices of the data may be passed to the model as templates. Without a fingerprint
        in the model, the data is taken to be that of the fit.
    key : int
        64-bit key of the random numbers, from ``seed``.
    strength, balance
        As given, or the default.

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
        self.interpolation = check_choice("interpolation", interpolation, INTERPOLATIONS)
        _check_axes(model, self.data)
        check_known_classes(model, self.data)
        check_finite(self.data.name, self.data.X)
        self.codes = self.data.codes
        dtype = self.data.X.dtype.newbyteorder("=")
        self.form = SampleForm(self.data.X.shape[1:], dtype, self.data.classes, self.data.affine)
        fitted = model.settings.get("samples")
        self.knows_templates = (
            model.kind != "template" or fitted is None or fitted == self.samples_fingerprint
        )
        self._members = Members(self.codes)

    def with_options(
        self,
        *,
        model: WarpModel | None = None,
        key: int | None = None,
        strength: float | None = None,
        balance: Balance | None = None,
        interpolation: Interpolation | None = None,
    ) -> SampleSource:
        """A copy with other options.

        ``model`` must be fitted to the same samples. Its recommended strength replaces the current
        one unless ``strength`` is given.
        """
        other = copy.copy(self)
        if model is not None:
            other.model, other.strength = model, model.strength
        if key is not None:
            other.key = key
        if strength is not None:
            other.strength = check_factor("strength", strength)
        if balance is not None:
            other.balance = check_choice("balance", balance, BALANCES)
        if interpolation is not None:
            other.interpolation = check_choice("interpolation", interpolation, INTERPOLATIONS)
        return other

    def make(self, first: int, n: int, *, n_threads: int | None = None) -> tuple[Array, Array]:
        """Samples ``first`` to ``first + n - 1`` and their labels.

        Returns
        -------
        X : (n, *shape)
            In shape and type like the data.
        y : (n,)
        """
        X, chosen = self.make_numbered(np.arange(first, first + n), n_threads=n_threads)
        return X, self.data.y[chosen]

    def make_numbered(
        self, numbers: Integers, *, code: int | None = None, n_threads: int | None = None
    ) -> tuple[Array, Integers]:
        """Make the new samples with these numbers (n,).

        Returns them and the indices of the samples that they are made from.

        ``code``: as for :meth:`choose`.
        """
        chosen = self.choose(numbers, code=code, n_threads=n_threads)
        X = self.warp_samples(
            self.data.X, self.data.y[chosen], numbers, indices=chosen,
            templates=chosen if self.knows_templates else None, n_threads=n_threads,
        )  # fmt: skip
        return X, chosen

    def choose(
        self, numbers: Integers, *, code: int | None = None, n_threads: int | None = None
    ) -> Integers:
        """Index (n,) of the sample of the data that each new sample (n,) is made from.

        ``code``: the class of all samples; default: chosen according to ``balance``.
        """
        if code is None and self.balance == "data":
            n_all = len(self.codes)
            return integers(self.key, numbers, n_all, stream=Stream.TEMPLATE, n_threads=n_threads)
        n_classes = len(self.form.classes)
        codes = numbers % n_classes if code is None else np.full(len(numbers), code)
        return self._members.draw(self.key, numbers, codes, n_threads)

    def warp_samples(
        self,
        X: Array,
        labels: Array | None,
        numbers: Integers,
        *,
        indices: Integers,
        templates: Integers | None = None,
        unknown: Literal["error", "pool"] = "error",
        n_threads: int | None = None,
    ) -> Array:
        """Warp ``X[indices]``, each by the draw of its number and label.

        ``X`` (m, *shape) may have any size that the space of the model can warp. ``indices`` are
        (n,), and other arguments as for :meth:`WarpModel.draw`.
        """
        dtype = X.dtype.newbyteorder("=")
        size = max(1, BLOCK_BYTES // (8 * max(1, int(np.prod(X.shape[1:])))))
        out = np.empty((len(numbers), *X.shape[1:]), dtype)
        for first in range(0, len(numbers), size):
            block = slice(first, first + size)
            theta = self.strength * self.model.draw(
                None if labels is None else labels[block], numbers[block], seed=self.key,
                templates=None if templates is None else templates[block], unknown=unknown,
                n_threads=n_threads,
            )  # fmt: skip
            samples = X[indices[block]].astype(dtype, copy=False)
            out[block] = self.apply(theta, samples, n_threads=n_threads)
        return out

    def apply(
        self, theta: NDArray[np.float64], samples: Array, *, n_threads: int | None = None
    ) -> Array:
        """Warp samples (n, ...) by θ (n, d); values stay within the range of their sample."""
        warp = Warp(self.model.space, theta)
        return warp.image(
            samples, interpolation=self.interpolation, keep_range=True, n_threads=n_threads
        )

    @cached_property
    def samples_fingerprint(self) -> str:
        """See :func:`fingerprint_samples`."""
        return fingerprint_samples(self.data.X)

    @cached_property
    def data_fingerprint(self) -> str:
        """Hexadecimal SHA-256 of the samples and labels."""
        parts = [self.form.labels, self.data.X.shape, self.samples_fingerprint]
        digest = hashlib.sha256(json.dumps(parts).encode())
        digest.update(self.codes.astype("<i8").data)
        return digest.hexdigest()


def fingerprint_samples(X: Array) -> str:
    """Hexadecimal SHA-256 of samples: their number, dtype and values.

    Flat rows of the same samples have the same fingerprint.
    """
    digest = hashlib.sha256(json.dumps([len(X), X.dtype.str[1:]]).encode())
    for _, chunk in chunks(X):
        digest.update(np.ascontiguousarray(chunk, X.dtype.newbyteorder("<")).data)
    return digest.hexdigest()


# -- checks


def check_range(first: int, n: int | None) -> tuple[int, int]:
    """Check that ``first`` to ``first + n - 1`` are sample numbers; None: all from ``first`` on."""
    first, some = check_integer("first", first, 0), check_integer("n", 1 if n is None else n, 1)
    if first >= MAX_SAMPLE_NUMBER:
        raise ValueError(f"`first` must be below 2^62, as all numbers of samples, got {first}.")
    if first + some > MAX_SAMPLE_NUMBER:
        raise ValueError(
            f"samples are numbered below 2^62, got `first` {first} and `n` {n}. Ask for fewer."
        )
    return first, MAX_SAMPLE_NUMBER - first if n is None else some


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
    # Check now rather than at the first block, when files have already been created.
    Warp(model.space, np.zeros((1, model.space.dim))).check_samples(data.X[:1])


def check_known_classes(model: WarpModel, data: DataSet | ShapeSet) -> None:
    """Raise unless a model has every class of the data."""
    unknown = data.classes[encode(data.classes, model.classes) < 0]
    if len(unknown):
        raise ValueError(
            f"the model must have every class of `{data.name}`, but lacks "
            f"{list_labels(unknown)}. It has {list_labels(model.classes)}. Use the data that it "
            "was fitted to, or fit a model to this."
        )
