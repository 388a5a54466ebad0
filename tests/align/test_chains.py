"""Samplers: that their target is the posterior, with broken ones that the same tests reject."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import scipy.stats
from arviz_stats.base.array import array_stats

from dreamwarp import Warp, align_pairs
from dreamwarp.align import SmoothPrior
from dreamwarp.align.chains import (
    N_READAPT,
    ChainOptions,
    effective_size,
    sample_posterior,
    split_r_hat,
)
from dreamwarp.align.samplers import Hamiltonian, Metropolis
from dreamwarp.align.search import find_maximum
from dreamwarp.align.similarity import SquaredError
from dreamwarp.align.surrogate import Surrogate
from tests.align.problems import digits, make_posterior, smooth_images, threes
from tests.space.cases import make_space

SAMPLERS = ("metropolis", "hmc")
# Of tests whose statistic is random, though the same in every run: they fail by chance in one of
# so many, and must reject what is broken by far.
CHANCE, IMPOSSIBLE = 1e-3, 1e-6

over_samplers = pytest.mark.parametrize("method", SAMPLERS)


def flat(values, targets):
    """A likelihood that has nothing to say."""
    return np.zeros(len(values)), np.zeros(values.shape)


def chance_of_draws(theta, covariance):
    """How likely draws as odd as θ (n, d) are under N(0, covariance).

    The lower of two: for the covariance by its likelihood ratio, for the shape by Kolmogorov and
    Smirnov.
    """
    n, d = theta.shape
    white = np.linalg.solve(np.linalg.cholesky(covariance), theta.T).T
    spread = white.T @ white / n
    ratio = n * (np.trace(spread) - np.linalg.slogdet(spread)[1] - d)
    of_spread = scipy.stats.chi2(d * (d + 1) / 2).sf(ratio)
    of_shape = scipy.stats.kstest(white.ravel(), "norm").pvalue
    return min(1.0, 2.0 * of_spread, 2.0 * of_shape)


# -- a likelihood that says nothing: the prior must come back


def draw_flat(method, n, **options):
    space = make_space((2, 2), "zero")
    images = np.random.default_rng(0).random((2, n, 4, 4))
    prior = SmoothPrior(space)
    found = align_pairs(
        space, *images, method=method, prior=prior, similarity=flat, n_chains=1, n_burn_in=24,
        n_draws=4, max_draws=4, r_hat=100.0, seed=5, progress=False, **options,
    )  # fmt: skip
    return found.theta, prior


@pytest.mark.filterwarnings("ignore:.*not converged")  # a chain may stand still for four draws
@pytest.mark.parametrize("method", ["laplace", *SAMPLERS])
def test_a_flat_likelihood_gives_back_the_prior(method):
    theta, prior = draw_flat(method, 256)
    assert chance_of_draws(theta, prior.covariance) > CHANCE


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*not converged")
@pytest.mark.parametrize("method", ["laplace", *SAMPLERS])
def test_a_flat_likelihood_gives_back_the_covariance_of_the_prior(method):
    theta, prior = draw_flat(method, 5000)
    assert chance_of_draws(theta, prior.covariance) > CHANCE
    found = np.einsum("nd,ne->de", theta, theta) / len(theta)
    scale = np.sqrt(np.outer(*2 * [np.diag(prior.covariance)]))
    assert np.abs(found - prior.covariance).max() < 0.1 * scale.max()


def test_the_modes_of_a_flat_likelihood_are_the_identity():
    assert not draw_flat("map", 8)[0].any()


# -- a proposal that does not fit: acceptance alone must put it right


def run_from_prior(kind, change=None, *, n=1000, n_sweeps=40):
    """Draws of the prior, after sweeps with a surrogate that is off in place and width.

    The draws are of the sweeps' own target, so that they still are afterwards, however few the
    sweeps, if and only if the sweeps leave it as it is.
    """
    space = make_space((2, 2), "zero")
    prior = SmoothPrior(space)
    images = np.random.default_rng(0).random((2, n, 1, 3, 3))
    posterior = make_posterior(space, *images, SquaredError(1e6), prior=prior)
    x = posterior.coordinates.from_theta(prior.sample(n, seed=1))
    centers = np.tile(0.3 * x.std(axis=0), (n, 1))
    surrogate = Surrogate(centers, np.tile(0.6 * posterior.precision, (n, 1, 1)))
    chains, rng, everyone = kind(posterior, surrogate, x), np.random.default_rng(2), np.arange(n)
    rates = np.zeros(n)
    for _ in range(n_sweeps):
        uniforms = rng.random((n, chains.n_uniforms))
        if change is not None:
            uniforms = change(uniforms)
        normals = rng.normal(size=(n, chains.n_normals))
        rates += chains.sweep(everyone, normals, uniforms, 0.0) / n_sweeps
    assert 0.05 < rates.mean() < 0.999
    assert (chains.x != x).any(axis=1).mean() > 0.9
    return chance_of_draws(posterior.coordinates.to_theta(chains.x), prior.covariance)


def only_improvements(uniforms):
    """What makes a Metropolis step accept nothing that is less likely."""
    changed = uniforms.copy()
    changed[:] = np.nextafter(1.0, 0.0)
    return changed


def everything(uniforms):
    """What makes a Metropolis step accept all that it proposes."""
    return np.zeros_like(uniforms)


class WithoutRatio(Metropolis):
    """Omits Hastings' ratio."""

    def _propose(self, chosen, normals):
        trial, correction = super()._propose(chosen, normals)
        return trial, np.zeros_like(correction)


class TheWrongWayRound(Metropolis):
    """Has the sign of Hastings' ratio wrong."""

    def _propose(self, chosen, normals):
        trial, correction = super()._propose(chosen, normals)
        return trial, -correction


@pytest.mark.parametrize("kind", [Metropolis, Hamiltonian])
def test_acceptance_corrects_for_proposals_that_do_not_fit(kind):
    assert run_from_prior(kind) > CHANCE


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (Metropolis, only_improvements),
        (Metropolis, everything),
        (WithoutRatio, None),
        (TheWrongWayRound, None),
        (Hamiltonian, only_improvements),
    ],
)
def test_a_broken_acceptance_rule_is_noticed(kind, change):
    assert run_from_prior(kind, change) < IMPOSSIBLE


def test_proposals_that_fit_are_all_accepted():
    space = make_space((2, 2), "zero")
    images, prior = np.random.default_rng(0).random((2, 4, 1, 3, 3)), SmoothPrior(space)
    posterior = make_posterior(space, *images, SquaredError(1e6), prior=prior)
    x = posterior.coordinates.from_theta(prior.sample(4, 0))
    surrogate = Surrogate(np.zeros_like(x), np.tile(posterior.precision, (4, 1, 1)))
    rng = np.random.default_rng(0)
    for kind in (Metropolis, Hamiltonian):
        chains = kind(posterior, surrogate, x)
        rates = chains.sweep(
            np.arange(4), rng.normal(size=(4, chains.n_normals)),
            rng.random((4, chains.n_uniforms)), 0.0,
        )  # fmt: skip
        np.testing.assert_allclose(rates, 1.0, atol=1e-6)


# -- simulation-based calibration


def calibrate(method, *, n=128, n_draws=120, thin=12):
    """How likely ranks as odd as found are, of true θ among posterior draws.

    Where θ is drawn from the prior and the target from the likelihood, the rank of θ among draws
    of its posterior is uniform (Talts and others 2018).
    """
    space, rng = make_space((4,), "zero"), np.random.default_rng(0)
    prior, noise = SmoothPrior(space, displacement=0.05), 0.15
    theta = prior.sample(n, seed=3)
    sources = smooth_images((24,), n, seed=9)[:, 0].astype(np.float32)
    targets = Warp(space, theta).image(sources) + rng.normal(0.0, noise, sources.shape)
    found = align_pairs(
        space, sources, targets, method=method, prior=prior, sigma=noise, n_burn_in=60,
        n_draws=n_draws, max_draws=n_draws, r_hat=100.0, keep_chains=True, seed=11, progress=False,
    )  # fmt: skip
    draws = np.array(found.chains)[:, :, ::thin].reshape(n, -1, space.dim)
    ranks = (draws < theta[:, None]).sum(axis=1)
    n_bins = 7
    bins = ranks * n_bins // (draws.shape[1] + 1)
    counts = np.array([np.bincount(each, minlength=n_bins) for each in bins.T])
    sizes = np.bincount(np.arange(draws.shape[1] + 1) * n_bins // (draws.shape[1] + 1))
    expected = n * sizes / sizes.sum()
    chances = scipy.stats.chisquare(counts, expected, axis=1).pvalue
    return min(1.0, len(chances) * chances.min())


@pytest.mark.filterwarnings("ignore:.*(could not be aligned|not converged)")
@over_samplers
def test_ranks_are_uniform(method):
    assert calibrate(method) > CHANCE


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*(could not be aligned|not converged)")
@over_samplers
def test_ranks_are_uniform_for_many(method):
    assert calibrate(method, n=2000, n_draws=200, thin=20) > CHANCE


@pytest.mark.filterwarnings("ignore:.*(could not be aligned|not converged)")
@over_samplers
def test_ranks_of_a_broken_sampler_are_not(method, monkeypatch):
    kind = Metropolis if method == "metropolis" else Hamiltonian
    original = kind.sweep
    monkeypatch.setattr(
        kind,
        "sweep",
        lambda self, chosen, normals, uniforms, adaptation: original(
            self, chosen, normals, only_improvements(uniforms), adaptation
        ),
    )
    # A Hamiltonian step hardly changes the energy: that it may not rise takes longer to notice.
    assert calibrate(method, n=128 if method == "metropolis" else 1024) < IMPOSSIBLE


# -- samplers agree


def agree(pairs, n_draws):
    """Posterior means and spreads of both samplers, and effective numbers of draws for each."""
    space = make_space((2, 2), "zero")
    sources, targets = digits()[pairs[:, 0]], digits()[pairs[:, 1]]
    found = {}
    for method in SAMPLERS:
        chains = np.array(
            align_pairs(
                space, sources, targets, method=method, sigma=0.3, n_draws=n_draws,
                max_draws=n_draws, r_hat=2.0, keep_chains=True, progress=False,
            ).chains
        )  # fmt: skip
        ess = [
            array_stats.ess(np.moveaxis(chains, -1, 1), chain_axis=2, draw_axis=3, method=of)
            for of in ("mean", "sd")
        ]
        flattened = chains.reshape(len(pairs), -1, space.dim)
        found[method] = flattened.mean(axis=1), flattened.std(axis=1), *ess
    return found


PAIRS = np.array([[0, 10], [1, 11], [2, 12], [3, 13]])


@pytest.mark.filterwarnings("ignore:.*(could not be aligned|not converged)")
@pytest.mark.parametrize("n_draws", [200, pytest.param(3000, marks=pytest.mark.slow)])
def test_samplers_agree_on_real_pairs(n_draws):
    found = agree(PAIRS, n_draws)
    (one, of_one, n_one, n_of_one), (other, of_other, n_other, n_of_other) = found.values()
    z = (one - other) / np.sqrt(of_one**2 / n_one + of_other**2 / n_other)
    # Effective numbers of draws are estimates: hence the slack.
    assert np.sqrt(np.mean(z**2)) < 1.6
    assert np.abs(z).max() < 5.0
    ratio = np.log(of_one / of_other) / np.sqrt(0.5 / n_of_one + 0.5 / n_of_other)
    assert np.sqrt(np.mean(ratio**2)) < 2.0


@pytest.mark.filterwarnings("ignore:.*(could not be aligned|not converged)")
def test_laplace_is_near_the_posterior():
    space, n = make_space((2, 2), "zero"), 64
    source, target = (np.repeat(digits()[[i]], n, axis=0) for i in PAIRS[1])
    options = {"sigma": 0.3, "progress": False}
    drawn = align_pairs(space, source, target, method="laplace", **options).theta
    chains = align_pairs(
        space, source[:1], target[:1], method="hmc", n_draws=400, keep_chains=True, **options
    ).chains[0]
    flattened = chains.reshape(-1, space.dim)
    spread = flattened.std(axis=0)
    assert np.abs(drawn.mean(axis=0) - flattened.mean(axis=0)).max() < 1.5 * spread.max()
    assert np.median(drawn.std(axis=0) / spread) == pytest.approx(1.0, abs=0.4)


# -- chains


def make_chains(seed=0):
    return np.random.default_rng(seed).normal(size=(3, 50, 4)).cumsum(axis=1)


def test_r_hat_is_that_of_arviz():
    chains = make_chains()
    found = array_stats.rhat(np.moveaxis(chains, -1, 0), chain_axis=1, draw_axis=2, method="split")
    np.testing.assert_allclose(split_r_hat(chains), found, rtol=1e-6)


def test_chains_that_disagree_have_a_large_r_hat():
    mixed = np.random.default_rng(0).normal(size=(2, 200, 3))
    assert split_r_hat(mixed).max() < 1.05
    mixed[0, :, 1] += 3.0
    r_hat = split_r_hat(mixed)
    assert r_hat[1] > 1.5
    assert r_hat[[0, 2]].max() < 1.05


def test_chains_that_never_move_have_not_mixed():
    chains = np.zeros((2, 20, 3))
    assert np.isinf(split_r_hat(chains)).all()
    chains[1] = 1.0
    assert np.isinf(split_r_hat(chains)).all()


def test_too_few_draws_have_no_effective_size():
    assert np.isnan(effective_size(make_chains()[:1, :2]))


def sample_two_pairs(method, options):
    """The posterior of two pairs, and draws of it from chains that start at the identity."""
    space, images = make_space((2, 2), "zero"), smooth_images((12, 12), 4)
    posterior = make_posterior(space, images[:2], images[2:], SquaredError(0.3))
    found = sample_posterior(
        method, posterior, np.zeros((2, space.dim)), options, seed=0, numbers=np.arange(2),
        stop=threading.Event(),
    )  # fmt: skip
    return posterior, found


@over_samplers
def test_there_are_more_draws_until_chains_have_mixed(method):
    posterior, found = sample_two_pairs(method, ChainOptions(2, 32, 8, 32, 1.0001))
    assert [draws.shape for draws in found.draws] == 2 * [(2, 32, posterior.coordinates.dim)]
    assert [heights.shape for heights in found.densities] == 2 * [(2, 32)]
    np.testing.assert_array_equal(found.n_sweeps, 64)
    assert ((found.acceptance > 0.05) & (found.acceptance <= 1.0)).all()


@over_samplers
def test_chains_that_do_not_mix_begin_anew_with_a_better_surrogate(method):
    # Looked at after 4, 6, 9, 13, 19 and 28 draws, seven times the first; then 72 are left.
    posterior, found = sample_two_pairs(method, ChainOptions(2, 32, 4, 100, 0.5))
    assert [draws.shape for draws in found.draws] == 2 * [(2, 72, posterior.coordinates.dim)]
    np.testing.assert_array_equal(found.n_sweeps, 32 + 100 + N_READAPT)
    assert ((found.acceptance > 0.05) & (found.acceptance <= 1.0)).all()


def test_only_chosen_surrogates_are_fitted_anew():
    surrogate = make_surrogate(n=2, d=3).repeated(2)
    draws = np.random.default_rng(0).normal(size=(1, 50, 3)) + 9.0
    found = surrogate.refitted(np.array([2, 3]), draws)
    np.testing.assert_array_equal(found.centers[:2], surrogate.centers[:2])
    np.testing.assert_array_equal(found.matrices[:2], surrogate.matrices[:2])
    wanted = Surrogate.fitted(draws, surrogate.matrices[2:3])
    np.testing.assert_array_equal(found.centers[2:], np.repeat(wanted.centers, 2, axis=0))
    np.testing.assert_array_equal(found.factors[2:], np.repeat(wanted.factors, 2, axis=0))


@over_samplers
def test_recorded_densities_are_those_of_the_draws(method):
    posterior, found = sample_two_pairs(method, ChainOptions(1, 16, 8, 8, 9.0))
    for draw in range(8):
        x = np.stack([draws[0, draw] for draws in found.draws])
        expected = posterior.log_density(x, np.arange(2))
        recorded = [heights[0, draw] for heights in found.densities]
        np.testing.assert_allclose(recorded, expected, atol=0.02, rtol=2e-4)


@pytest.mark.filterwarnings("ignore:.*not converged")
@over_samplers
def test_chains_stay_out_of_fields_that_can_not_be_followed(method):
    space = make_space((2, 2), "zero")
    images = np.random.default_rng(0).random((2, 16, 6, 6))
    found = align_pairs(
        space, *images, method=method, prior=SmoothPrior(space, displacement=0.8),
        similarity=flat, n_burn_in=16, n_draws=8, max_draws=8, r_hat=100.0, keep_chains=True,
        progress=False,
    )  # fmt: skip
    assert np.isfinite(found.log_posteriors).all()
    assert np.isfinite(found.diagnostics["acceptance"]).all()


@over_samplers
def test_chains_stop_when_told(method):
    space, stop = make_space((2, 2), "zero"), threading.Event()
    images = smooth_images((12, 12), 4)
    posterior = make_posterior(space, images[:2], images[2:], SquaredError(0.3))
    stop.set()
    with pytest.raises(InterruptedError):
        sample_posterior(
            method, posterior, np.zeros((2, space.dim)), ChainOptions(), seed=0,
            numbers=np.arange(2), stop=stop,
        )  # fmt: skip


# -- the surrogate


def make_surrogate(n=3, d=6, seed=0):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(n, d, d + 2))
    return Surrogate(rng.normal(size=(n, d)), np.triu(roots @ np.swapaxes(roots, 1, 2)))


def test_surrogates_whiten_what_they_spread():
    surrogate, which = make_surrogate(), np.array([2, 0, 0, 1])
    normals = np.random.default_rng(1).normal(size=(4, 6))
    x = surrogate.unwhiten(normals, which)
    np.testing.assert_allclose(surrogate.whiten(x, which), normals, atol=1e-9)
    # H (x - center) = Uᵀ U U⁻¹ normals, and pull undoes the Uᵀ.
    precisions = surrogate.matrices + np.swapaxes(np.triu(surrogate.matrices, 1), 1, 2)
    slopes = np.einsum("nij,nj->ni", precisions[which], x - surrogate.centers[which])
    np.testing.assert_allclose(surrogate.pull(slopes, which), normals, atol=1e-8)


def test_draws_of_a_surrogate_have_its_covariance():
    surrogate, n = make_surrogate(1), 20_000
    normals = np.random.default_rng(1).normal(size=(n, 6))
    x = surrogate.unwhiten(normals, np.zeros(n, np.int64)) - surrogate.centers
    upper = surrogate.matrices[0]
    precision = upper + np.triu(upper, 1).T
    np.testing.assert_allclose(x.T @ x / n @ precision, np.eye(6), atol=0.1)


def test_a_fitted_surrogate_widens_where_draws_do():
    d, n_draws = 5, 4000
    draws = np.random.default_rng(0).normal(size=(1, n_draws, d))
    draws[:, :, 2] *= 3.0
    draws += 7.0
    fitted = Surrogate.fitted(draws, np.eye(d)[None])
    np.testing.assert_allclose(fitted.centers, 7.0, atol=0.3)
    spread = 1.0 / np.sqrt(np.diag(fitted.matrices[0]))
    assert spread[2] == pytest.approx(3.0, rel=0.1)
    np.testing.assert_allclose(np.delete(spread, 2), 1.0, rtol=0.1)


# -- starts far apart, and Laplace's approximation


@pytest.mark.filterwarnings("ignore:.*not converged")
def test_chains_in_different_modes_are_told_apart():
    # Stripes moved by half a period: to the left is as good as to the right.
    columns = (np.arange(20) + 0.5) / 20
    source, target = (
        np.broadcast_to(np.sin(8.0 * np.pi * (columns + shift)), (3, 20, 20))
        for shift in (0.0, 0.125)
    )
    space = make_space((2, 2), "free")
    found = align_pairs(
        space, source, target, method="hmc", sigma=1.0, n_chains=4, n_burn_in=50, max_draws=50,
        progress=False, prior=SmoothPrior(space, displacement=0.1, length=1.0),
    )  # fmt: skip
    assert (found.diagnostics["r_hat"] > 2.0).sum() >= 2
    assert found.converged.sum() <= 1


def test_laplace_spreads_about_as_far_as_the_posterior():
    space, n, sigma = make_space((2, 2), "zero"), 12, 0.45
    sources, targets = threes()[: 2 * n].reshape(2, n, 24, 24)
    prior = SmoothPrior(space, displacement=0.05)
    drawn = align_pairs(
        space, sources, targets, method="hmc", prior=prior, sigma=sigma, n_draws=200,
        progress=False,
    )  # fmt: skip
    posterior = make_posterior(
        space, sources[:, None], targets[:, None], SquaredError(sigma), prior=prior
    )
    excess = np.sqrt(np.mean((sources - targets) ** 2, axis=(1, 2))) / sigma
    modes = find_maximum([posterior], excess, max_steps=50).x

    def excess_variance(surrogate):
        """Variance of draws by that of a surrogate, the mean over pairs."""
        ratios = []
        for upper, chains in zip(np.triu(surrogate.factors), drawn.chains, strict=True):
            x = posterior.coordinates.from_theta(chains.reshape(-1, space.dim))
            ratios.append(np.cov(x.T).trace() / np.linalg.inv(upper.T @ upper).trace())
        return float(np.mean(ratios))

    assert excess_variance(Surrogate.measured(posterior, modes)) == pytest.approx(1.0, abs=0.12)
    assert excess_variance(Surrogate.at_modes(posterior, modes)) > 1.12


def test_draws_that_fit_worse_are_kept():
    space = make_space((4, 4), "zero")
    sources, targets = threes()[:80].reshape(2, 40, 24, 24)
    found = align_pairs(space, sources, targets, method="laplace", sigma=5.0, progress=False)
    assert (found.loss_after > found.loss_before).any()
    assert found.usable.all()
