"""Question: whether keypoints, boxes and masks of a sample stay where its image shows them.

Landmarks are drawn into images: spots at keypoints, a rectangle that fills a box, a disc that is a
mask too. All are warped as one sample by the torchvision transforms, and found again in the image:
spots by where they are brightest, the disc by its centre of mass, the rectangle by where its
profile crosses half height.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import STRENGTHS, draw_theta, pixel_centers
from benchmarks.peers import PeerMissing, _torchvision_transforms
from benchmarks.report import ErrorRow, Report, Target
from benchmarks.settings import Settings
from dreamwarp import WarpSpace
from dreamwarp.model import WarpModel

Array = NDArray[np.float64]

CELLS, SIZE, N_SPOTS = (4, 4), 96, 6
BOUND = 0.5
# A spot is looked for with its brightness to this power: a warp that stretches one side of it more
# than the other moves its centre of mass, but not its peak.
SHARPEN = 4
# Spots this wide (standard deviation) and discs this large (radius), in pixels.
SPOT, DISC = 1.5, 8.0
# torchvision's strength and smoothness: its defaults, and such that points move about as far as
# ours do, and as smoothly.
ELASTIC = {"torchvision, default": (50.0, 5.0), "torchvision, as far as ours": (450.0, 10.0)}


def run(settings: Settings) -> Report:
    report = Report("landmarks", "do keypoints, boxes and masks stay where the image shows them?")
    n = settings.pick(200, 5)
    report.details = {"cells": CELLS, "size": SIZE, "n_samples": n, "spots": N_SPOTS}
    try:
        transforms = make_transforms(settings.seed, peers=settings.peers)
    except PeerMissing as missing:
        report.notes.append(str(missing))
        return report
    for name, transform in transforms.items():
        errors = measure_landmarks(transform, n, seed=settings.seed)
        moved = f"moved {errors.pop('moved').max():.1f} px at most"
        for what, values in errors.items():
            report.errors.append(ErrorRow.of(name, moved, f"{what}, pixels", values))
            if name == "dreamwarp":
                largest = (float(values.max()),)
                report.targets.append(Target(f"{what} agree", BOUND, largest, "px", at_least=False))
    return report


def make_transforms(seed: int, *, peers: bool = True) -> dict[str, Callable[[Any], Any]]:
    """Our transform, for a class 0 of natural warps, and torchvision's own."""
    v2 = _torchvision_transforms()
    from dreamwarp.torchvision import LearnedWarp

    space = WarpSpace(CELLS)
    theta = draw_theta(space, 200, STRENGTHS["natural"], pixel_centers((28, 28)), seed=seed)
    # A little shrinkage: a singular covariance has no one factor, and draws depend on rounding.
    model = WarpModel.fit(space, {0: theta.astype(np.float64)}, shrinkage=1e-3, pooling=0.0)
    # Warps as they were fitted, and no overshoot at the edges of the rectangle.
    ours = LearnedWarp(model, strength=1.0, spectrum_power=1.0, interpolation="linear")
    transforms: dict[str, Callable[[Any], Any]] = {"dreamwarp": ours}
    if peers:
        for name, (alpha, sigma) in ELASTIC.items():
            transforms[name] = v2.ElasticTransform(alpha=alpha, sigma=sigma)
    return transforms


def measure_landmarks(
    transform: Callable[[Any], Any], n_samples: int, *, seed: int
) -> dict[str, Array]:
    """Distances in pixels between landmarks and where the image shows them, and how far they moved.

    Returns
    -------
    dict with "keypoints" (n * N_SPOTS,), "boxes" (n * 4,), "masks" (n,), "moved" (n * N_SPOTS,)
    """
    import torch

    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    errors: dict[str, list[Array]] = {"keypoints": [], "boxes": [], "masks": [], "moved": []}
    for _ in range(n_samples):
        sample = draw_sample(rng)
        warped = transform(sample)
        *spots, rectangle, disc = warped["image"].double().numpy()
        seen = np.stack([center_of_mass(spot**SHARPEN) for spot in spots])
        points = warped["keypoints"].double().numpy()
        errors["keypoints"].append(np.linalg.norm(points - seen, axis=1))
        errors["moved"].append(np.linalg.norm(seen - sample["keypoints"].numpy(), axis=1))
        errors["boxes"].append(np.abs(warped["boxes"].double().numpy()[0] - extent(rectangle)))
        mask = center_of_mass(warped["mask"].double().numpy())
        errors["masks"].append(np.linalg.norm(mask - center_of_mass(disc), keepdims=True))
    return {what: np.concatenate(values) for what, values in errors.items()}


def draw_sample(rng: np.random.Generator) -> dict[str, Any]:
    """A sample of class 0, in torchvision's types; one channel for each landmark."""
    import torch
    from torchvision import tv_tensors

    rows, columns = np.mgrid[:SIZE, :SIZE].astype(np.float64)
    points = rng.uniform(0.15 * SIZE, 0.85 * SIZE, (N_SPOTS, 2))
    spots = [np.exp(-0.5 * ((columns - x) ** 2 + (rows - y) ** 2) / SPOT**2) for x, y in points]
    left, top = rng.integers(SIZE // 8, SIZE // 2, 2)
    width, height = rng.integers(SIZE // 8, SIZE // 3, 2)
    rectangle = np.zeros((SIZE, SIZE))
    rectangle[top : top + height, left : left + width] = 1.0
    x, y = rng.uniform(0.25 * SIZE, 0.75 * SIZE, 2)
    disc = (np.hypot(columns - x, rows - y) < DISC).astype(np.float64)
    canvas = {"canvas_size": (SIZE, SIZE)}
    box = torch.tensor([[left, top, left + width, top + height]], dtype=torch.float64)
    return {
        "image": tv_tensors.Image(torch.tensor(np.stack([*spots, rectangle, disc]))),
        "mask": tv_tensors.Mask(torch.tensor(disc, dtype=torch.uint8)),
        "boxes": tv_tensors.BoundingBoxes(box, format="XYXY", **canvas),
        "keypoints": tv_tensors.KeyPoints(torch.tensor(points), **canvas),
        "label": 0,
    }


def center_of_mass(image: Array) -> Array:
    """(x, y) of an image (height, width), where the centre of the first pixel is 0, 0."""
    total = image.sum()
    across, down = image.sum(axis=0), image.sum(axis=1)
    return np.array([across @ np.arange(len(across)), down @ np.arange(len(down))]) / total


def extent(image: Array) -> Array:
    """(left, top, right, bottom) of what is above half height, from border to border of pixels."""
    left, right = _crossings(image.max(axis=0))
    top, bottom = _crossings(image.max(axis=1))
    return np.array([left, top, right, bottom])


def _crossings(profile: Array) -> tuple[float, float]:
    """First and last place where a profile is half, between centres of pixels."""
    above = np.flatnonzero(profile >= 0.5)
    first, last = above[0], above[-1]
    rise = (profile[first] - 0.5) / (profile[first] - profile[first - 1])
    fall = (profile[last] - 0.5) / (profile[last] - profile[last + 1])
    return first - rise + 0.5, last + fall + 0.5
