"""Subject: a model and the samples to show with it. Look and Layout: how samples are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
# Shades of volumes run between these percentiles of the values: a few bright voxels would darken
# all others.
WINDOW = (0.5, 99.5)
# Largest number of volumes, and of their values, that the window is computed from.
MAX_WINDOW_VOLUMES, MAX_WINDOW_VALUES = 16, 2**22
# Numbers of channels of colour images; a fourth is not shown.
COLORS = (3, 4)
# Largest number of channels of a signal that are drawn.
MAX_LANES = 8
# Height of a lane, as a fraction of the usual height of a signal.
LANE_HEIGHT = 0.45
# Largest number of class members to search for a typical one.
MOST_COMPARED = 500


class Section(NamedTuple):
    """A picture of an image or of a slice of a volume: which axes are its rows and columns."""

    rows: int
    columns: int
    is_reversed: bool = False  # whether rows and columns run against their axes

    @property
    def axes(self) -> list[int]:
        """The axes of rows and columns."""
        return [self.rows, self.columns]

    def cut(self, values: Array, number: int | None = None) -> Array:
        """The section (channels, rows, columns) of (channels, *spatial); default: the middle."""
        if values.ndim == 4:
            (across,) = {0, 1, 2} - set(self.axes)
            middle = values.shape[1 + across] // 2
            values = np.take(values, middle if number is None else number, axis=1 + across)
        values = values.swapaxes(1, 2) if self.rows > self.columns else values
        return values[:, ::-1, ::-1] if self.is_reversed else values

    def embed(self, points: Array, ndim: int, place: float = 0.5) -> Array:
        """Map points (m, 2) of the picture to the domain; a slice is at ``place`` of its axis."""
        whole = np.full((len(points), ndim), place)
        whole[:, self.axes] = 1.0 - points if self.is_reversed else points
        return whole

    def project(self, points: Array) -> Array:
        """Map points (..., ndim) of the domain to the picture: (..., 2)."""
        found = points[..., self.axes]
        return 1.0 - found if self.is_reversed else found

    def project_vectors(self, vectors: Array) -> Array:
        """Map vectors (..., ndim) of the domain to the picture: (..., 2)."""
        found = vectors[..., self.axes]
        return -found if self.is_reversed else found


# Slices of a volume, across its first to last axis. Volumes of patients, whose axes run to the
# right, the front and the top, are seen as in radiology: sagittal, coronal and axial, with the top
# or the front up, and the patient's right side or front on the left.
SLICES = (Section(1, 2), Section(0, 2), Section(0, 1))
ANATOMICAL_SLICES = (Section(2, 1, True), Section(2, 0, True), Section(1, 0, True))


class Layout(NamedTuple):
    """The proportions of samples, and the sections to draw of them."""

    extent: tuple[float, ...]  # size along each axis; only proportions matter
    is_anatomical: bool = False  # whether axes run to the right, the front and the top of a patient
    n_lanes: int = 1  # channels of a signal, drawn one below the other

    @property
    def sections(self) -> tuple[Section, ...]:
        """All of an image, or three slices of a volume."""
        if len(self.extent) == 2:
            return (Section(0, 1),)
        return ANATOMICAL_SLICES[::-1] if self.is_anatomical else SLICES

    @property
    def stretch(self) -> float:
        """Height of a box as a multiple of its usual height, to hold the channels of a signal."""
        return max(1.0, LANE_HEIGHT * self.n_lanes)


class Look(NamedTuple):
    """Display settings shared by all samples of a data set."""

    low: float  # value at the lower end of the range of shades, or of the vertical axis for signals
    high: float
    is_ink: bool  # whether high values are dark, like ink on paper
    spacing: tuple[float, ...] = ()  # size of a pixel along each axis; empty: the same along all
    is_anatomical: bool = False  # see Layout
    lanes: tuple[tuple[float, float], ...] = ()  # range of each channel of a signal, if several

    @classmethod
    def of(
        cls,
        X: Array,
        ndim: int = 2,
        *,
        affine: Array | None = None,
        is_anatomical: bool = False,
    ) -> Look:
        """The look of samples (n, [channels], *spatial), from about 512 of them.

        ``affine`` maps indices of voxels to millimetres, along axes of a patient if
        ``is_anatomical``.
        """
        if ndim == 3:  # high values are bright, as on a screen in radiology
            values = X[:: max(1, len(X) // MAX_WINDOW_VOLUMES)].reshape(-1)
            values = values[:: max(1, values.size // MAX_WINDOW_VALUES)]
            low, high = map(float, np.percentile(values.astype(np.float64), WINDOW))
            if high <= low:  # nearly all background
                low, high = _range_of(values)
            sizes = () if affine is None else np.linalg.norm(affine[:3, :3], axis=0).tolist()
            return cls(low, high, False, tuple(sizes), is_anatomical)
        some = X[:: max(1, len(X) // 512)]
        lanes: tuple[tuple[float, float], ...] = ()
        if X.dtype == np.bool_:
            low, high = 0.0, 1.0
        elif X.dtype == np.uint8:
            low, high = 0.0, 255.0
        else:
            low, high = _range_of(some)
        if ndim == 1 and X.ndim == 3 and X.shape[1] > 1:
            lanes = tuple(map(_range_of, np.moveaxis(some, 1, 0)[:MAX_LANES]))
        depth = low + BACKGROUND_DEPTH * (high - low)
        is_ink = bool(np.mean(some <= depth) >= BACKGROUND_SHARE)
        return cls(low, high, is_ink, lanes=lanes)

    def layout(self, spatial: Sequence[int]) -> Layout:
        """Proportions and sections of a sample with this many pixels along each axis."""
        spacing = self.spacing or len(spatial) * (1.0,)
        extent = tuple(n * size for n, size in zip(spatial, spacing, strict=True))
        return Layout(extent, self.is_anatomical, max(1, len(self.lanes)))

    def scale(self, values: ArrayLike) -> NDArray[np.float64]:
        """Scale values so that ``low`` becomes 0 and ``high`` becomes 1."""
        return (np.asarray(values, dtype=np.float64) - self.low) / (self.high - self.low)

    def scale_lanes(self, values: Array) -> NDArray[np.float64]:
        """Scale the channels of a signal (channels, times) that are drawn, each by its range."""
        if not self.lanes:
            return self.scale(values)
        low, high = np.array(self.lanes).T[:, :, None]
        return (np.asarray(values[: len(self.lanes)], dtype=np.float64) - low) / (high - low)


def _range_of(values: Array) -> tuple[float, float]:
    """Lowest and highest value; the range is not empty."""
    low, high = float(values.min()), float(values.max())
    return low, high if high > low else low + 1.0


@dataclass(frozen=True, eq=False)
class Subject:
    """A model and the samples to show with it, as a source of new samples."""

    source: SampleSource

    @classmethod
    def of(cls, model: WarpModel, data: Data) -> Subject:
        """A model and data; raises if they do not match."""
        # An explicit strength avoids the warning about a recommended strength of 0.
        return cls(SampleSource(model, data, strength=1.0))

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
    def layout(self) -> Layout:
        """Proportions and sections of samples."""
        return self.look.layout(self.spatial)

    @cached_property
    def look(self) -> Look:
        """How samples are rendered."""
        data, ndim = self.source.data, self.model.space.ndim
        return Look.of(self.X, ndim, affine=data.affine, is_anatomical=data.orientation is not None)

    @property
    def n_channels(self) -> int:
        """Channels of a sample."""
        return self.X.shape[1] if self.X.ndim == self.model.space.ndim + 2 else 1

    @property
    def is_color(self) -> bool:
        """Whether samples are images with colour channels."""
        return self.model.space.ndim == 2 and self.n_channels in COLORS

    @property
    def is_photo(self) -> bool:
        """Whether shades have a meaning, so that pictures must not be inverted on a dark page."""
        return self.model.space.ndim > 1 and (self.is_color or not self.look.is_ink)

    def describe_look(self) -> str:
        """What to know about pictures of samples, as sentences; empty for most."""
        n, ndim, words = self.n_channels, self.model.space.ndim, []
        if ndim == 1 and n > 1:
            some = f"The first {MAX_LANES} of {n}" if n > MAX_LANES else f"The {n}"
            words.append(f"{some} channels, one below the other, each on its own scale.")
        elif ndim == 2 and n > 1 and not self.is_color:
            words.append(f"Shades are the mean of {n} channels.")
        elif ndim == 3:
            if self.look.is_anatomical:
                words.append(
                    "Axial, coronal and sagittal slice through the middle, seen as in radiology: "
                    "the patient's right, or front, is on the left."
                )
            else:
                words.append("Slices through the middle, across the first, second and third axis.")
            words.append(
                f"All pictures have the same shades: black is {self.look.low:.3g}, white "
                f"{self.look.high:.3g}{f', of the first of {n} channels' if n > 1 else ''}."
            )
        return " ".join(words)

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
        listed = join_labels(self.labels)
        raise ValueError(f"`label` must be a class of the data: {listed}, got {label!r}.")

    def typical(self, code: int, n: int = 1) -> Integers:
        """Members of a class nearest to its mean, the nearest first."""
        members = self.members(code)
        some = members[spaced(len(members), MOST_COMPARED)]
        values = np.asarray(self.X[some], dtype=np.float64).reshape(len(some), -1)
        distances = np.square(values - values.mean(axis=0)).sum(axis=1)
        return some[np.argsort(distances, kind="stable")[:n]]

    def warp(self, theta: Array, index: int) -> Array:
        """Warp a sample by each θ (n, d): (n, channels, *spatial)."""
        return Warp(self.model.space, theta).image(self.sample(index)[None])

    def draw_theta(self, index: int, n: int, *, strength: float, seed: int) -> Array:
        """Random warps (n, d) for a sample, at a strength."""
        label = self.labels[self.codes[index]]
        of = index if self.source.knows_templates else NO_TEMPLATE
        theta = self.model.draw(label, np.arange(n), seed=seed, templates=np.full(n, of))
        return strength * theta


def join_labels(labels: Iterable[object]) -> str:
    """List up to twelve labels, and count the rest."""
    names = [str(label) for label in labels]
    more = len(names) - 12
    return ", ".join(names[:12]) + (f" and {more} more" if more > 0 else "")


def as_sample(space: WarpSpace, values: Array, name: str = "sample") -> Array:
    """One sample as (channels, *spatial)."""
    if values.ndim not in (space.ndim, space.ndim + 1) or values.size == 0:
        raise ValueError(
            f"`{name}` must be one sample of shape (*spatial) or (channels, *spatial), with "
            f"{space.ndim} spatial {'axis' if space.ndim == 1 else 'axes'} like the space, got "
            f"{values.shape}."
        )
    return values if values.ndim == space.ndim + 1 else values[None]
