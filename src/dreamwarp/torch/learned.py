"""LearnedWarp: random warps of batches in the training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dreamwarp.core.draws import Seed, check_numbers
from dreamwarp.model import WarpModel
from dreamwarp.torch.drawing import RandomWarps, WarpOptions
from dreamwarp.torch.epochs import SharedEpoch

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Advice where images can't be counted, and where a number is repeated in an epoch.
COUNTING = "Pass `numbers`, or use WarpedDataset or WarpCollate."
REPEATS = (
    "Call set_epoch(epoch) before each epoch, or leave out `numbers`: every image then gets a new "
    "warp."
)


class LearnedWarp(nn.Module):
    """Warps every image of a batch by a random warp of its class.

    In evaluation mode images are returned unchanged, unless ``in_eval``. Images keep their device
    and dtype, including uint8; gradients flow through floating-point images. The module has no
    parameters and an empty ``state_dict``: the model has its own file.

    Parameters
    ----------
    model : WarpModel
    seed : int, numpy.random.Generator or None
    in_eval : bool
        Whether to warp in evaluation mode too.
    p : float
        Probability that an image is warped; the others are returned unchanged, bit for bit.
    strength : float, optional
        Factor on the learned warps: 2 makes them twice as large. Default:
        ``model.network_strength``, not ``model.strength``, which was chosen for a
        nearest-neighbour classifier. :func:`choose_strength` finds the best one for your network.
    unknown : {"error", "pool"}
        For unknown labels and ``labels=None``: raise an error, or use the warps of all classes
        pooled.
    classes : sequence of labels, optional
        If given, labels are indices into it, as with ``dataset.classes`` of torchvision. Default:
        labels are those of the model.
    interpolation : {"auto", "linear", "nearest", "cubic"}
        ``"auto"``: cubic for signals and images, linear for volumes. Linear interpolation blurs,
        which costs networks accuracy on sharp samples. Cubic values are clipped to the range of
        their sample.
    fill, fill_value
        As for :func:`dreamwarp.torch.warp`.

    Notes
    -----
    What determines a warp:

    - ``theta``, if given: these warps are applied, in any mode. A returned ``theta`` gives the same
      images again, bit for bit.
    - ``numbers``, if given: the warp of an image depends only on (seed, epoch, number, label). With
      data set indices as numbers, order, batches and devices do not matter. Call :meth:`set_epoch`
      before each epoch; a number repeated within an epoch gets the same warp, and a warning.
    - Otherwise images are numbered in order of arrival, from 0 after each :meth:`set_epoch`.

    With ``generator``, its next 63 bits replace (seed, epoch), and images count from 0.

    In DataLoader workers, which have no common counter, use :class:`WarpedDataset` or
    :class:`WarpCollate`. In distributed training, give each process its own seed, or numbers.

    Examples
    --------
    >>> space = WarpSpace((4, 4))
    >>> theta = np.random.default_rng(0).normal(scale=0.1, size=(200, space.dim))
    >>> warp = LearnedWarp(WarpModel.fit(space, {0: theta, 1: 0.5 * theta}), p=0.9)
    >>> images, labels = torch.rand(8, 1, 28, 28), torch.tensor([0, 1] * 4)
    >>> images, labels = warp(images, labels)
    >>> images, labels, theta = warp(images, labels, return_theta=True)
    """

    def __init__(
        self,
        model: WarpModel,
        *,
        seed: Seed = 0,
        in_eval: bool = False,
        **options: Unpack[WarpOptions],
    ) -> None:
        super().__init__()
        self.in_eval = in_eval
        self._warps = RandomWarps(model, seed=seed, **options)
        self._epoch = SharedEpoch(0)

    @property
    def model(self) -> WarpModel:
        """Distribution of the warps."""
        return self._warps.model

    @property
    def strength(self) -> float:
        """Factor on the learned warps."""
        return self._warps.strength

    def set_epoch(self, epoch: int) -> None:
        """Draw the warps of this epoch from now on, and count images from 0 again."""
        self._epoch.set(epoch)

    def forward(
        self,
        images: Tensor,
        labels: Any = None,
        *,
        theta: Tensor | None = None,
        numbers: Any = None,
        templates: Any = None,
        generator: torch.Generator | None = None,
        return_theta: bool = False,
    ) -> tuple[Tensor, Any] | tuple[Tensor, Any, Tensor]:
        """Warp images; return them and their labels.

        Parameters
        ----------
        images : (n, *spatial) or (n, channels, *spatial)
            Of any size.
        labels : (n,) tensor, array or list; or None
            Returned unchanged. None needs ``unknown="pool"``.
        theta : (n, d) or (d,), optional
            Warps to apply instead of random ones. Differentiable.
        numbers : (n,) int, optional
            Index of each image in the data set.
        templates : (n,) int, optional
            For models of kind ``"template"``: index of each image among the samples of the fit, -1
            for others. Default: the warps of its class.
        generator : torch.Generator, optional
        return_theta : bool

        Returns
        -------
        images, labels
            And θ (n, d) if ``return_theta``; rows of unwarped images are 0.
        """
        self._warps.check_images(images)
        if theta is not None:
            rows = self._warps.check_theta(theta, images)
        elif self.training or self.in_eval:
            drawn = self._draw(labels, len(images), numbers, templates, generator)
            rows = self._warps.check_theta(torch.from_numpy(drawn), images)
        else:
            rows = self._warps.check_theta(torch.zeros(self.model.space.dim), images)
        warped = self._warps.apply(rows, images)
        return (warped, labels, rows) if return_theta else (warped, labels)

    def extra_repr(self) -> str:
        """What ``print`` shows between the brackets."""
        return repr(self._warps)

    def _draw(
        self,
        labels: Any,
        n: int,
        numbers: Any,
        templates: Any,
        generator: torch.Generator | None,
    ) -> NDArray[np.float64]:
        if labels is not None and (np.ndim(labels) == 0 or len(labels) != n):
            found = "one label" if np.ndim(labels) == 0 else f"{len(labels)} labels"
            raise ValueError(
                f"labels must be one for each image, got {found} for {n} images. Pass a single "
                "image as `image[None]`, its label as `[label]`."
            )
        is_numbered = numbers is not None
        if not is_numbered:
            first = 0 if generator is not None else self._epoch.count_on(n, COUNTING)
            numbers = np.arange(first, first + n)
        rows = check_numbers(_on_cpu(numbers))
        if len(rows) != n:
            raise ValueError(
                f"`numbers` must have one entry for each of {n} images, got {len(rows)}."
            )
        if generator is None:
            key = self._warps.epoch_key(self._epoch.get())
        else:
            key = _next_key(generator)
        theta = self._warps.draw(labels, rows, key=key, templates=_on_cpu(templates))
        if is_numbered and generator is None:
            self._epoch.warn_of_repeats(rows, REPEATS)
        return theta


def _next_key(generator: torch.Generator) -> int:
    device = generator.device
    return int(torch.randint(2**63 - 1, (), generator=generator, device=device).item())


def _on_cpu(values: Any) -> Any:
    return values.cpu().numpy() if isinstance(values, Tensor) else values
