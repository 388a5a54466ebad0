"""Signals, images and volumes on the page: how they are encoded, warped and uploaded.

Positions are in the unit domain, row before column. ``page/kinds.js`` has a counterpart of every
class here and in ``meshes``, which draws what is encoded.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import Alignments, SmoothPrior, align_pairs
from dreamwarp.core.samples import add_channels, pixel_centers
from dreamwarp.explore.uploads import read_picture, read_text_series, read_uploaded_volume
from dreamwarp.report.subject import ANATOMICAL_SLICES, SLICES, Section, Subject
from dreamwarp.space.warp import Warp

Array = NDArray[Any]
Numbers = NDArray[np.float64]
Landmarks = list[tuple[float, float]]

# Largest number of values in one answer, or warped for it: 4 MB.
MAX_VALUES = 2**22
# Grid lines per axis, points along each, and arrows per axis.
N_LINES, POINTS_PER_LINE, N_ARROWS = 15, 49, 16
# Number of times at which the warp of a signal is shown.
N_TIMES = 129


class View(NamedTuple):
    """The slice of a volume that is shown."""

    axis: int = 2  # to which the slice is perpendicular
    place: float = 0.5  # along the axis, from 0 to 1

    def number(self, spatial: Sequence[int]) -> int:
        """Number of the slice in a volume of this shape."""
        n = spatial[self.axis]
        return min(int(self.place * n), n - 1)


class Arrays:
    """Samples (channels, *spatial) of one kind, and their model."""

    name: ClassVar[str]
    plural: ClassVar[str]
    uploads: ClassVar[str]  # file types, as in an ``accept`` attribute; empty: none
    has_landmarks: ClassVar[bool] = False
    read_code: ClassVar[str]  # Python code that reads an uploaded file

    def __init__(self, subject: Subject) -> None:
        self.subject, self.model = subject, subject.model
        # Class of each sample (n,), an index into the labels.
        self.codes, self.labels = subject.codes, subject.labels

    # -- samples

    def describe(self) -> dict[str, Any]:
        """Facts that the page needs to draw samples."""
        shape, look = self.subject.sample(0).shape, self.subject.look
        size = " × ".join(map(str, shape[1:]))
        return {
            "size": size, "shape": list(shape), "is_ink": look.is_ink, "low": look.low,
            "high": look.high, "lanes": look.lanes, "is_anatomical": look.is_anatomical,
        }  # fmt: skip

    def typical(self, code: int) -> int:
        """Index of a typical sample of a class."""
        return int(self.subject.typical(code)[0])

    def sample(self, index: int) -> Array:
        """A sample (channels, *spatial)."""
        return self.subject.sample(index)

    def encode(self, sample: Array, view: View) -> dict[str, Any]:
        """A sample for the browser."""
        return self.encode_values(self.cut(sample, view)) | self.proportions(sample, view)

    def encode_all(self, samples: Sequence[Array], view: View) -> dict[str, Any]:
        """Samples for the browser, as one array: as many as fit into an answer."""
        cut = [self.cut(sample, view) for sample in samples]
        shown = np.stack(cut[: max(1, MAX_VALUES // cut[0].size)])
        return self.encode_values(shown) | self.proportions(samples[0], view)

    def proportions(self, sample: Array, view: View) -> dict[str, float]:
        """Width relative to height, if pixels are not square."""
        return {}

    def encode_values(self, values: Array) -> dict[str, Any]:
        """Values as uint8, scaled from the lowest to the highest of the data."""
        look = self.subject.look
        if values.dtype == np.uint8 and (look.low, look.high) == (0.0, 255.0):
            shades = values
        else:
            shades = np.rint(255.0 * np.clip(look.scale(values), 0.0, 1.0)).astype(np.uint8)
        return {"shape": list(shades.shape), "data": to_base64(shades)}

    def cut(self, values: Array, view: View) -> Array:
        """The part of a sample that is shown."""
        return values

    def to_range(self, shares: Array) -> Array:
        """Scale 0 to 1 to the range of the data, as float32."""
        look = self.subject.look
        return (look.low + (look.high - look.low) * shares).astype(np.float32)

    # -- warps

    def draw_theta(self, index: int, seed: int) -> Numbers:
        """A random warp (d,) for a sample."""
        return self.subject.draw_theta(index, 1, strength=1.0, seed=seed)[0]

    def warp(self, sample: Array, theta: Numbers) -> Array:
        """A warped sample."""
        return Warp(self.model.space, theta).image(sample)

    def make(self, code: int | None, n: int, strength: float, seed: int) -> tuple[list[Any], Array]:
        """New samples of a class, or of all classes in turn, and their labels.

        Fewer than ``n`` if ``n`` would have more than ``MAX_VALUES`` values.
        """
        n = min(n, max(1, MAX_VALUES // self.subject.sample(0).size))
        source = self.subject.source.with_options(key=seed, strength=strength)
        X, chosen = source.make_numbered(np.arange(n), code=code)
        return list(add_channels(X, self.model.space.ndim)), source.data.y[chosen]

    def align(self, source: int, target: int, prior: SmoothPrior) -> Alignments:
        """Align a sample to another."""
        ends = self.sample(source)[None], self.sample(target)[None]
        return align_pairs(self.model.space, *ends, prior=prior, progress=False)

    # -- Python

    def load_code(self, name: str, options: dict[str, Any]) -> str:
        """Python code that loads the data."""
        more = "".join(f", {option}={value!r}" for option, value in options.items())
        return f"data = dw.data.load({name!r}{more})"

    def warp_code(self, index: int | None, view: View) -> list[str]:
        """Python code that warps a sample by ``theta``; ``index`` None: an uploaded sample."""
        return [
            f"sample = {f'data.X[{index}]' if index is not None else self.read_code}",
            "warped = dw.Warp(model.space, theta).image(sample)",
            *self.cut_code(view),
        ]

    def align_code(self, source: int, target: int, view: View) -> list[str]:
        """Python code that aligns a pair under ``prior``."""
        return [
            f"source, target = data.X[[{source}]], data.X[[{target}]]",
            "result = dw.align_pairs(model.space, source, target, prior=prior)",
            "warped = dw.Warp(model.space, result.theta).image(source)",
            *self.cut_code(view),
        ]

    def cut_code(self, view: View) -> list[str]:
        """Python code for the part that is shown."""
        return []


class Signals(Arrays):
    """Signals (channels, times), drawn as lines."""

    name, plural = "signal", "signals"
    uploads = "text/plain,text/csv,.txt,.csv"
    read_code = 'np.loadtxt("yours.csv", delimiter=",", ndmin=2).T  # import numpy as np'

    def encode_values(self, values: Array) -> dict[str, Any]:
        """Values as float32."""
        return {"shape": list(values.shape), "data": pack(values)}

    def show_field(self, theta: Numbers, sample: Array, view: View) -> dict[str, Any]:
        """Times moved by T^{-θ}, as content moves."""
        times = np.linspace(0.0, 1.0, N_TIMES)[:, None]
        return {"grid": pack(self.model.space.flow(-theta, times))}

    def read_upload(self, content: bytes) -> Array:
        """Read rows of numbers."""
        return read_text_series(content, self.subject.sample(0).shape[0])


class Images(Arrays):
    """Images (channels, rows, columns), with a grid, arrows and landmarks."""

    name, plural = "image", "images"
    uploads = "image/png,image/jpeg,image/webp"
    has_landmarks = True
    read_code = 'dw.data.read_image("yours.png")'

    def show_field(self, theta: Numbers, sample: Array, view: View) -> dict[str, Any]:
        """A grid moved by T^{-θ}, as content moves, and the velocity of -θ."""
        space, starts = self.model.space, pixel_centers((N_ARROWS, N_ARROWS))
        section, place = self.section(view), self.place(sample, view)
        along, across = np.linspace(0.0, 1.0, POINTS_PER_LINE), np.linspace(0.0, 1.0, N_LINES)
        rows = np.stack(np.meshgrid(across, along, indexing="ij"), axis=-1)
        lines = np.concatenate([rows, rows[..., ::-1]]).reshape(-1, 2)
        velocity = space.velocity(-theta, section.embed(starts, space.ndim, place))
        moved = space.flow(-theta, section.embed(lines, space.ndim, place))
        arrows = np.concatenate([starts, section.project_vectors(velocity)], axis=1)
        return {
            "grid": pack(section.project(moved)),
            "points_per_line": POINTS_PER_LINE,
            "arrows": pack(arrows),
        }

    def section(self, view: View) -> Section:
        """The axes of rows and columns."""
        return Section(0, 1)

    def place(self, sample: Array, view: View) -> float:
        """Position of the picture along the axis that it is perpendicular to."""
        return 0.5

    def read_upload(self, content: bytes) -> Array:
        """Read a picture; its black and white become the lowest and highest value of the data."""
        look = self.subject.look
        values = read_picture(content, self.subject.sample(0).shape[0], is_ink=look.is_ink)
        is_plain = (look.low, look.high) == (0.0, 255.0)
        return values if is_plain else self.to_range(values / 255.0)


class Volumes(Images):
    """Volumes (channels, x, y, z), shown slice by slice."""

    name, plural = "volume", "volumes"
    uploads = ".npy,.nii,.gz"
    has_landmarks = False  # a slice shows too little of where they go
    read_code = 'dw.data.read_volume("yours.nii.gz")[0]'

    def proportions(self, sample: Array, view: View) -> dict[str, float]:
        """Width of a slice relative to its height; voxels need not be cubes."""
        extent, section = self.subject.look.layout(sample.shape[1:]).extent, self.section(view)
        return {"aspect": float(extent[section.columns] / extent[section.rows])}

    def cut(self, values: Array, view: View) -> Array:
        """The slice that is shown of the first channel: (1, rows, columns)."""
        return self.section(view).cut(values[:1], view.number(values.shape[1:]))

    def section(self, view: View) -> Section:
        """The axes of rows and columns."""
        slices = ANATOMICAL_SLICES if self.subject.look.is_anatomical else SLICES
        return slices[view.axis]

    def place(self, sample: Array, view: View) -> float:
        """Position of the slice along the axis that it is perpendicular to."""
        spatial = sample.shape[1:]
        return (view.number(spatial) + 0.5) / spatial[view.axis]

    def read_upload(self, content: bytes) -> Array:
        """Read a volume; its range of values becomes that of the data."""
        values = read_uploaded_volume(content, self.subject.sample(0).shape[0])
        low, high = float(values.min()), float(values.max())
        return self.to_range((values - low) / (high - low if high > low else 1.0))

    def cut_code(self, view: View) -> list[str]:
        """Python code for the slice that is shown."""
        index = view.number(self.subject.spatial)
        section = self.section(view)
        along = "::-1" if section.is_reversed else ":"
        places = ", ".join(str(index) if axis == view.axis else along for axis in range(3))
        turned = ".swapaxes(-1, -2)" if section.rows > section.columns else ""
        return [f"shown = warped[..., {places}]{turned}"]


def pack(values: Array) -> str:
    """Encode numbers as little-endian float32 in base64."""
    return to_base64(np.asarray(values, dtype="<f4"))


def to_base64(values: Array) -> str:
    """Encode the bytes of an array as base64 text."""
    return base64.b64encode(values.tobytes()).decode("ascii")
