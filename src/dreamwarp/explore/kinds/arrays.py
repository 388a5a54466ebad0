"""Arrays: what signals, images and volumes have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dreamwarp.align import Alignments, align_pairs
from dreamwarp.augment.subject import Subject
from dreamwarp.core.samples import add_channels
from dreamwarp.explore.kinds.base import Array, Kind, Numbers, View, to_base64
from dreamwarp.space.warp import Warp

# Largest number of values in one answer, or warped for it: 4 MB.
MAX_VALUES = 2**22


class Arrays(Kind):
    """Signals, images or volumes: arrays (channels, *spatial).

    Parameters
    ----------
    subject : Subject
    """

    read_code: ClassVar[str]

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject.model, subject.codes, subject.labels)
        self.subject = subject

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

    def to_range(self, shares: Array) -> Array:
        """Scale 0 to 1 to the range of the data, as float32."""
        look = self.subject.look
        return (look.low + (look.high - look.low) * shares).astype(np.float32)

    def draw_theta(self, index: int, seed: int) -> Numbers:
        """A random warp (d,) for a sample."""
        return self.subject.draw_theta(index, 1, strength=1.0, seed=seed)[0]

    def warp(self, sample: Array, theta: Numbers) -> Array:
        """A warped sample."""
        return Warp(self.model.space, theta).image(sample)

    def make(self, code: int | None, n: int, strength: float, seed: int) -> tuple[list[Any], Array]:
        """New samples: at most ``n``, and at most ``MAX_VALUES`` values."""
        n = min(n, max(1, MAX_VALUES // self.subject.sample(0).size))
        source = self.subject.source.with_options(key=seed, strength=strength)
        X, chosen = source.make_numbered(np.arange(n), code=code)
        return list(add_channels(X, self.model.space.ndim)), source.data.y[chosen]

    def find_warp(self, source: int, target: int) -> Alignments:
        """Align a sample to another under ``prior``."""
        ends = self.sample(source)[None], self.sample(target)[None]
        return align_pairs(self.model.space, *ends, prior=self.prior, progress=False)

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
