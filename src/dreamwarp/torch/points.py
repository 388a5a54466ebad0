"""Points moved by warps, for autograd."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dreamwarp.core.validation import check_choice
from dreamwarp.space import WarpSpace
from dreamwarp.space.warpspace import Method, check_tolerance
from dreamwarp.torch import engines
from dreamwarp.torch.engines import Once


def flow(
    space: WarpSpace,
    theta: Tensor,
    points: Tensor,
    *,
    method: Method | None = None,
    tolerance: float = 1e-4,
) -> Tensor:
    """T^θ at points, differentiable by θ and by the points.

    Tensors on the CPU go to the compiled kernels, on as many threads as torch may use. On any other
    device the same paths are followed in tensor operations, with the same results; only what
    belongs to θ, never the points, then visits the CPU. Either way the derivative is analytic, one
    pass back along the paths, and its memory does not grow with the number of cells crossed. It
    can be taken once: there are no second derivatives. ``torch.func`` and ``torch.compile`` can't
    look inside; keep the call out of what they transform (``torch.compiler.disable``).

    Parameters
    ----------
    space : WarpSpace
    theta : (n, d) or (d,)
    points : (m, ndim) or (n, m, ndim)
        On the device of ``theta``. One set of points is moved by every θ; one θ moves every set.
    method : {"fast", "exact"}, optional
        As for :meth:`WarpSpace.flow`: float32 within ``tolerance``, or float64 to rounding.
        Default: ``"exact"`` if either tensor is float64, else ``"fast"``.
    tolerance : float
        Largest error of ``"fast"``, as a distance in the unit domain.

    Returns
    -------
    (n, m, ndim), or (m, ndim) for a single θ
        float64 if either tensor is float64, else float32, whatever the method: integers and half
        precision are promoted.
    """
    check_tensors(theta=theta, points=points)
    dtype = working_dtype(theta, points)
    call = Call(space, *check_method(method, tolerance, dtype))
    parameters, positions = _check_batch(space, theta.to(dtype), points.to(dtype))
    moved: Tensor = _Flow.apply(parameters, positions, call)
    return moved[0] if theta.ndim == 1 and points.ndim == 2 else moved


class Call(NamedTuple):
    """Options of a flow."""

    space: WarpSpace
    method: Method
    tolerance: float


class _Flow(torch.autograd.Function):
    """θ (n or 1, d) and points (n or 1, m, ndim) to moved points (n, m, ndim)."""

    @staticmethod
    def forward(ctx: Any, theta: Tensor, points: Tensor, call: Call) -> Tensor:
        n = len(points) if len(theta) == 1 else len(theta)
        engine = engines.choose_engine(points.device)
        moved = engine.flow(call.space, theta.expand(n, -1), points, call.method, call.tolerance)
        ctx.save_for_backward(theta, points, moved)
        ctx.call = call
        return moved

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor, None]:
        by_theta, by_points = Once.apply(_pull_back, *ctx.saved_tensors, cotangent, ctx.call)
        return by_theta, by_points, None


def _pull_back(
    theta: Tensor, points: Tensor, moved: Tensor, cotangent: Tensor, call: Call
) -> tuple[Tensor, Tensor]:
    """Gradients of Σ cotangent · moved, in the shapes of ``theta`` and ``points``."""
    by_theta, by_points = engines.choose_engine(points.device).flow_vjp(
        call.space, theta.expand(len(moved), -1), points, moved,
        cotangent.nan_to_num(0.0, 0.0, 0.0), call.method, call.tolerance,
    )  # fmt: skip
    if not cotangent.isfinite().all():
        # NaN must not stop the backward pass but propagate: code that scales losses for mixed
        # precision looks for it in the gradients.
        lost = ~cotangent.isfinite().all(dim=-1)
        by_theta[lost.any(dim=1)] = torch.nan
        by_points[lost] = torch.nan
    return by_theta.sum_to_size(theta.shape), by_points.sum_to_size(points.shape)


def check_tensors(**named: Tensor) -> None:
    """Raise unless all are real tensors on the device of the first."""
    first = next(iter(named))
    for name, values in named.items():
        if not isinstance(values, Tensor):
            raise TypeError(
                f"`{name}` must be a torch.Tensor, got {type(values).__name__}. "
                "Use torch.as_tensor, or WarpSpace and Warp for arrays."
            )
        if values.is_complex():
            raise TypeError(f"`{name}` must be real, got dtype {values.dtype}.")
        if values.device != named[first].device:
            raise ValueError(
                f"`{first}` and `{name}` must be on one device, got {named[first].device} and "
                f"{values.device}. Move one with .to(device)."
            )


def working_dtype(*values: Tensor) -> torch.dtype:
    """float64 if any tensor is, else float32."""
    return torch.float64 if any(v.dtype == torch.float64 for v in values) else torch.float32


def check_method(
    method: Method | None, tolerance: float, dtype: torch.dtype
) -> tuple[Method, float]:
    """``method``, or the one that suits a dtype, and ``tolerance``."""
    if method is None:
        method = "exact" if dtype == torch.float64 else "fast"
    check_choice("method", method, ("fast", "exact"))
    return method, check_tolerance(method, tolerance)


def _check_batch(space: WarpSpace, theta: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    """θ (n or 1, d) and points (n or 1, m, ndim)."""
    parameters = check_theta(space, theta)
    if points.ndim not in (2, 3) or points.shape[-1] != space.ndim:
        raise ValueError(
            f"`points` must have shape (m, {space.ndim}) or (n, m, {space.ndim}) for {space!r}, "
            f"got {tuple(points.shape)}."
        )
    positions = points if points.ndim == 3 else points[None]
    if 1 not in (len(parameters), len(positions)) and len(parameters) != len(positions):
        raise ValueError(
            f"`theta` and `points` must agree in their first axis: got {len(parameters)} θ and "
            f"{len(positions)} sets of points. Give one set of points (m, {space.ndim}) to move it "
            "by every θ."
        )
    return parameters, positions


def check_theta(space: WarpSpace, theta: Tensor) -> Tensor:
    """θ as (n, d)."""
    if theta.ndim not in (1, 2) or theta.shape[-1] != space.dim:
        raise ValueError(
            f"`theta` must have shape (n, {space.dim}) for {space!r}, got {tuple(theta.shape)}. "
            "Use the space the parameters were made for."
        )
    return theta if theta.ndim == 2 else theta[None]
