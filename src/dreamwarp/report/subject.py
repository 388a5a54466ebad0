"""Subject: a model and the samples to show with it. Look: display settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.augment.source import SampleSource
from dreamwarp.core.labels import Label
from dreamwarp.core.samples import spaced
from dreamwarp.data.dataset import DataSet
from dreamwarp.model import WarpModel
from dreamwarp.model.strength import apply_strength
from dreamwarp.model.warpmodel import NO_TEMPLATE
from dreamwarp.space import WarpSpace
from dreamwarp.space.warp import Warp

Array = NDArray[Any]
Integers = NDArray[np.int64]
# A data set, or (X, y).
Data = DataSet | tuple[Any, Any]

# Data is drawn as ink on paper if at least this fraction of its values is background.
BACKGROUND_SHARE = 0.25
# Values count as background up to this fraction of the range above the lowest.
BACKGROUND_DEPTH = 0.02
# Largest number of class members to search for a typical one.
MOST_COMPARED = 500


class Look(NamedTuple):
    """Display settings shared by all samples of a data set."""

    low: float  # value at the lower end of the range of shades, or of the vertical axis for signals
    high: float
    is_ink: bool  # whether high values are dark, like ink on paper
    spacing: tuple[float, ...] = ()  # size of a pixel along each axis; empty: the same along all

    @classmethod
    def of(cls, X: Array, n_most: int = 512, *, spacing: tuple[float, ...] = ()) -> Look:
        """The look of samples (n, ...), from about ``n_most`` of them."""
        some = X[:: max(1, len(X) // n_most)]
        if X.dtype == np.bool_:
            low, high = 0.0, 1.0
        elif X.dtype == np.uint8:
            low, high = 0.0, 255.0
        else:
            low, high = float(some.min()), float(some.max())
        if high <= low:
            high = low + 1.0
        depth = low + BACKGROUND_DEPTH * (high - low)
        return cls(low, high, bool(np.mean(some <= depth) >= BACKGROUND_SHARE), spacing)

    def extent(self, spatial: Sequence[int]) -> tuple[float, ...]:
        """Size along each axis of a sample with this many pixels; only proportions matter."""
        spacing = self.spacing or len(spatial) * (1.0,)
        return tuple(n * size for n, size in zip(spatial, spacing, strict=True))

    def scale(self, values: ArrayLike) -> NDArray[np.float64]:
        """Scale values so that ``low`` becomes 0 and ``high`` becomes 1."""
        return (np.asarray(values, dtype=np.float64) - self.low) / (self.high - self.low)


@dataclass(frozen=True, eq=False)
class Subject:
    """A model and the samples to show with it, as a source of new samples."""

    source: SampleSource

    @classmethod
    def of(cls, model: WarpModel, data: Data, *, seed: int = 0) -> Subject:
        """A model and data; raises if they do not match."""
        # An explicit strength avoids the warning about a recommended strength of 0.
        return cls(SampleSource(model, data, seed=seed, strength=1.0))

    @property
    def model(self) -> WarpModel:
        """The model."""
        return self.source.model

    @property
    def codes(self) -> Integers:
        """Class of each sample (n,), an index into ``labels``."""
        return self.source.codes

    @cached_property
    def labels(self) -> list[Label]:
        """Classes of the data, as in the model."""
        return self.source.form.labels

    @property
    def X(self) -> Array:
        """The samples."""
        return self.source.data.X

    @property
    def spatial(self) -> tuple[int, ...]:
        """Pixels per axis."""
        return self.X.shape[self.X.ndim - self.model.space.ndim :]

    @property
    def extent(self) -> tuple[float, ...]:
        """Size of a sample along each axis; only proportions matter."""
        return self.look.extent(self.spatial)

    @cached_property
    def look(self) -> Look:
        """How samples are rendered."""
        affine = self.source.data.affine
        sizes = () if affine is None else np.linalg.norm(affine[:3, :3], axis=0).tolist()
        return Look.of(self.X, spacing=tuple(sizes))

    @property
    def is_color(self) -> bool:
        """Whether samples have colour channels."""
        return self.X.ndim == self.model.space.ndim + 2 and self.X.shape[1] in (3, 4)

    def sample(self, index: int) -> Array:
        """A sample as (channels, *spatial)."""
        return as_sample(self.model.space, np.asarray(self.X[index]))

    def members(self, code: int) -> Integers:
        """Indices of the samples of a class."""
        return np.flatnonzero(self.codes == code)

    def code_of(self, label: Any) -> int:
        """Index of a class, by its label or the label as a string."""
        for code, known in enumerate(self.labels):
            if known == label or str(known) == str(label):
                return code
        listed = ", ".join(str(known) for known in self.labels[:12])
        more = "" if len(self.labels) <= 12 else f" and {len(self.labels) - 12} more"
        raise ValueError(f"`label` must be a class of the data: {listed}{more}, got {label!r}.")

    def typical(self, code: int, n: int = 1) -> Integers:
        """Members of a class nearest to its mean, the nearest first."""
        members = self.members(code)
        some = members[spaced(len(members), MOST_COMPARED)]
        values = np.asarray(self.X[some], dtype=np.float64).reshape(len(some), -1)
        distances = np.square(values - values.mean(axis=0)).sum(axis=1)
        return some[np.argsort(distances, kind="stable")[:n]]

    def warp(self, theta: Array, index: int) -> Array:
        """Warp a sample by θ (d,) or (n, d): (channels, *spatial), or (n, ...)."""
        warps = Warp(self.model.space, np.atleast_2d(theta))
        warped = warps.image(self.sample(index)[None])
        return warped if theta.ndim == 2 else warped[0]

    def draw_theta(self, index: int, n: int, *, strength: float, seed: int) -> Array:
        """Random warps (n, d) for a sample, at a strength."""
        label = self.labels[self.codes[index]]
        of = index if self.source.knows_templates else NO_TEMPLATE
        theta = self.model.draw(label, np.arange(n), seed=seed, templates=np.full(n, of))
        return apply_strength(theta, strength)


def as_sample(space: WarpSpace, values: Array, name: str = "sample") -> Array:
    """One sample as (channels, *spatial)."""
    if values.ndim not in (space.ndim, space.ndim + 1) or values.size == 0:
        raise ValueError(
            f"`{name}` must be one sample of shape (*spatial) or (channels, *spatial), with "
            f"{space.ndim} spatial {'axis' if space.ndim == 1 else 'axes'} like the space, got "
            f"{values.shape}."
        )
    return values if values.ndim == space.ndim + 1 else values[None]
