"""Kind: the interface of all kinds of samples, and the encoding of numbers for the browser."""

from __future__ import annotations

import base64
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import Alignments, SmoothPrior
from dreamwarp.align.points import PointAlignments
from dreamwarp.core.defaults import DISPLACEMENT, LENGTH
from dreamwarp.model import WarpModel

Array = NDArray[Any]
Numbers = NDArray[np.float64]
Integers = NDArray[np.int64]
Landmarks = list[tuple[float, float]]


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

    Parameters
    ----------
    model : WarpModel
    codes : (n,)
        Class of each sample, an index into ``labels``.
    labels : list
        Labels of the classes.

    Attributes
    ----------
    name, plural : str
    uploads : str
        File types that can be uploaded, as in an ``accept`` attribute; empty: none.
    """

    name: ClassVar[str]
    plural: ClassVar[str]
    uploads: ClassVar[str] = ""

    def __init__(self, model: WarpModel, codes: Integers, labels: list[Any]) -> None:
        self.model, self.codes, self.labels = model, codes, labels

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
        """Moved landmarks; empty for kinds that have none."""
        return {}

    @abstractmethod
    def make(self, code: int | None, n: int, strength: float, seed: int) -> tuple[list[Any], Array]:
        """New samples of a class, or of all classes in turn, and their labels."""

    def align(self, source: int, target: int) -> Pair:
        """Align a sample to another."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the page shows the result
            found = self.find_warp(source, target)
        losses = float(found.loss_before[0]), float(found.loss_after[0])
        is_usable = isinstance(found, PointAlignments) or bool(found.usable[0])
        return Pair(found.theta[0], *losses, is_usable)

    @abstractmethod
    def find_warp(self, source: int, target: int) -> Alignments | PointAlignments:
        """Align a sample to another under ``prior``."""

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
        """Python code that warps a sample by ``theta``; ``index`` None: an uploaded sample."""

    @abstractmethod
    def align_code(self, source: int, target: int, view: View) -> list[str]:
        """Python code that aligns a pair under ``prior``."""


def pack(values: Array) -> str:
    """Encode numbers as little-endian float32 in base64."""
    return to_base64(np.asarray(values, dtype="<f4").tobytes())


def to_base64(content: bytes) -> str:
    """Encode bytes as base64 text."""
    return base64.b64encode(content).decode("ascii")
