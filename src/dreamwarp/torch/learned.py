"""LearnedWarp: warps of a model in the training loop, batch by batch."""

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

# What to do where images can't be counted, and where a number comes again in an epoch.
COUNTING = "Pass `numbers`, or use WarpedDataset or WarpCollate."
REPEATS = (
    "Call set_epoch(epoch) before each epoch, or leave out `numbers`: every image that comes then "
    "has a warp of its own."
)


class LearnedWarp(nn.Module):
    """Warps every image of a batch at random, as the members of its class differ.

    In training mode only; in evaluation mode images pass as they are, unless ``in_eval``. Images
    stay on their device and keep their dtype, uint8 included. Floating-point images can be
    differentiated through. Has no parameters and nothing in its ``state_dict``: keep the model in
    its own file.

    Parameters
    ----------
    model : WarpModel
    seed : int, numpy.random.Generator or None
    in_eval : bool
        Whether images are warped in evaluation mode too.
    p : float
        Probability that an image is warped; the others are left as they are, to the bit.
    strength : float, optional
        Factor on the learned warps: 2 makes them twice as large as learned. Default: 1, their
        natural scale, whatever the model recommends for a nearest neighbour;
        :func:`choose_strength` finds the best for a network of your own.
    unknown : {"error", "pool"}
        What labels of no class get, and ``labels=None``: an error, or the warps of all classes.
    classes : sequence of labels, optional
        Labels are then positions in it, as in ``dataset.classes`` of torchvision. Default: labels
        are as the model has them.
    interpolation, fill, fill_value
        As for :func:`dreamwarp.torch.warp`.

    Notes
    -----
    Where the randomness comes from, in the order of preference:

    - ``theta``: nowhere; those warps are applied, in any mode. One that was returned before gives
      the same images again, bit for bit.
    - ``numbers``: the warp of an image depends on (seed, epoch, number, label) alone. With the
      index in the data set as the number, the order, batches and devices do not matter. Call
      :meth:`set_epoch` before each epoch; a number that comes again without gets the same warp
      again, and a warning.
    - neither: images are numbered as they come, from 0 at each :meth:`set_epoch`.

    With ``generator`` its next 63 bits take the place of (seed, epoch), and images count from 0.

    In workers of a DataLoader, which know nothing of each other's count, use
    :class:`WarpedDataset` or :class:`WarpCollate`. In distributed training give every process a
    seed of its own, or numbers.

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
        """The model that warps are drawn from."""
        return self._warps.model

    @property
    def strength(self) -> float:
        """The factor on the learned warps that is in use."""
        return self._warps.strength

    def set_epoch(self, epoch: int) -> None:
        """Draw other warps from here on: those of this epoch, images counted from 0 again."""
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
        """Warped images and their labels.

        Parameters
        ----------
        images : (n, *spatial) or (n, channels, *spatial)
            Of any size: warps know of none.
        labels : (n,) tensor, array or list; or None
            Returned as they are. None: warps of all classes, with ``unknown="pool"``.
        theta : (n, d) or (d,), optional
            Warps to apply instead of random ones. Can be differentiated by.
        numbers : (n,) int, optional
            Which image of the data set each is.
        templates : (n,) int, optional
            Which samples of the fit these are, -1 for none of them, to warp each as it differs from
            its neighbours: for models of kind ``"template"``. Default: the warps of its class.
        generator : torch.Generator, optional
        return_theta : bool

        Returns
        -------
        images, labels
            And θ (n, d) if ``return_theta``: rows of images that were left alone are 0.
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
                f"there must be one label for each image, got {found} for {n} images. A single "
                "image goes in as `image[None]`, its label as `[label]`."
            )
        is_numbered = numbers is not None
        if not is_numbered:
            first = 0 if generator is not None else self._epoch.count_on(n, COUNTING)
            numbers = np.arange(first, first + n)
        rows = check_numbers(_on_cpu(numbers))
        if len(rows) != n:
            raise ValueError(f"`numbers` must be one for each of {n} images, got {len(rows)}.")
        epoch_key = self._warps.epoch_key(self._epoch.get())
        key = epoch_key if generator is None else _next_key(generator)
        theta = self._warps.draw(labels, rows, key=key, templates=_on_cpu(templates))
        if is_numbered and generator is None:
            self._epoch.warn_of_repeats(rows, REPEATS)
        return theta


def _next_key(generator: torch.Generator) -> int:
    device = generator.device
    return int(torch.randint(2**63 - 1, (), generator=generator, device=device).item())


def _on_cpu(values: Any) -> Any:
    return values.cpu().numpy() if isinstance(values, Tensor) else values
