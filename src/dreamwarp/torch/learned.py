"""LearnedWarp: random warps of batches in the training loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dreamwarp.core.draws import Seed
from dreamwarp.model import WarpModel
from dreamwarp.torch.drawing import WarpOptions, check_numbers_of
from dreamwarp.torch.epochs import EpochWarps

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
    spectrum_power : float
        From 0 to 1: power of the variances of a class's warps along their components; see
        :meth:`WarpModel.flattened`. Learned warps vary mostly along two to four components, such as
        width and slant. Networks gain more from warps that vary in many ways. 1: as learned.
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
        As for :meth:`dreamwarp.Warp.image`.

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
        self._warps = EpochWarps(model, seed=seed, **options)

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
        self._warps.epoch.set(epoch)

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
            if not isinstance(theta, Tensor):
                raise TypeError(
                    f"`theta` must be a torch.Tensor, got {type(theta).__name__}. Use "
                    "torch.as_tensor."
                )
            drawn: Any = theta
        elif self.training or self.in_eval:
            drawn = self._draw(labels, images, numbers, templates, generator)
        else:
            drawn = np.zeros(self.model.space.dim)
        rows = self._warps.check_theta(drawn, images)
        warped = self._warps.apply(rows, images)
        return (warped, labels, rows) if return_theta else (warped, labels)

    def extra_repr(self) -> str:
        """What ``print`` shows between the brackets."""
        return repr(self._warps)

    def _draw(
        self,
        labels: Any,
        images: Tensor,
        numbers: Any,
        templates: Any,
        generator: torch.Generator | None,
    ) -> NDArray[np.float64]:
        warps, n = self._warps, len(images)
        if labels is not None and (np.ndim(labels) == 0 or len(labels) != n):
            found = "one label" if np.ndim(labels) == 0 else f"{len(labels)} labels"
            raise ValueError(
                f"labels must be one for each image, got {found} for {n} images. Pass a single "
                "image as `image[None]`, its label as `[label]`."
            )
        if isinstance(templates, Tensor):
            templates = templates.cpu().numpy()
        rows = np.arange(n) if numbers is None else check_numbers_of(images, numbers)
        if generator is not None:
            drawn = torch.randint(2**63 - 1, (), generator=generator, device=generator.device)
            return warps.draw(labels, rows, key=int(drawn.item()), templates=templates)
        if numbers is not None:
            return warps.draw_numbered(labels, rows, REPEATS, templates)
        rows += warps.epoch.count_on(n, COUNTING)
        return warps.draw(labels, rows, key=warps.epoch_key, templates=templates)
