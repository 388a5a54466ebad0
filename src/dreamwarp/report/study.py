"""Study: the samples of a model, aligned again and judged, for pictures of how well that goes.

A model file keeps distributions, not the pairs they came from. So that a picture of the pairs
needs nothing but the model and its data, they are aligned anew, with the settings in the file. Of
many samples some are taken, as many of every class.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import Alignments, align_pairs
from dreamwarp.align.evidence import spread_evenly
from dreamwarp.augment.learning import Settings, TrainingPairs, learn_model
from dreamwarp.augment.precompile import ensure_compiled
from dreamwarp.augment.strength import judge_strengths
from dreamwarp.augment.subject import Data, Subject
from dreamwarp.augment.verdict import Judgement
from dreamwarp.core.progress import ProgressOption
from dreamwarp.core.validation import check_whole
from dreamwarp.data.dataset import DataSet
from dreamwarp.model import WarpModel

if TYPE_CHECKING:
    from dreamwarp.augment.augmenter import Augmenter

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Samples that are aligned unless told otherwise: half a minute for images of 28 x 28.
MAX_SAMPLES = 1000
# What a model is taken to be learned with that does not say.
DEFAULTS: dict[str, Any] = {
    "n_neighbors": 5, "method": "map", "similarity": "ssd", "sigma": "auto",
    "displacement": 0.05, "length": 0.25, "keep_unusable": False, "discount_poor": False,
    "max_steps": 50, "max_draws": 1600,
}  # fmt: skip
SAMPLERS = ("metropolis", "hmc")
SIMILARITIES = ("ssd", "ncc", "mi")


@dataclass(frozen=True, eq=False)
class Study:
    """Samples, the pairs of neighbours among them, and what came of aligning these.

    Attributes
    ----------
    subject : Subject
        The model, and the samples looked at.
    edges : (e, 2)
    alignments : Alignments
    pairs : TrainingPairs
    settings : Settings
        They were aligned by.
    counts : (n_classes,)
        Samples of each class that the data has.
    numbers : (n,)
        Of the samples looked at, in the data.
    seed : int
    """

    subject: Subject
    edges: Integers
    alignments: Alignments
    pairs: TrainingPairs
    settings: Settings
    counts: Integers
    numbers: Integers
    seed: int = 0
    progress: ProgressOption = None
    known: Judgement | None = field(default=None, repr=False)

    @property
    def model(self) -> WarpModel:
        """The model."""
        return self.subject.model

    @property
    def n_all(self) -> int:
        """Samples that the data has."""
        return int(self.counts.sum())

    @cached_property
    def judgement(self) -> Judgement:
        """Errors by strength, and the verdict; takes a while when first asked for."""
        if self.known is not None:
            return self.known
        return judge_strengths(
            self.pairs, self.subject.X, self.subject.codes, seed=self.seed,
            progress=self.progress,
        )  # fmt: skip

    @cached_property
    def left_over(self) -> Array:
        """Share of each pair's squared difference that its warp leaves (e,); NaN without any.

        Of other similarities than squared differences, what is left of the best of all pairs.
        """
        before, after = self.alignments.loss_before, self.alignments.loss_after
        if self.alignments.sigma is None:
            gain = before - after
            return 1.0 - gain / max(float(np.nanmax(gain, initial=0.0)), np.finfo(float).tiny)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(before > 0, after / before, np.nan)

    @cached_property
    def sizes(self) -> Array:
        """Size of each pair's warp (e,): its length in standard deviations of its class, over √d.

        About 1 for warps as the model has them.
        """
        out = np.empty(len(self.edges))
        classes = self.subject.codes[self.edges[:, 0]]
        for code, label in enumerate(self.subject.labels):
            some = classes == code
            if some.any():
                out[some] = _lengths(self.model.covariance(label), self.alignments.theta[some])
        return out


def _lengths(covariance: Array, theta: Array) -> Array:
    values, vectors = np.linalg.eigh(covariance)
    floor = max(values[-1] * 1e-10, np.finfo(float).tiny)
    scaled = (theta @ vectors) / np.sqrt(np.maximum(values, floor))
    return np.sqrt((scaled**2).mean(axis=1))


def make_study(
    model: WarpModel,
    data: Data,
    *,
    max_samples: int = MAX_SAMPLES,
    seed: int = 0,
    progress: ProgressOption = None,
) -> Study:
    """Align neighbours among the data's samples, as they were for the model.

    Parameters
    ----------
    model : WarpModel
    data : DataSet, or pair (X, y)
        What it was fitted to.
    max_samples : int
        Of more samples so many are taken, as many of every class.
    seed : int
        Of what is random in judging strengths.
    progress : bool or callable, optional

    Returns
    -------
    Study
        Warps that were drawn by a sampler are replaced by the most plausible ones.
    """
    whole = Subject.of(model, data, seed=seed)
    some = spread_evenly(whole.codes, check_whole("max_samples", max_samples, 2))
    chosen = DataSet(whole.source.data.name, whole.X[some], whole.source.data.y[some])
    with warnings.catch_warnings():
        if len(some) < len(whole.X):  # whose samples have other numbers: nothing to warn of
            warnings.simplefilter("ignore", RuntimeWarning)
        subject = Subject.of(model, chosen, seed=seed)
    settings = settings_of(model)
    ensure_compiled(model.space)
    with warnings.catch_warnings():
        # What they say is in the study.
        warnings.simplefilter("ignore", RuntimeWarning)
        edges, alignments, _, pairs = learn_model(
            model.space, subject.X, subject.codes, subject.labels, settings, seed=seed,
            progress=progress, n_threads=None, client=None,
        )  # fmt: skip
    counts = np.bincount(whole.codes)
    return Study(
        subject, edges, alignments, pairs, settings, counts, some, seed, progress
    )  # fmt: skip


def study_of(augmenter: Augmenter) -> Study:
    """What a fitted augmenter knows of its samples: nothing is aligned again."""
    subject = Subject.around(augmenter._source)
    judgement = None
    if augmenter.strength_errors_:
        judgement = Judgement(
            augmenter.strength_, dict(augmenter.strength_errors_), augmenter.verdict_
        )
    return Study(
        subject, augmenter.edges_, augmenter.alignments_, augmenter._pairs,
        settings_of(augmenter.model_), np.bincount(subject.codes), np.arange(len(subject.X)),
        augmenter._key, augmenter.progress, judgement,
    )  # fmt: skip


def settings_of(model: WarpModel) -> Settings:
    """How pairs of a model's samples are aligned: as for the model, or by default.

    Samplers give way to the posterior's mode, and functions of a user's own to squared differences.
    """
    said = {name: model.settings.get(name, value) for name, value in DEFAULTS.items()}
    if said["method"] in SAMPLERS:
        said["method"] = "map"
    if said["similarity"] not in SIMILARITIES:
        said["similarity"], said["discount_poor"] = "ssd", False
    for name in ("keep_unusable", "discount_poor"):
        said[name] = bool(said[name])
    return Settings(model=model.kind, **said)


def sample_chains(
    study: Study, indices: Integers, method: Literal["metropolis", "hmc"]
) -> Alignments:
    """Posterior chains of some pairs of a study."""
    model, X = study.model, study.subject.X
    chosen = study.edges[indices]
    settings = study.settings
    prior = settings.prior(model.space)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # R-hat is in the picture
        return align_pairs(
            model.space, X[chosen[:, 0]], X[chosen[:, 1]], method=method, prior=prior,
            similarity=study.alignments.similarity, seed=study.seed, keep_chains=True,
            max_draws=settings.max_draws, progress=study.progress,
        )  # fmt: skip
