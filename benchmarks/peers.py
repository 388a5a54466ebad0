"""Adapters for other packages: the same task as dreamwarp, with the same data.

An adapter turns our θ and points into a package's own form once, outside the clock, so that what is
timed is the package's own call and nothing else. Where a package can't be measured it raises
:class:`PeerMissing`, which says why and what to install.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import SmoothFields, pixel_centers
from dreamwarp import Warp, WarpSpace

Array = NDArray[Any]

# Enough points in every triangle or tetrahedron to determine its affine map; none on an edge.
_FIT_GRID = {2: (29, 31), 3: (13, 14, 15)}
# A peer's field must be ours to this much of the largest velocity to count as the same.
_SAME_FIELD = 1e-6


class PeerMissing(RuntimeError):
    """A package is not installed, or not in a state worth measuring."""


@dataclass(frozen=True)
class FlowTask:
    """One contestant with θ and points already in its own form.

    Parameters
    ----------
    name : str
    flow : callable
        Moves the points.
    flow_and_gradient : callable
        Moves the points and differentiates the sum of their squared coordinates by θ.
    moved : callable
        Result of ``flow`` in our order of axes, (n, m, ndim).
    gradient : callable
        Result of ``flow_and_gradient`` as a gradient by our θ, (n, d).
    """

    name: str
    flow: Callable[[], Any]
    flow_and_gradient: Callable[[], Any]
    moved: Callable[[], Array]
    gradient: Callable[[], Array]


@dataclass(frozen=True)
class ImageTask:
    """One contestant with its images: ``warp`` does ``n_images`` of them."""

    name: str
    warp: Callable[[], Any]
    n_images: int


# -- dreamwarp itself


def dreamwarp_flow(
    space: WarpSpace, theta: Array, points: Array, *, n_threads: int, name: str = "dreamwarp"
) -> FlowTask:
    def flow() -> Array:
        return space.flow(theta, points, n_threads=n_threads)

    def flow_and_gradient() -> Array:
        moved = flow()
        by_theta, _ = space.flow_vjp(theta, points, 2 * moved, moved=moved, n_threads=n_threads)
        return by_theta

    return FlowTask(name, flow, flow_and_gradient, flow, flow_and_gradient)


def dreamwarp_images(
    space: WarpSpace,
    theta: Array,
    images: Array,
    *,
    n_threads: int,
    name: str,
    one_by_one: bool = False,
) -> ImageTask:
    """Images (n, height, width), each with its own θ, in one call or in n."""

    def warp_all() -> Array:
        return Warp(space, theta).image(images, n_threads=n_threads)

    def warp_each() -> None:
        for one_theta, image in zip(theta, images, strict=True):
            Warp(space, one_theta).image(image, n_threads=n_threads)

    return ImageTask(name, warp_each if one_by_one else warp_all, len(images))


# -- flows


def libcpab_flow(
    space: WarpSpace, theta: Array, points: Array, *, n_threads: int, name: str = "libcpab"
) -> FlowTask:
    """libcpab on the same fields as a 2-D "slip" space, which is its ``zero_boundary``."""
    mapped = _Libcpab(space.cells, n_threads)
    sites = pixel_centers(_FIT_GRID[space.ndim])
    to_theirs = mapped.fit(sites, space.velocity(np.eye(space.dim), sites), exactly=True)
    return mapped.task(name, theta @ to_theirs, points, to_ours=to_theirs.T)


class _Libcpab:
    """libcpab's transformer: coordinates run x, y, z and axes come before points."""

    def __init__(self, cells: tuple[int, ...], n_threads: int) -> None:
        self.torch = _import("torch")
        self.torch.set_num_threads(n_threads)
        with _silence():
            self.transformer = _import("libcpab").Cpab(
                list(cells[::-1]), device="cpu", zero_boundary=True, volume_perservation=False
            )

    def grid(self, points: Array, dtype: str = "float32") -> Any:
        """Points (m, ndim) as a tensor (ndim, m)."""
        flipped = np.ascontiguousarray(np.asarray(points)[:, ::-1].T)
        return self.torch.tensor(flipped, dtype=getattr(self.torch, dtype))

    def velocity(self, theta: Array, points: Array) -> Array:
        """Velocities (n, m, ndim) of θ (n, d) at points (m, ndim), in float64."""
        grid = self.grid(points, "float64")
        rows = self.torch.tensor(np.atleast_2d(theta), dtype=self.torch.float64)
        # A copy of the grid for each: the 3-D cell lookup writes to its argument.
        fields = [self.transformer.calc_vectorfield(grid.clone(), row[None]) for row in rows]
        return np.stack([field.numpy()[::-1].T for field in fields])

    def fit(self, sites: Array, velocities: Array, *, exactly: bool) -> Array:
        """θ (n, d) of the fields nearest to velocities (n, m, ndim) at sites (m, ndim)."""
        unit = np.eye(self.transformer.get_theta_dim())
        responses = self.velocity(unit, sites).reshape(len(unit), -1).T
        wanted = velocities.reshape(len(velocities), -1).T
        theta = np.linalg.lstsq(responses, wanted, rcond=None)[0]
        worst = np.abs(responses @ theta - wanted).max() / np.abs(wanted).max()
        if exactly and worst > _SAME_FIELD:
            raise ValueError(
                f"libcpab can't hold these fields: they differ by {worst:.1g} of the largest "
                "velocity. Use a 2-D space with slip or zero boundary."
            )
        return np.asarray(theta.T)

    def task(self, name: str, theta: Array, points: Array, *, to_ours: Array) -> FlowTask:
        parameters = self.torch.tensor(np.asarray(theta), dtype=self.torch.float32)
        grid = self.grid(points)

        def flow() -> Any:
            with self.torch.no_grad():
                return self.transformer.transform_grid(grid, parameters)

        def flow_and_gradient() -> Any:
            variable = parameters.clone().requires_grad_(True)
            self.transformer.transform_grid(grid, variable).square().sum().backward()
            return variable.grad

        def moved() -> Array:
            return np.asarray(flow().numpy().transpose(0, 2, 1)[..., ::-1])

        def gradient() -> Array:
            return np.asarray(flow_and_gradient().numpy() @ to_ours)

        return FlowTask(name, flow, flow_and_gradient, moved, gradient)


@dataclass(frozen=True)
class OwnFieldTask:
    """libcpab in 3-D, where its cells are not ours: its nearest fields, as strong as ours.

    Parameters
    ----------
    task : FlowTask
        Its ``gradient`` is by libcpab's own θ.
    velocity : callable
        Velocities (m, ndim) of field number i at points (m, ndim), in float64.
    """

    task: FlowTask
    velocity: Callable[[int, Array], Array]


def libcpab_own_fields(
    fields: SmoothFields,
    cells: tuple[int, ...],
    displacement: float,
    points: Array,
    *,
    n_threads: int,
    name: str = "libcpab",
) -> OwnFieldTask:
    mapped = _Libcpab(cells, n_threads)
    sites = pixel_centers(_FIT_GRID[fields.ndim])
    theta = 0.1 * mapped.fit(sites, fields(sites), exactly=False)
    same = np.eye(theta.shape[1])
    coarse = pixel_centers((12,) * fields.ndim)
    for _ in range(6):  # as data.scale_to, with libcpab's own flow
        moved = mapped.task(name, theta, coarse, to_ours=same).moved()
        furthest = np.linalg.norm(moved - coarse, axis=-1).max(axis=1)
        theta *= (displacement / furthest)[:, None]
    theta = theta.astype(np.float32)
    task = mapped.task(name, theta, points, to_ours=same)
    return OwnFieldTask(task, lambda i, places: mapped.velocity(theta[i], places)[0])


def difw_flow(
    space: WarpSpace,
    theta: Array,
    points: Array,
    *,
    n_threads: int,
    name: str = "difw",
    flags: tuple[str, ...] = (),
) -> FlowTask:
    """difw's compiled closed form on the same fields as a 1-D "zero" space.

    ``flags`` are compiler flags to build its sources with, instead of its own.
    """
    torch = _import("torch")
    torch.set_num_threads(n_threads)
    transformer = difw_transformer(space.cells[0])
    _, module, published = load_difw()
    library = _build_difw(module, flags) if flags else published
    parameters, grid = difw_inputs(transformer, space, theta, points)

    def flow() -> Any:
        module.cpab_cpu = library
        with torch.no_grad():
            return transformer.transform_grid(grid, parameters, method="closed_form")

    def flow_and_gradient() -> Any:
        module.cpab_cpu = library
        variable = parameters.clone().requires_grad_(True)
        moved = transformer.transform_grid(grid, variable, method="closed_form")
        moved.square().sum().backward()
        return variable.grad

    def moved() -> Array:
        return np.asarray(flow().numpy()[..., None])

    def gradient() -> Array:
        return np.asarray(flow_and_gradient().numpy() @ _to_difw(transformer, space))

    return FlowTask(name, flow, flow_and_gradient, moved, gradient)


def _to_difw(transformer: Any, space: WarpSpace) -> Array:
    """Matrix from our θ to difw's; both bases list slope and offset, cell by cell."""
    return np.linalg.lstsq(transformer.tess.B, space.basis, rcond=None)[0]


def difw_inputs(transformer: Any, space: WarpSpace, theta: Array, points: Array) -> tuple[Any, Any]:
    """difw's θ (n, d) and points (m,) for ours."""
    torch = _import("torch")
    parameters = theta @ _to_difw(transformer, space).T
    grid = np.asarray(points)[:, 0]
    return torch.tensor(parameters, dtype=torch.float32), torch.tensor(grid, dtype=torch.float32)


def difw_transformer(n_cells: int) -> Any:
    """difw's transformer of the unit interval."""
    difw, _, _ = load_difw()
    return difw.Cpab(n_cells, backend="pytorch", device="cpu", zero_boundary=True)


@cache
def load_difw() -> tuple[Any, Any, Any]:
    """difw, the module that calls its compiled library, and the library it compiled itself.

    Cached, because tasks put other libraries in that one's place.
    """
    with _silence(), _own_programs_on_path():
        difw, module = _import("difw"), _import("difw.backend.pytorch.transformer")
    if not module._cpu_success:
        raise PeerMissing(
            "difw is left out: its C++ part did not compile, and its fallback is not measured. "
            "Install a C++ compiler and ninja."
        )
    return difw, module, module.cpab_cpu


def _build_difw(module: Any, flags: tuple[str, ...]) -> Any:
    """difw's C++ library from its own sources; torch keeps it for the next time."""
    folder = Path(str(module.__file__)).parent
    sources = [folder / "transformer.cpp", folder.parents[1] / "core" / "cpab_ops.cpp"]
    with _silence(), _own_programs_on_path():
        return _import("torch.utils.cpp_extension").load(
            name="difw_rebuilt", sources=[str(path) for path in sources], extra_cflags=list(flags)
        )


# -- images


def kornia_images(images: Array, *, n_threads: int, seed: int) -> ImageTask:
    """Batch of images (n, height, width), float32 in [0, 1]."""
    torch = _import("torch")
    torch.set_num_threads(n_threads)
    with _silence():
        augmentation = _import("kornia.augmentation").RandomElasticTransform(p=1.0)
    batch = torch.tensor(images[:, None])
    torch.manual_seed(seed)

    def warp() -> Any:
        with torch.no_grad():
            return augmentation(batch)

    return ImageTask("kornia", warp, len(images))


def albumentations_images(images: Array, *, n_threads: int, seed: int) -> ImageTask:
    """Images (n, height, width) one at a time, which is the only way it takes them; uint8."""
    os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # else importing it asks the network
    with _silence():
        transform = _import("albumentations").ElasticTransform(p=1.0)
        transform.set_random_seed(seed)
    _import("cv2").setNumThreads(n_threads)

    def warp() -> None:
        for image in images:
            transform(image=image)

    return ImageTask("albumentations", warp, len(images))


def torchvision_images(images: Array, *, n_threads: int, seed: int) -> ImageTask:
    """Images (n, height, width) one at a time, or all would get the same warp; uint8."""
    torch = _import("torch")
    torch.set_num_threads(n_threads)
    transform = _torchvision_transforms().ElasticTransform()
    singles = list(torch.tensor(images[:, None]))
    torch.manual_seed(seed)

    def warp() -> None:
        for image in singles:
            transform(image)

    return ImageTask("torchvision", warp, len(images))


def _torchvision_transforms() -> ModuleType:
    """torchvision.transforms.v2, also where torchvision's compiled operators do not fit torch.

    Importing torchvision registers shape rules for two detection operators, and fails if the
    operators themselves are missing. The transform measured here needs neither.
    """
    torch = _import("torch")
    try:
        return _import("torchvision.transforms.v2")
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(library)  # definitions vanish with the object
        for module in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[module]
        return _import("torchvision.transforms.v2")


_kept: list[Any] = []


# -- importing


def _import(name: str) -> ModuleType:
    package = name.split(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise PeerMissing(f"{package} is left out: it is not installed.") from error


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Send output and warnings nowhere, those of compilers and other child processes included."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(stream) for stream in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        with (
            open(os.devnull, "w") as sink,
            contextlib.redirect_stdout(sink),
            contextlib.redirect_stderr(sink),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for stream, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, stream)
            os.close(copy)
        os.close(nowhere)


@contextlib.contextmanager
def _own_programs_on_path() -> Iterator[None]:
    """Let ninja be found that was installed with this Python, even if its folder is not on PATH."""
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before
