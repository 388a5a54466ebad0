"""Study: the data of a model, aligned again, for figures and reports.

A model file holds distributions, not the pairs they were learned from. To draw pairs, a study
aligns the data again with the settings in the file, on a balanced subset if there are many samples.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import Alignments, align_pairs
from dreamwarp.align.images import shrink_images
from dreamwarp.align.prior import Prior
from dreamwarp.augment.learning import Learner, Settings
from dreamwarp.augment.precompile import ensure_compiled
from dreamwarp.augment.verdict import Judgement, not_judged
from dreamwarp.core.progress import ProgressOption
from dreamwarp.core.samples import choose_balanced
from dreamwarp.core.validation import check_integer
from dreamwarp.model import WarpModel
from dreamwarp.report.subject import Data, Subject

if TYPE_CHECKING:
    from dreamwarp.augment.augmenter import Augmenter

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Default number of samples: half a minute for 28 x 28 images.
MAX_SAMPLES = 1000
# Largest number of pairs of volumes to align, and voxels per axis that they are averaged down to: a
# second of processor time per pair.
MAX_VOLUME_PAIRS, MAX_VOLUME_SIDE = 48, 24


@dataclass(frozen=True, eq=False)
class Study:
    """Samples, pairs of them, and the alignments of these pairs.

    Attributes
    ----------
    subject : Subject
        The model and the samples used.
    learner : Learner
        Aligns pairs of these samples.
    edges : (e, 2)
    alignments : Alignments
    prior : Prior
        The one that the pairs were aligned under.
    whole : Subject
        The model and all samples of the data.
    numbers : (n,)
        Indices in the data of the samples used.
    """

    subject: Subject
    learner: Learner
    edges: Integers
    alignments: Alignments
    prior: Prior
    whole: Subject
    numbers: Integers

    @property
    def model(self) -> WarpModel:
        """The model."""
        return self.subject.model

    @property
    def n_all(self) -> int:
        """Number of samples in the data."""
        return len(self.whole.X)

    @property
    def judgement(self) -> Judgement:
        """Errors by strength, and the verdict, stored when the model was fitted."""
        return judgement_of(self.model)

    @property
    def left_over(self) -> Array:
        """``Alignments.left_over`` of the pairs (e,)."""
        return self.alignments.left_over

    @cached_property
    def pair_codes(self) -> Integers:
        """Class of each pair (e,)."""
        return self.subject.codes[self.edges[:, 0]]

    @cached_property
    def sizes(self) -> Array:
        """Mahalanobis length of each pair's warp under its class's model, over √d: (e,).

        About 1 for warps drawn from the model.
        """
        out = np.empty(len(self.edges))
        for code in np.unique(self.pair_codes):
            some = self.pair_codes == code
            values, vectors = np.linalg.eigh(self.model.covariance(self.subject.labels[code]))
            floor = max(values[-1] * 1e-10, np.finfo(float).tiny)
            scaled = (self.alignments.theta[some] @ vectors) / np.sqrt(np.maximum(values, floor))
            out[some] = np.sqrt((scaled**2).mean(axis=1))
        return out

    def sample_chains(self, pairs: Integers) -> Alignments:
        """Posterior chains of some pairs, by the sampler of the model or, if it has none, by HMC.

        Samples are reduced as they were when the noise was estimated.
        """
        images, settings = self.learner.simple_images, self.learner.settings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the figure shows R-hat
            return align_pairs(
                self.model.space, images, images, edges=self.edges[pairs],
                method="metropolis" if Settings.of(self.model).method == "metropolis" else "hmc",
                prior=self.prior, similarity=self.alignments.similarity,
                seed=self.learner.seed, keep_chains=True, max_draws=settings.max_draws,
                progress=self.learner.progress,
            )  # fmt: skip


def make_study(
    model: WarpModel,
    data: Data,
    *,
    max_samples: int = MAX_SAMPLES,
    seed: int = 0,
    progress: ProgressOption = None,
) -> Study:
    """Align neighbours in the data again, with the settings stored in the model.

    At most ``MAX_VOLUME_PAIRS`` pairs of volumes are aligned, after averaging the volumes down to
    ``MAX_VOLUME_SIDE`` voxels per axis.

    Parameters
    ----------
    model : WarpModel
    data : DataSet, or pair (X, y)
        The data the model was fitted to.
    max_samples : int
        Largest number of samples to use, balanced over classes.
    seed : int
        Seed of posterior draws.
    progress : bool or callable, optional

    Returns
    -------
    Study
        If the model was learned with a sampler, MAP estimates take the place of draws.
    """
    whole = Subject.of(model, data)
    some = choose_balanced(whole.codes, check_integer("max_samples", max_samples, 2))
    given_data = whole.source.data
    chosen = replace(given_data, X=whole.X[some], y=given_data.y[some], test=None)
    subject = Subject.of(model, chosen)
    settings, images = Settings.of(model), subject.X
    if settings.method != "eb":
        settings = replace(settings, method="map")
    if model.space.ndim == 3:
        most = min(MAX_VOLUME_PAIRS, settings.max_pairs or MAX_VOLUME_PAIRS)
        settings = replace(settings, max_pairs=most)
        images = shrink_images(images, 3, MAX_VOLUME_SIDE)
    ensure_compiled(model.space)
    learner = Learner(model.space, images, subject.codes, subject.labels, settings, seed, progress)
    with warnings.catch_warnings():
        # The study shows what these warnings would say.
        warnings.simplefilter("ignore", RuntimeWarning)
        edges, alignments = learner.align_neighbors()
    return Study(subject, learner, edges, alignments, learner.smooth_prior, whole, some)


def study_of(augmenter: Augmenter) -> Study:
    """Make a study from a fitted augmenter, without aligning again."""
    subject, model = Subject(augmenter.source_), augmenter.model_
    learner = Learner(
        model.space, subject.X, subject.codes, subject.labels, Settings.of(model),
        augmenter.source_.key, augmenter.progress,
    )  # fmt: skip
    prior = augmenter.pairs_.prior
    return Study(
        subject, learner, augmenter.edges_, augmenter.alignments_,
        learner.smooth_prior if prior is None else prior, subject, np.arange(len(subject.X)),
    )  # fmt: skip


def judgement_of(model: WarpModel) -> Judgement:
    """Errors by strength, and the verdict, that were stored when a model was fitted."""
    return Judgement.from_text(model.settings.get("judgement")) or not_judged(model.strength)
