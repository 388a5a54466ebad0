"""Kernels for the linear algebra of many small systems, one task each.

Sums run in an order that does not depend on how many systems there are, as a library's would.
"""

from __future__ import annotations

import numpy as np

from dreamwarp.space.compiled import kernel, lane_kernel, part


@lane_kernel
def subtract_row(factor, source, target, length):
    """target -= factor source, for the first ``length`` numbers."""
    for j in range(length):
        target[j] -= factor * source[j]


@part
def factorise(matrix):
    """Lower triangle to its Cholesky factor L, in place; False if it is not positive definite."""
    n = len(matrix)
    for k in range(n):
        # Column k stands in row k of the upper triangle, so that updates run along rows.
        if not matrix[k, k] > 0.0:
            return False
        root = np.sqrt(matrix[k, k])
        matrix[k, k] = root
        for i in range(k + 1, n):
            matrix[i, k] /= root
            matrix[k, i] = matrix[i, k]
        for i in range(k + 1, n):
            subtract_row(matrix[i, k], matrix[k, k + 1 :], matrix[i, k + 1 :], i - k)
    return True


@part
def divide_lower(factor, values):
    """values <- L⁻¹ values."""
    for i in range(len(values)):
        total = values[i]
        for j in range(i):
            total -= factor[i, j] * values[j]
        values[i] = total / factor[i, i]


@part
def divide_upper(factor, values):
    """values <- L⁻ᵀ values; row k of the upper triangle holds column k of L."""
    for i in range(len(values) - 1, -1, -1):
        total = values[i]
        for j in range(i + 1, len(values)):
            total -= factor[i, j] * values[j]
        values[i] = total / factor[i, i]


@kernel
def weigh_prior(first, last, precision, x, densities, gradients):
    """-xᵀ P x / 2 of x (n, d), and its gradient -P x."""
    for t in range(first, last):
        gradient = gradients[t]
        gradient[:] = 0.0
        for i in range(len(precision)):
            subtract_row(x[t, i], precision[i], gradient, len(precision))
        total = 0.0
        for i in range(len(precision)):
            total += x[t, i] * gradient[i]
        densities[t] = 0.5 * total


@kernel
def solve_damped(first, last, hessians, precision, damping, gradients, steps):
    """Levenberg-Marquardt steps (H + P + λ diag(H + P))⁻¹ g; NaN where that is not positive.

    Parameters
    ----------
    hessians : (n, d, d)
        Lower triangles.
    precision : (d, d)
    damping : (n,)
    gradients, steps : (n, d)
    """
    d = len(precision)
    matrix = np.empty((d, d))
    for t in range(first, last):
        for i in range(d):
            for j in range(i):
                matrix[i, j] = hessians[t, i, j] + precision[i, j]
            matrix[i, i] = (hessians[t, i, i] + precision[i, i]) * (1.0 + damping[t])
        steps[t] = gradients[t]
        if factorise(matrix):
            divide_lower(matrix, steps[t])
            divide_upper(matrix, steps[t])
        else:
            steps[t] = np.nan


@kernel
def factorise_all(first, last, matrices, good):
    """Lower triangles (n, d, d) to factors, in place, upper triangle mirrored; which could be."""
    for t in range(first, last):
        good[t] = factorise(matrices[t])


@kernel
def divide_all(first, last, factors, which, transposed, values):
    """values (k, d) <- L⁻¹ values, or L⁻ᵀ values, with the factors (n, d, d) that which (k,) says.

    Here and below, picking those out beforehand would cost more than the work itself.
    """
    for t in range(first, last):
        if transposed:
            divide_upper(factors[which[t]], values[t])
        else:
            divide_lower(factors[which[t]], values[t])


@kernel
def multiply_all(first, last, factors, which, values, products):
    """products (k, d) <- Lᵀ values; row k of the upper triangle holds column k of L."""
    for t in range(first, last):
        factor = factors[which[t]]
        for i in range(values.shape[1]):
            total = 0.0
            for j in range(i, values.shape[1]):
                total += factor[i, j] * values[t, j]
            products[t, i] = total


@kernel
def multiply_symmetric(first, last, matrices, which, rows, values, products):
    """products (k, r) <- some rows (r,) of matrices values, of which lower triangles are given."""
    d = values.shape[1]
    for t in range(first, last):
        matrix = matrices[which[t]]
        for r in range(len(rows)):
            i, total = rows[r], 0.0
            for j in range(i):
                total += matrix[i, j] * values[t, j]
            for j in range(i, d):
                total += matrix[j, i] * values[t, j]
            products[t, r] = total
