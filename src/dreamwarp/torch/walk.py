"""The flow in tensor operations, for devices that the compiled kernels can't use.

The method is that of ``dreamwarp.space.exact``: the state of a path is its region and the weights z
of that region's nodes. Inside a region z' = M z is summed as a power series; the path leaves
through the face whose weight is the first to reach zero, and crossing renames weights. All paths
advance by one segment together, and finished ones drop out: the only Python loop is over segments.

``exact`` iterates until a crossing is found. This module takes ``APPROACHES`` steps towards it,
with parabolas that bound the weight from below and so never overshoot. A path that stops short of
the face gets another segment, so that no path delays the others.

Derivatives are propagated back along the paths as in ``exact``, which starts again from T(p):
memory does not grow with the number of segments, and crossing times need no derivative. (Moving a
crossing by dt changes the path by (v_left - v_right) dt, and v is continuous.)

In every tensor small dimensions come first and paths last, so that sums over nodes or axes run
along whole vectors. Sums are written as products and sums, not as matrix products, which a device
may round to TF32 and autocast to half precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dreamwarp.space import WarpSpace, exact
from dreamwarp.space.mesh import WEIGHT_SLACK, build_mesh

# Newton steps towards a face per segment. The first parabola has a third-order error and every
# step squares it, so three steps bring nearly all crossings to rounding error.
APPROACHES = 3


@dataclass(frozen=True)
class Precision:
    """Constants that depend on the floating-point precision.

    A segment shorter than ``stalled`` counts as no progress. After ``exact.STALLED`` of them in a
    row the path continues for time ``nudge`` in its cell, even if it overshoots.
    """

    dtype: torch.dtype
    order: int  # of the power series for |A| h <= 1: the first omitted term is near rounding error
    gauss: tuple[tuple[float, float], ...]  # nodes in [0, 1] and weights, for a product of series
    slack: float  # a weight this far below zero still counts as inside
    stalled: float
    nudge: float


def _gauss(n_nodes: int) -> tuple[tuple[float, float], ...]:
    nodes, weights = np.polynomial.legendre.leggauss(n_nodes)
    return tuple(zip((0.5 * (nodes + 1.0)).tolist(), (0.5 * weights).tolist(), strict=True))


DOUBLE = Precision(torch.float64, exact.ORDER, _gauss(8), WEIGHT_SLACK, 1e-12, 1e-10)
SINGLE = Precision(torch.float32, 9, _gauss(5), 2e-7, 1e-7, 1e-6)


class DeviceMesh(NamedTuple):
    """A tessellation as tensors: R regions, the last axis, of F = ndim + 1 nodes each.

    Face f of region r has column f R + r in ``neighbor``, the region across it, and in the arrays
    that tell how crossing renames weights; see ``mesh.Mesh`` and ``Tessellation.neighbors``.
    """

    periodic: bool
    cells: Tensor  # (ndim, 1)
    nodes: Tensor  # (ndim, n_nodes), positions or directions
    regions: Tensor  # (F, R), node numbers
    weights: Tensor  # (F, ndim + 1, R), maps from a homogeneous point to weights
    neighbor: Tensor  # (F * R,)
    position: Tensor  # (F, F * R)
    fold: Tensor  # (F, F * R)
    shift: Tensor  # (ndim, F * R)


class Paths(NamedTuple):
    """State of P unfinished paths, last in every tensor."""

    number: Tensor  # (P,), index among all paths
    field: Tensor  # (P,), index of the velocity field
    region: Tensor  # (P,)
    weights: Tensor  # (F, P)
    travelled: Tensor  # (ndim, P), turns around the torus, in domain units
    time_left: Tensor  # (P,)
    stalled: Tensor  # (P,), consecutive segments without progress
    costate: Tensor  # (ndim or 0, P), adjoint state, c' = -c A

    def where(self, kept: Tensor) -> Paths:
        """Return the paths that a mask (P,) keeps."""
        numbers = kept.nonzero()[:, 0]  # once, because this synchronizes the device
        return Paths(*(values.index_select(-1, numbers) for values in self))


@lru_cache(maxsize=32)
def device_mesh(space: WarpSpace, device: torch.device, dtype: torch.dtype) -> DeviceMesh:
    """Mesh of a space on a device; cached."""
    mesh, n_nodes = build_mesh(space.tessellation), space.ndim + 1

    def whole(values: NDArray[np.int64]) -> Tensor:
        return torch.tensor(values, device=device)

    def real(values: NDArray[np.float64]) -> Tensor:
        # Converted before copying: not every device has float64.
        return torch.tensor(values).to(dtype).to(device)

    # A tensor made in inference mode could not be used in training.
    with torch.inference_mode(False):
        return DeviceMesh(
            mesh.periodic,
            real(np.array(mesh.cells, np.float64)[:, None]),
            real(mesh.nodes[:, :-1].T),
            whole(mesh.regions.T),
            real(np.moveaxis(mesh.weights, 0, -1)),
            whole(mesh.neighbor.T.reshape(-1)),
            whole(mesh.position.transpose(2, 1, 0).reshape(n_nodes, -1)),
            real(mesh.fold.transpose(2, 1, 0).reshape(n_nodes, -1)),
            real(mesh.shift.transpose(2, 1, 0).reshape(space.ndim, -1)),
        )


def follow(
    mesh: DeviceMesh,
    precision: Precision,
    velocities: Tensor,
    field: Tensor,
    points: Tensor,
    costate: Tensor,
    gradient: Tensor,
) -> tuple[Tensor, Tensor]:
    """Follow paths for unit time; the tensor form of ``exact.follow``.

    Takes ``velocities`` (ndim, fields * n_nodes), and the rest of ``Paths`` at the start. Returns
    the ends (ndim, P) and the costate there. Unless there is no costate, ∫ c z_f dt is added to
    ``gradient`` (ndim, fields * n_nodes) for every node f.
    """
    ends, carried = torch.empty_like(points), torch.empty_like(costate)
    paths = enter(mesh, precision, field, points, costate)
    while paths.number.numel() > 0:
        paths = advance(mesh, precision, velocities, paths, gradient)
        done = paths.time_left <= 0
        finished = paths.where(done)
        ends[:, finished.number] = positions(mesh, finished)
        carried[:, finished.number] = finished.costate
        paths = paths.where(~done)
    return ends, carried


def enter(
    mesh: DeviceMesh, precision: Precision, field: Tensor, points: Tensor, costate: Tensor
) -> Paths:
    """Start paths at points; see ``mesh.enter`` and ``mesh.locate``."""
    travelled = torch.floor(points) if mesh.periodic else torch.zeros_like(points)
    local = points - travelled
    region = simplex_in_box(mesh, local)
    n_faces, n_regions = mesh.regions.shape
    weights = weights_at(mesh, region, local)
    for _ in range(0 if mesh.periodic else 8 * n_faces):
        weight, worst = weights.min(dim=0)
        across = mesh.neighbor[worst * n_regions + region]
        outside = (weight < -precision.slack) & (across >= 0)
        if not outside.any():
            break
        region = torch.where(outside, across, region)
        weights = weights_at(mesh, region, local)
    ones = torch.ones_like(points[0])
    number = torch.arange(points.shape[1], device=points.device)
    return Paths(number, field, region, weights, travelled, ones, torch.zeros_like(number), costate)


def simplex_in_box(mesh: DeviceMesh, points: Tensor) -> Tensor:
    """Index of the bounded simplex nearest each point, (P,); see ``mesh.simplex_in_box``."""
    ndim = len(points)
    scaled = points * mesh.cells
    index = torch.minimum(scaled.floor().clamp(min=0), mesh.cells - 1)
    offset = scaled - index - 0.5
    box = index[0].long()
    for k in range(1, ndim):
        box = box * mesh.cells[k].long() + index[k].long()
    if ndim == 1:
        return box
    axes = offset.abs().argsort(dim=0, descending=True, stable=True)
    ups = (offset.gather(0, axes) > 0).long()
    first = 2 * axes[0] + ups[0]
    if ndim == 2:
        return box * 4 + first
    rank = axes[1] - (axes[1] > axes[0]).long()
    return box * 24 + first * 4 + rank * 2 + ups[1]


def weights_at(mesh: DeviceMesh, region: Tensor, points: Tensor) -> Tensor:
    """Weights of a region's nodes at points (ndim, P): (F, P)."""
    maps = mesh.weights[:, :, region]
    return (maps[:, :-1] * points).sum(dim=1) + maps[:, -1]


def positions(mesh: DeviceMesh, paths: Paths) -> Tensor:
    """Positions of paths: (ndim, P)."""
    nodes = mesh.nodes[:, mesh.regions[:, paths.region]]
    return paths.travelled + (nodes * paths.weights).sum(dim=1)


def advance(
    mesh: DeviceMesh, precision: Precision, velocities: Tensor, paths: Paths, gradient: Tensor
) -> Paths:
    """Advance each path to the end of its time, cell or series, whichever comes first.

    Time within a segment is in units of ``reach``, the time for which the series converges.
    """
    n_nodes = mesh.nodes.shape[1]
    corners = paths.field * n_nodes + mesh.regions[:, paths.region]
    slopes = mesh.weights[:, :-1, paths.region]
    node_velocities = velocities[:, corners]
    matrix = (node_velocities[:, :, None] * slopes).sum(dim=1)
    rate = matrix.square().sum(dim=(0, 1)).sqrt()
    reach = torch.minimum(paths.time_left, 1.0 / rate)
    matrix = matrix * reach
    velocity = (node_velocities * paths.weights).sum(dim=1) * reach
    series = weight_series(precision, paths.weights, slopes, matrix, velocity)

    time, face, crosses = first_face(mesh, precision, series, paths.region)
    stalled = torch.where(time * reach < precision.stalled, paths.stalled + 1, 0)
    stuck = stalled > exact.STALLED
    time = torch.where(stuck, (precision.nudge / reach).clamp(max=1.0), time)
    crosses, stalled = crosses & ~stuck, torch.where(stuck, 0, stalled)

    costate = paths.costate
    if len(costate) > 0:
        powers = costate_series(precision, costate, matrix)
        shares = product_integral(precision, series, powers, time) * reach
        gradient.index_add_(1, corners.flatten(), shares.flatten(start_dim=1))
        costate = horner(powers, time)
    ahead = paths._replace(
        weights=horner(series, time),
        time_left=paths.time_left - time * reach,
        stalled=stalled,
        costate=costate,
    )
    return cross(mesh, ahead, face, crosses)


def weight_series(
    precision: Precision, weights: Tensor, slopes: Tensor, matrix: Tensor, velocity: Tensor
) -> Tensor:
    """Coefficients of z(t) = z + Σ_k ∇z · A^{k-1} v t^k / k!: (order + 1, F, P)."""
    term, terms = velocity, [velocity]
    for k in range(2, precision.order + 1):
        term = (matrix * term).sum(dim=1) / k
        terms.append(term)
    return torch.cat([weights[None], (slopes * torch.stack(terms)[:, None]).sum(dim=2)])


def costate_series(precision: Precision, costate: Tensor, matrix: Tensor) -> Tensor:
    """Coefficients of c(t), c' = -c A: (order + 1, ndim, P)."""
    terms = [costate]
    for k in range(1, precision.order + 1):
        terms.append((matrix * terms[-1][:, None]).sum(dim=0) / -k)
    return torch.stack(terms)


def horner(series: Tensor, time: Tensor) -> Tensor:
    """Σ_k series[k] time^k; ``time`` may have more leading axes than a coefficient."""
    value = series[-1].expand(torch.broadcast_shapes(series[-1].shape, time.shape))
    for coefficient in reversed(series[:-1].unbind()):
        value = value * time + coefficient
    return value


def value_and_slope(series: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_k series[k] time^k and its derivative."""
    value, slope = series[-1], torch.zeros_like(series[-1])
    for coefficient in reversed(series[:-1].unbind()):
        slope = slope * time + value
        value = value * time + coefficient
    return value, slope


def product_integral(precision: Precision, series: Tensor, powers: Tensor, time: Tensor) -> Tensor:
    """∫ c_k(t) z_f(t) dt over [0, time]: (ndim, F, P)."""
    times = torch.stack([node * time for node, _ in precision.gauss])[:, None]
    weights, costates = horner(series, times), horner(powers, times)
    total = torch.zeros_like(costates[0][:, None] * weights[0])
    for q, (_, share) in enumerate(precision.gauss):
        total += share * costates[q][:, None] * weights[q]
    return total * time


def lowest_root(value: Tensor, slope: Tensor, bend: Tensor) -> Tensor:
    """First t > 0 with value + slope t - bend t² = 0, for value >= 0; infinite if none."""
    inside = slope.square() + 4.0 * value * bend
    root = inside.clamp(min=0).sqrt()
    falling = slope < 0
    above = torch.where(falling, 2.0 * value, slope + root)
    below = torch.where(falling, root - slope, 2.0 * bend)
    exists = (bend > 0) | (falling & (inside >= 0))
    return torch.where(exists, above / below, torch.inf)


def first_face(
    mesh: DeviceMesh, precision: Precision, series: Tensor, region: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the safe time of each path, at most 1, its nearest face, and whether it is reached.

    A face is reached where its weight is at or below zero and falling. The target is ``-slack``, so
    that a path along a face does not cross it back and forth.
    """
    sizes = series.abs()
    orders = torch.arange(2, len(series), dtype=series.dtype, device=series.device)
    bend = (0.5 * orders * (orders - 1))[:, None, None] * sizes[2:]
    bend, rest = bend.sum(dim=0), sizes[3:].sum(dim=0)
    times = lowest_root(series[0].clamp(min=0) + precision.slack, series[1], rest - series[2])
    for _ in range(APPROACHES):
        times = times.clamp(max=1.0)
        value, slope = value_and_slope(series, times)
        times = times + lowest_root((value + precision.slack).clamp(min=0), slope, bend)
    n_faces, n_regions = mesh.regions.shape
    across = mesh.neighbor.view(n_faces, n_regions)[:, region]
    time, face = torch.where(across >= 0, times, torch.inf).min(dim=0)
    time = time.clamp(max=1.0)
    chosen = series.gather(1, face.expand(len(series), 1, -1))[:, 0]
    value, slope = value_and_slope(chosen, time)
    return time, face, (value <= 0) & (slope < 0)


def cross(mesh: DeviceMesh, paths: Paths, face: Tensor, crosses: Tensor) -> Paths:
    """Rename the weights of paths that cross a face; see ``exact.cross``."""
    n_faces, n_regions = mesh.regions.shape
    column = face * n_regions + paths.region
    same = torch.arange(n_faces, device=face.device)[:, None]
    kept = torch.where(same == face, 0.0, paths.weights)
    shared = kept + mesh.fold[:, column] * paths.weights.gather(0, face[None])
    weights = torch.where(crosses, shared, paths.weights)
    position = torch.where(crosses, mesh.position[:, column], same)
    return paths._replace(
        region=torch.where(crosses, mesh.neighbor[column], paths.region),
        weights=torch.zeros_like(weights).scatter(0, position, weights),
        travelled=paths.travelled + torch.where(crosses, mesh.shift[:, column], 0.0),
    )
