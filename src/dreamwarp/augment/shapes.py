"""ShapeAugmenter: learned augmentation of point sets and meshes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.align.evidence import Array, Evidence, Frame, Integers
from dreamwarp.align.pairs import random_pairs
from dreamwarp.align.points import LEAST_SIGMA, LEFT_OUT, MATCHES, Match, measure_points
from dreamwarp.align.prior import SmoothPrior
from dreamwarp.augment.learning import Settings
from dreamwarp.augment.source import Members, check_known_classes
from dreamwarp.augment.training_pairs import MIN_PAIRS, TrainingPairs, check_pair_count
from dreamwarp.core.defaults import (
    DEFAULT_SHAPE_CELLS,
    LENGTH,
    MAX_STEPS,
    N_NEIGHBORS,
)
from dreamwarp.core.draws import Seed, as_key
from dreamwarp.core.progress import ProgressOption
from dreamwarp.core.validation import (
    check_choice,
    check_factor,
    check_integer,
    check_parameters,
)
from dreamwarp.data.meshes import file_normals, with_vertices
from dreamwarp.data.shapes import Box, Normalize, ShapeSet
from dreamwarp.model import WarpModel
from dreamwarp.model.empirical_bayes import DISPLACEMENTS, choose_displacement, learn_classes
from dreamwarp.model.fitting import ClassFit, Fitted, HyperParameters, warn_of_fallbacks
from dreamwarp.model.gaussian import Gaussian
from dreamwarp.model.strength import resolve_strength
from dreamwarp.space import Warp, WarpSpace
from dreamwarp.space.warpspace import Boundary

Flags = NDArray[np.bool_]


class ShapeAugmenter:
    """Learned augmentation of point sets and meshes.

    Random pairs within a class are aligned by warps, using landmarks or the Chamfer distance. The
    covariance of the warps of each class, from its centre to a shape, is learned by empirical
    Bayes. New shapes are fitted shapes, moved by draws from the model. Faces and attributes of
    meshes are kept; normals are transformed by the Jacobian.

    Parameters
    ----------
    cells : tuple of int, optional
        Default: (4, 4) in the plane, (2, 2, 2) in space.
    boundary : {"zero", "slip", "free", "periodic"}
        Boundary condition; see :class:`WarpSpace`.
    n_neighbors : int
        Other shapes of the same class to align each shape with, at random.
    match : {"auto", "known", "nearest"}
        How points correspond: ``"known"``, by index, or ``"nearest"``, by the Chamfer distance.
        ``"auto"``: by index in every class whose shapes have the same number of points and the same
        faces.
    displacement : float or "auto"
        Displacement of the smooth prior; see :class:`SmoothPrior`. "auto": the candidate under
        which held-out pairs are likeliest.
    sigma, length, max_points, max_steps
        See :func:`align_points` and :class:`SmoothPrior`.
    strength : float
        Factor on the learned warps.
    normalize : {"set", "each"}
        One box for all shapes, or one for each; a `ShapeSet` has boxes already.
    seed : int

    Attributes
    ----------
    model_ : WarpModel
    alignments_ : PointAlignments
    edges_ : (n_pairs, 2)
    shapes_ : ShapeSet

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    >>> squares = corners + rng.normal(scale=0.05, size=(12, 4, 2))
    >>> augmenter = ShapeAugmenter(n_neighbors=2).fit(squares, np.zeros(12, int))
    >>> len(augmenter.sample(5))
    5
    """

    def __init__(
        self,
        *,
        cells: tuple[int, ...] | None = None,
        boundary: Boundary = "free",
        n_neighbors: int = N_NEIGHBORS,
        match: Match = "auto",
        sigma: float | str = "auto",
        displacement: float | Literal["auto"] = "auto",
        length: float = LENGTH,
        max_points: int = 400,
        max_steps: int = MAX_STEPS,
        strength: float = 1.0,
        normalize: Normalize = "set",
        seed: int = 0,
        progress: ProgressOption = None,
    ) -> None:
        self.cells, self.boundary, self.n_neighbors = cells, boundary, n_neighbors
        self.match, self.sigma = match, sigma
        self.max_points, self.max_steps = max_points, max_steps
        self.displacement, self.length = displacement, length
        self.strength, self.normalize, self.seed = strength, normalize, seed
        self.progress = progress

    def fit(self, shapes: ShapeSet | Sequence[ArrayLike], y: ArrayLike | None = None) -> Any:
        """Align pairs of shapes and learn the warps of each class.

        Parameters
        ----------
        shapes : ShapeSet, or sequence of (m_k, ndim)
        y : (n,)
            Labels, unless the set has them.
        """
        if isinstance(shapes, ShapeSet):
            given = shapes
        elif y is None:
            raise ValueError(
                "`y` must have a label for each shape, got None. Give all one label if they have "
                "none."
            )
        else:
            given = ShapeSet.of(shapes, y, normalize=self.normalize)
        space = WarpSpace(self.cells or DEFAULT_SHAPE_CELLS[given.ndim], boundary=self.boundary)
        if space.ndim != given.ndim:
            raise ValueError(
                f"`cells` must have {given.ndim} numbers for shapes in {given.ndim} dimensions, "
                f"got {space.cells}."
            )
        check_parameters(space.cells, space.dim)
        strength = check_factor("strength", self.strength)
        points = given.unit_points()
        known = find_known(given, self.match)
        self.edges_ = choose_edges(given.y, self.n_neighbors)
        check_pair_count(len(self.edges_), "pairs")
        model = self._learn(space, points, given.y, known)
        self.model_ = model.with_strength(strength).with_settings(
            normalize=given.normalize,
            match=self.match,
            n_neighbors=int(self.n_neighbors),
            sigma=self.sigma if isinstance(self.sigma, str) else float(self.sigma),
            displacement="auto" if self.displacement == "auto" else float(self.displacement),
            length=float(self.length),
        )
        self.shapes_ = given
        return self

    def _learn(
        self, space: WarpSpace, points: list[Array], labels: NDArray[Any], known: Flags
    ) -> WarpModel:
        """Align ``edges_``, and learn the covariance of each class by empirical Bayes."""
        prior = Settings(displacement=self.displacement, length=self.length).smooth_prior(space)
        frame = Frame.of(prior, LEFT_OUT)
        sources, targets = self.edges_.T
        self.alignments_, evidence = measure_points(
            frame, [points[i] for i in sources], [points[j] for j in targets],
            match=match_edges(known, self.edges_), sigma=self.sigma,  # type: ignore[arg-type]
            max_points=self.max_points, max_steps=self.max_steps, progress=self.progress,
        )  # fmt: skip
        if self.alignments_.loss_before.max() < LEAST_SIGMA**2:
            raise ValueError(
                f"shapes of a class must differ, got {len(self.edges_)} pairs of equal shapes. "
                "Give shapes that vary."
            )
        classes, codes = np.unique(labels, return_inverse=True)
        pooled, displacement = self._learn_some(prior, frame, evidence, np.arange(len(sources)))
        distributions, fits = {}, {}
        for code, label in enumerate(classes.tolist()):
            own = np.flatnonzero(codes[sources] == code)
            fell_back = len(own) < MIN_PAIRS
            distributions[label], _ = (
                (pooled, None) if fell_back else self._learn_some(prior, frame, evidence, own)
            )
            fits[label] = ClassFit(len(own), 0.0, float(fell_back), fell_back)
        hyper = HyperParameters("gaussian", shrinkage=0.0, pooling=0.0, min_pairs=MIN_PAIRS)
        fitted = Fitted(distributions, pooled, fits, hyper.settings())
        warn_of_fallbacks(fitted)
        chosen = {"learned_displacement": displacement}
        if known[sources].all() or not known[sources].any():  # else there are two
            chosen["learned_sigma"] = self.alignments_.sigma
        return WarpModel(space, *fitted).with_settings(**chosen)

    def _learn_some(
        self, prior: SmoothPrior, frame: Frame, evidence: Evidence, some: Integers
    ) -> tuple[Gaussian, float]:
        """The distribution of the warps of some pairs, and the displacement of its smooth prior.

        Classes do not share a covariance, as images do: points determine warps well, so that the
        pairs of a class say more than those of others, whose warps may be much larger or smaller.
        """
        edges, evidence = self.edges_[some], evidence.only(some)
        if self.displacement == "auto":
            best = choose_displacement(evidence, edges, prior, DISPLACEMENTS)
            factor = best / prior.displacement
            prior = prior.with_displacement(best)
            frame, evidence = frame.scaled(factor, prior), evidence.scaled(factor)
        one = np.zeros(len(edges), np.int64)
        learned = learn_classes(evidence, np.eye(frame.rank), edges, one)
        pairs = TrainingPairs.of_posteriors(frame, learned, edges, one, [0])
        return pairs.fit().distribution(0), prior.displacement

    def sample(self, n: int, *, first: int = 0) -> ShapeSet:
        """Make the new shapes ``first`` to ``first + n - 1``; classes take turns."""
        if not hasattr(self, "model_"):
            raise ValueError("`sample` needs a fitted augmenter. Call `fit` first.")
        return sample_shapes(self.model_, self.shapes_, n, seed=self.seed, first=first)


def sample_shapes(
    model: WarpModel,
    shapes: ShapeSet,
    n: int,
    *,
    seed: Seed = 0,
    first: int = 0,
    strength: float | None = None,
) -> ShapeSet:
    """New shapes: shapes moved by draws from a model. Shape k depends on the seed and k alone."""
    n, first = check_integer("n", n, 1), check_integer("first", first, 0)
    classes, codes = np.unique(shapes.y, return_inverse=True)
    check_known_classes(model, shapes)
    if model.space.ndim != shapes.ndim:
        raise ValueError(
            f"`{shapes.name}` must have as many dimensions as the model, {model.space.ndim}, got "
            f"{shapes.ndim}. Use the shapes that it was fitted to."
        )
    key, numbers = as_key(seed), np.arange(first, first + n, dtype=np.int64)
    drawn = numbers % len(classes)
    templates = Members(codes).draw(key, numbers, drawn)
    theta = model.draw(classes[drawn], numbers, seed=key, templates=templates)
    theta *= resolve_strength(model, strength)
    points, meshes = [], []
    for k, which in enumerate(templates):
        warp, box = Warp(model.space, theta[k]), shapes.boxes[which]
        if shapes.meshes:
            meshes.append(warp_mesh(warp, shapes.meshes[which], box))
            points.append(np.asarray(meshes[-1].vertices, np.float64))
        else:
            points.append(box.to_world(warp.points(box.to_unit(shapes.points[which]))))
    boxes = tuple(shapes.boxes[which] for which in templates)
    return ShapeSet("samples", tuple(points), shapes.y[templates], boxes, tuple(meshes))


def warp_mesh(warp: Warp, mesh: Any, box: Box | None = None) -> Any:
    """Move the vertices of a trimesh mesh by a 3-D warp, as :meth:`Warp.points` does.

    Faces and attributes are kept; normals from the file are transformed. ``box`` is mapped to the
    unit cube; default: the bounding box of the mesh, with a margin.
    """
    vertices = np.asarray(mesh.vertices, np.float64)
    box = Box.around(vertices) if box is None else box
    unit, normals = box.to_unit(vertices), file_normals(mesh)
    moved = box.to_world(warp.points(unit))
    return with_vertices(mesh, moved, None if normals is None else warp.normals(unit, normals))


def find_known(shapes: ShapeSet, match: Match) -> Flags:
    """Whether points correspond by index within the class of each shape (n,)."""
    check_choice("match", match, MATCHES)
    known = np.full(len(shapes), match == "known")
    for label in shapes.classes:
        own = np.flatnonzero(shapes.y == label)
        sizes = sorted(len(shapes.points[k]) for k in own)
        if match == "auto":
            known[own] = shapes.correspond(own)
        elif match == "known" and sizes[0] < sizes[-1]:
            raise ValueError(
                f"class {label.item()!r} must have shapes of equal numbers of points for "
                f"match='known', got {sizes[0]} to {sizes[-1]}. Use match='auto' or 'nearest'."
            )
    return known


def find_match(model: WarpModel) -> Match:
    """How a model matched points; former versions did not store it."""
    stored: Any = model.settings.get("match")
    return stored if stored in MATCHES else "auto"


def match_edges(known: Flags, edges: Integers) -> list[Match]:
    """How the points of edges (e, 2) within classes correspond."""
    return ["known" if known[source] else "nearest" for source in edges[:, 0]]


def choose_edges(labels: NDArray[Any], n_others: int) -> Integers:
    """Random pairs (e, 2) of shapes of the same class, about ``n_others`` per shape.

    Unlike neighbours, which are alike, they vary as members of the class do.
    """
    n_pairs = check_integer("n_neighbors", n_others, 1) * len(labels)
    edges = random_pairs(np.unique(labels, return_inverse=True)[1], n_pairs)
    if not len(edges):
        raise ValueError(
            "at least one class must have two shapes to align, got none. Give more shapes, or one "
            "label to all."
        )
    return edges
