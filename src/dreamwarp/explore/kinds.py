"""The kinds of samples that the page shows, one class each: how they are encoded and warped.

Positions are in the unit domain, row before column. The page has a counterpart of every class, in
``page/kinds.js``, which draws what is encoded here.
"""

from __future__ import annotations

import base64
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import SmoothPrior, align_pairs
from dreamwarp.align.points import align_points
from dreamwarp.augment.shapes import sample_shapes
from dreamwarp.augment.subject import Subject
from dreamwarp.core.defaults import DISPLACEMENT, LENGTH
from dreamwarp.core.samples import add_channels, pixel_centers
from dreamwarp.data.shapes import ShapeSet
from dreamwarp.explore.surfaces import Surface, simplify
from dreamwarp.explore.uploads import read_picture, read_text_series, read_uploaded_volume
from dreamwarp.model import WarpModel
from dreamwarp.model.labels import encode
from dreamwarp.space.warp import Warp

Array = NDArray[Any]
Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
Landmarks = list[tuple[float, float]]

# Grid lines per axis, points along each, and arrows per axis.
N_LINES, POINTS_PER_LINE, N_ARROWS = 15, 49, 16
POINTS_OF_LINE = 129
# Largest number of values in one answer, or warped for it: 4 MB.
MAX_VALUES = 2**22
# Triangles in one answer, and fewest per surface: a browser draws them in a few hundredths of a
# second.
MAX_FACES, MIN_FACES = 12_000, 800


class View(NamedTuple):
    """The slice of a volume that is shown.

    Attributes
    ----------
    axis : int
        The axis that the slice is perpendicular to.
    place : float
        Its position along the axis, from 0 to 1.
    """

    axis: int = 2
    place: float = 0.5

    def number(self, spatial: Sequence[int]) -> int:
        """Number of the slice in a volume of this shape."""
        n = spatial[self.axis]
        return min(int(self.place * n), n - 1)

    @property
    def in_plane(self) -> list[int]:
        """The axes of the rows and the columns of the slice."""
        return [axis for axis in range(3) if axis != self.axis]


class Pair(NamedTuple):
    """An aligned pair."""

    theta: Numbers
    loss_before: float
    loss_after: float
    is_usable: bool


class Kind(ABC):
    """Samples of one kind, and their model.

    Attributes
    ----------
    name, plural : str
    uploads : str
        File types that can be uploaded, as in an ``accept`` attribute; empty: none.
    """

    name: ClassVar[str]
    plural: ClassVar[str]
    uploads: ClassVar[str] = ""
    model: WarpModel
    codes: Integers
    labels: list[Any]

    # -- the data

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Facts that the page needs to draw samples."""

    @abstractmethod
    def about(self) -> str:
        """The data in one line."""

    @abstractmethod
    def typical(self, code: int) -> int:
        """Index of a typical sample of a class."""

    @abstractmethod
    def sample(self, index: int) -> Any:
        """A sample."""

    @abstractmethod
    def encode(self, sample: Any, view: View) -> Any:
        """A sample for the browser."""

    @abstractmethod
    def encode_all(self, samples: Sequence[Any], view: View) -> Any:
        """Several samples for the browser, perhaps in less detail."""

    def read_upload(self, content: bytes) -> Any:
        """Read an uploaded sample."""
        raise ValueError(f"{self.plural} can't be uploaded. Put them into the folder of the data.")

    # -- warps

    @abstractmethod
    def draw_theta(self, index: int, seed: int) -> Numbers:
        """A random warp (d,) for a sample."""

    @abstractmethod
    def warp(self, sample: Any, theta: Numbers) -> Any:
        """A warped sample."""

    def show_field(self, theta: Numbers, sample: Any, view: View) -> dict[str, Any]:
        """What shows the warp besides the warped sample."""
        return {}

    def move_landmarks(self, theta: Numbers, landmarks: Landmarks) -> dict[str, Any]:
        """Landmarks, moved; nothing for kinds without."""
        return {}

    @abstractmethod
    def make(self, code: int | None, n: int, strength: float, seed: int) -> tuple[list[Any], Array]:
        """New samples of a class, or of all classes in turn, and their labels."""

    @abstractmethod
    def align(self, source: int, target: int) -> Pair:
        """Align a sample to another."""

    @property
    def prior(self) -> SmoothPrior:
        """The prior with which the model's pairs were aligned."""
        displacement, length = self.prior_scale
        return SmoothPrior(self.model.space, displacement=displacement, length=length)

    @property
    def prior_scale(self) -> tuple[float, float]:
        """Displacement and length of the prior."""
        settings = self.model.settings
        displacement = settings.get("displacement", "auto")
        return (
            DISPLACEMENT if displacement == "auto" else float(displacement),
            float(settings.get("length", LENGTH)),
        )

    # -- Python

    @abstractmethod
    def load_code(self, name: str, options: dict[str, Any]) -> str:
        """Python code that loads the data."""

    @abstractmethod
    def warp_code(self, index: int | None, view: View) -> list[str]:
        """Python code that warps a sample, or an own one, by ``theta``."""

    @abstractmethod
    def align_code(self, source: int, target: int, view: View) -> list[str]:
        """Python code that aligns a pair under ``prior``."""


# -- arrays


@dataclass(frozen=True, eq=False)
class Arrays(Kind):
    """Signals, images or volumes: arrays (channels, *spatial).

    Parameters
    ----------
    subject : Subject
    """

    subject: Subject
    read_code: ClassVar[str]

    @property
    def model(self) -> WarpModel:  # type: ignore[override]
        """The model."""
        return self.subject.model

    @property
    def codes(self) -> Integers:  # type: ignore[override]
        """Class of each sample."""
        return self.subject.codes

    @property
    def labels(self) -> list[Any]:  # type: ignore[override]
        """Labels of the classes."""
        return self.subject.labels

    def describe(self) -> dict[str, Any]:
        """Facts that the page needs to draw samples."""
        shape, look = self.subject.sample(0).shape, self.subject.look
        size = " × ".join(map(str, shape[1:]))
        return {
            "size": size, "shape": list(shape), "is_ink": look.is_ink, "low": look.low,
            "high": look.high,
        }  # fmt: skip

    def about(self) -> str:
        """The data in one line."""
        return self.subject.source.data.describe()

    def typical(self, code: int) -> int:
        """Index of a typical sample of a class."""
        return int(self.subject.typical(code)[0])

    def sample(self, index: int) -> Array:
        """A sample (channels, *spatial)."""
        return self.subject.sample(index)

    def encode(self, sample: Array, view: View) -> dict[str, Any]:
        """A sample for the browser."""
        return self.encode_values(self.cut(sample, view))

    def encode_all(self, samples: Sequence[Array], view: View) -> dict[str, Any]:
        """Samples for the browser, as one array: as many as fit into an answer."""
        cut = [self.cut(sample, view) for sample in samples]
        return self.encode_values(np.stack(cut[: max(1, MAX_VALUES // cut[0].size)]))

    def encode_values(self, values: Array) -> dict[str, Any]:
        """Values as uint8, scaled from the lowest to the highest of the data."""
        look = self.subject.look
        if values.dtype == np.uint8 and (look.low, look.high) == (0.0, 255.0):
            shades = values
        else:
            shades = np.rint(255.0 * np.clip(look.scale(values), 0.0, 1.0)).astype(np.uint8)
        return {"shape": list(shades.shape), "data": to_base64(shades.tobytes())}

    def cut(self, values: Array, view: View) -> Array:
        """The part of a sample that is shown."""
        return values

    def draw_theta(self, index: int, seed: int) -> Numbers:
        """A random warp (d,) for a sample."""
        return self.subject.draw_theta(index, 1, strength=1.0, seed=seed)[0]

    def warp(self, sample: Array, theta: Numbers) -> Array:
        """A warped sample."""
        return Warp(self.model.space, theta).image(sample)

    def make(self, code: int | None, n: int, strength: float, seed: int) -> tuple[list[Any], Array]:
        """New samples: as many as can be warped soon."""
        n = min(n, max(1, MAX_VALUES // self.subject.sample(0).size))
        source, numbers = (
            self.subject.source.with_options(key=seed, strength=strength),
            np.arange(n),
        )
        templates = source.choose(numbers, code=code)
        X, y = source.warp(numbers, templates), source.data.y[templates]
        return list(add_channels(X, self.model.space.ndim)), y

    def align(self, source: int, target: int) -> Pair:
        """Align a sample to another."""
        ends = self.sample(source)[None], self.sample(target)[None]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the page shows the result
            found = align_pairs(self.model.space, *ends, prior=self.prior, progress=False)
        losses = float(found.loss_before[0]), float(found.loss_after[0])
        return Pair(found.theta[0], *losses, bool(found.usable[0]))

    def load_code(self, name: str, options: dict[str, Any]) -> str:
        """Python code that loads the data."""
        more = "".join(f", {option}={value!r}" for option, value in options.items())
        return f"data = dw.data.load({name!r}{more})"

    def warp_code(self, index: int | None, view: View) -> list[str]:
        """Python code that warps a sample by ``theta``."""
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
    """Signals (channels, times)."""

    name, plural = "signal", "signals"
    uploads = "text/plain,text/csv,.txt,.csv"
    read_code = 'np.loadtxt("yours.csv", delimiter=",", ndmin=2).T  # import numpy as np'

    def encode_values(self, values: Array) -> dict[str, Any]:
        """Values as float32."""
        return {"shape": list(values.shape), "data": pack(values)}

    def show_field(self, theta: Numbers, sample: Array, view: View) -> dict[str, Any]:
        """Times moved by T^{-θ}, as content moves, and the velocity of -θ."""
        points, space = np.linspace(0.0, 1.0, POINTS_OF_LINE)[:, None], self.model.space
        return {
            "grid": pack(space.flow(-theta, points)),
            "arrows": pack(space.velocity(-theta, points)),
        }

    def read_upload(self, content: bytes) -> Array:
        """Read rows of numbers."""
        return read_text_series(content, self.subject.sample(0).shape[0])


class Images(Arrays):
    """Images (channels, rows, columns)."""

    name, plural = "image", "images"
    uploads = "image/png,image/jpeg,image/webp"
    read_code = 'dw.data.read_image("yours.png")'

    def show_field(self, theta: Numbers, sample: Array, view: View) -> dict[str, Any]:
        """A grid moved by T^{-θ}, as content moves, and the velocity of -θ."""
        space, starts = self.model.space, pixel_centers((N_ARROWS, N_ARROWS))
        lines = self.embed(_grid_lines(), sample, view)
        velocity = space.velocity(-theta, self.embed(starts, sample, view))
        axes = self.axes(view)
        return {
            "grid": pack(space.flow(-theta, lines)[:, axes]),
            "points_per_line": POINTS_PER_LINE,
            "arrows": pack(np.concatenate([starts, velocity[:, axes]], axis=1)),
        }

    def axes(self, view: View) -> list[int]:
        """The axes of rows and columns."""
        return [0, 1]

    def embed(self, points: Numbers, sample: Array, view: View) -> Numbers:
        """Points (m, 2) of what is shown, in the domain."""
        return points

    def move_landmarks(self, theta: Numbers, landmarks: Landmarks) -> dict[str, Any]:
        """Landmarks, moved as the content is."""
        points = np.asarray(landmarks, dtype=np.float64).reshape(-1, 2)
        moved = Warp(self.model.space, theta).points(points) if len(points) else points
        return {"landmarks": moved.round(6).tolist()}

    def read_upload(self, content: bytes) -> Array:
        """Read a picture; its black and white become the lowest and highest value of the data."""
        look = self.subject.look
        values = read_picture(content, self.subject.sample(0).shape[0], is_ink=look.is_ink)
        if (look.low, look.high) == (0.0, 255.0):
            return values
        return (look.low + (look.high - look.low) * values / 255.0).astype(np.float32)


class Volumes(Images):
    """Volumes (channels, x, y, z), of which a slice is shown."""

    name, plural = "volume", "volumes"
    uploads = ".npy,.nii,.gz"
    read_code = 'dw.data.read_volume("yours.nii.gz")[0]'

    def cut(self, values: Array, view: View) -> Array:
        """The slice that is shown: (channels, rows, columns)."""
        return np.take(values, view.number(values.shape[1:]), axis=1 + view.axis)

    def axes(self, view: View) -> list[int]:
        """The axes of rows and columns."""
        return view.in_plane

    def embed(self, points: Numbers, sample: Array, view: View) -> Numbers:
        """Points (m, 2) of the slice, in the volume."""
        spatial = sample.shape[1:]
        height = (view.number(spatial) + 0.5) / spatial[view.axis]
        return np.insert(points, view.axis, height, axis=1)

    def move_landmarks(self, theta: Numbers, landmarks: Landmarks) -> dict[str, Any]:
        """None: a slice shows too little of where they go."""
        return {}

    def read_upload(self, content: bytes) -> Array:
        """Read a volume; its range of values becomes that of the data."""
        values = read_uploaded_volume(content, self.subject.sample(0).shape[0])
        look, low, high = self.subject.look, float(values.min()), float(values.max())
        shares = (values - low) / (high - low if high > low else 1.0)
        return (look.low + (look.high - look.low) * shares).astype(np.float32)

    def cut_code(self, view: View) -> list[str]:
        """Python code for the slice that is shown."""
        index = view.number(self.subject.spatial)
        places = ", ".join(str(index) if axis == view.axis else ":" for axis in range(3))
        return [f"shown = warped[..., {places}]"]


# -- meshes


@dataclass(frozen=True, eq=False)
class Meshes(Kind):
    """Meshes or sets of points in space."""

    model: WarpModel
    shapes: ShapeSet
    name: ClassVar[str] = "mesh"
    plural: ClassVar[str] = "meshes"

    def __post_init__(self) -> None:
        if self.shapes.ndim != 3 or self.model.space.ndim != 3:
            raise ValueError(
                f"meshes and their model must have 3 dimensions, got {self.shapes.ndim} and "
                f"{self.model.space.ndim}. Use the model that was fitted to them."
            )
        if (encode(self.shapes.classes, self.model.classes) < 0).any():
            raise ValueError(
                f"the model must know every class of `{self.shapes.name}`, "
                f"{self.shapes.classes.tolist()}, and knows {list(self.model.classes)}. Use the "
                "meshes that it was fitted to."
            )

    @cached_property
    def labels(self) -> list[Any]:  # type: ignore[override]
        """Labels of the classes."""
        return [label.item() for label in self.shapes.classes]

    @cached_property
    def codes(self) -> Integers:  # type: ignore[override]
        """Class of each shape."""
        return np.searchsorted(self.shapes.classes, self.shapes.y).astype(np.int64)

    def describe(self) -> dict[str, Any]:
        """Number of points, and the radius within which all shapes lie."""
        counts = sorted(len(points) for points in self.shapes.points)
        more = f" to {counts[-1]:,}" if counts[-1] > counts[0] else ""
        distances = [np.linalg.norm(p - 0.5, axis=1).max() for p in self.shapes.unit_points()]
        return {"size": f"{counts[0]:,}{more} points", "radius": float(max(distances))}

    def about(self) -> str:
        """The data in one line."""
        return self.shapes.describe()

    def typical(self, code: int) -> int:
        """The shape whose extent is nearest to the mean of its class."""
        members = np.flatnonzero(self.codes == code)
        clouds = [self.sample(int(i)).points for i in members]
        extents = np.array([[*p.mean(axis=0), *p.std(axis=0)] for p in clouds])
        return int(members[np.square(extents - extents.mean(axis=0)).sum(axis=1).argmin()])

    @cached_property
    def _surfaces(self) -> dict[int, Surface]:
        return {}

    def sample(self, index: int) -> Surface:
        """A shape in the unit cube, in as much detail as the page draws."""
        if index not in self._surfaces:
            self._surfaces[index] = simplify(surface_of(self.shapes, index), MAX_FACES)
        return self._surfaces[index]

    def encode(self, sample: Surface, view: View) -> dict[str, Any]:
        """A surface for the browser."""
        faces = np.asarray(sample.faces, "<u4")
        return {"points": pack(sample.points), "faces": to_base64(faces.tobytes())}

    def encode_all(self, samples: Sequence[Surface], view: View) -> list[dict[str, Any]]:
        """Surfaces for the browser, the more the less detailed."""
        most = max(MIN_FACES, MAX_FACES // len(samples))
        return [self.encode(simplify(sample, most), view) for sample in samples]

    def draw_theta(self, index: int, seed: int) -> Numbers:
        """A random warp (d,) for a shape."""
        label = self.labels[self.codes[index]]
        return self.model.draw(label, [0], seed=seed, templates=[index])[0]

    def warp(self, sample: Surface, theta: Numbers) -> Surface:
        """A warped shape."""
        return Surface(Warp(self.model.space, theta).points(sample.points), sample.faces)

    def make(self, code: int | None, n: int, strength: float, seed: int) -> tuple[list[Any], Array]:
        """New shapes, as :func:`sample_shapes` makes them."""
        own = self.shapes
        if code is not None:
            own = own.take(np.flatnonzero(self.codes == code))
        made = sample_shapes(self.model, own, n, seed=seed, strength=strength)
        return [surface_of(made, k) for k in range(n)], made.y

    def align(self, source: int, target: int) -> Pair:
        """Align a shape to another, by points that correspond or by the Chamfer distance."""
        ends = ([surface_of(self.shapes, end).points] for end in (source, target))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the page shows the result
            found = align_points(
                self.model.space, *ends, prior=self.prior, sigma=self._sigma,
                match=self._match, progress=False,  # type: ignore[arg-type]
            )  # fmt: skip
        return Pair(found.theta[0], float(found.loss_before[0]), float(found.loss_after[0]), True)

    @property
    def _sigma(self) -> Any:
        return self.model.settings.get("sigma", "auto")

    @cached_property
    def _match(self) -> str:
        return "known" if self.shapes.corresponds else "nearest"

    def load_code(self, name: str, options: dict[str, Any]) -> str:
        """Python code that loads the shapes."""
        each = self.model.settings.get("shapes") == "each"
        more = ", normalize='each'" if each else ""
        return f"shapes = dw.data.load_shapes({name!r}{more})"

    def warp_code(self, index: int | None, view: View) -> list[str]:
        """Python code that warps the points of a shape by ``theta``."""
        return [
            f"points, box = shapes.points[{index}], shapes.boxes[{index}]",
            "warped = box.to_world(dw.Warp(model.space, theta).points(box.to_unit(points)))",
        ]

    def align_code(self, source: int, target: int, view: View) -> list[str]:
        """Python code that aligns a pair under ``prior``."""
        return [
            "points = shapes.unit_points()",
            f"source, target = points[{source}], points[{target}]",
            "result = dw.align_points(",
            "    model.space, [source], [target], prior=prior, "
            f"sigma={self._sigma!r}, match={self._match!r}",
            ")",
            "warped = dw.Warp(model.space, result.theta[0]).points(source)",
        ]


def surface_of(shapes: ShapeSet, index: int) -> Surface:
    """A shape in the unit cube."""
    points = shapes.boxes[index].to_unit(shapes.points[index])
    faces = getattr(shapes.meshes[index], "faces", None) if shapes.meshes else None
    return Surface(points, np.asarray(np.empty((0, 3)) if faces is None else faces, np.int64))


WHOLE = View()


def pack(values: Array) -> str:
    """Encode numbers as little-endian float32 in base64."""
    return to_base64(np.asarray(values, dtype="<f4").tobytes())


def to_base64(content: bytes) -> str:
    """Encode bytes as base64 text."""
    return base64.b64encode(content).decode("ascii")


def _grid_lines() -> Numbers:
    along, across = np.linspace(0.0, 1.0, POINTS_PER_LINE), np.linspace(0.0, 1.0, N_LINES)
    rows = np.stack(np.meshgrid(across, along, indexing="ij"), axis=-1)
    return np.concatenate([rows, rows[..., ::-1]]).reshape(-1, 2)
