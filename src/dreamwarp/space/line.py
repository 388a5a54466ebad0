"""The flow on a line in closed form, float64.

In a region with node velocities v_0, v_1 the velocity along a path grows as v' = a v, a = Σ_f ∇z_f
v_f, so with E(y) = (e^y - 1) / y

    v(t) = v e^{at},    z_f(t) = z_f + ∇z_f v t E(at),

and node f's weight vanishes at t = s log(1 + as) / (as), where s = -z_f / (∇z_f v) is the time it
would take at constant speed. Both forms stay exact as a goes to 0. The path is then at the other
node, whose weight is 1.
"""

from __future__ import annotations

import numpy as np

from dreamwarp.core.compiled import part
from dreamwarp.space.mesh import enter


@part
def mean_growth(y):
    """(e^y - 1) / y."""
    return np.expm1(y) / y if y != 0.0 else 1.0


@part
def second_growth(y):
    """(e^y - 1 - y) / y²; by its series near 0, to avoid cancellation."""
    if abs(y) > 0.5:
        return (np.expm1(y) - y) / (y * y)
    total = 0.0
    for k in range(15, 1, -1):
        total = (total * y + 1.0) / k
    return total


@part
def crossing_time(weight, slope, growth):
    """Time at which a weight with ``slope`` < 0 vanishes; infinity if it never does."""
    s = -weight / slope
    if growth * s <= -1.0:
        return np.inf
    return s * np.log1p(growth * s) / (growth * s) if growth * s != 0.0 else s


@part
def follow_on_line(mesh, velocities, point, scratch, costate, gradient, end):
    """Follow the path from ``point`` in 1-D; see ``exact.follow``."""
    local, travelled, weights = scratch[0], scratch[1], scratch[2]
    region = enter(mesh, point, local, weights, travelled)
    time_left = 1.0
    while True:
        a, b = mesh.regions[region, 0], mesh.regions[region, 1]
        rise = mesh.weights[region, 0, 0] * velocities[a, 0]
        growth = rise + mesh.weights[region, 1, 0] * velocities[b, 0]
        speed = weights[0] * velocities[a, 0] + weights[1] * velocities[b, 0]
        face = 0 if mesh.weights[region, 0, 0] * speed < 0.0 else 1
        slope = mesh.weights[region, face, 0] * speed
        length = time_left
        if slope < 0.0 and mesh.neighbor[region, face] >= 0:
            length = min(time_left, crossing_time(weights[face], slope, growth))
        for r in range(len(costate)):
            y = -growth * length
            for f in range(2 if gradient.size > 0 else 0):
                shift = mesh.weights[region, f, 0] * speed * length
                share = weights[f] * mean_growth(y) + shift * second_growth(y)
                gradient[r, mesh.regions[region, f], 0] += costate[r, 0] * length * share
            costate[r, 0] *= np.exp(y)
        if length == time_left:
            for f in range(2):
                moved = speed * length * mean_growth(growth * length)
                weights[f] += mesh.weights[region, f, 0] * moved
            break
        time_left -= length
        weights[mesh.position[region, face, face]] = 0.0
        weights[mesh.position[region, face, 1 - face]] = 1.0
        travelled[0] += mesh.shift[region, face, 0]
        region = mesh.neighbor[region, face]
    end[0] = travelled[0]
    for f in range(2):
        end[0] += weights[f] * mesh.nodes[mesh.regions[region, f], 0]
