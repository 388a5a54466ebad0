"""Kernels for the linear algebra of many small systems; one task is a system.

Unlike in libraries, the order of summation does not depend on the number of systems.
"""

from __future__ import annotations

import numpy as np

from dreamwarp.core.compiled import kernel, lane_kernel, part
from dreamwarp.core.lanes import read, write


@lane_kernel
def scale_row(factor, matrix, row, length):
    """Scale ``length`` entries of a flat matrix, from ``row`` on."""
    for j in range(length):
        write(matrix, 0, row + j, factor * read(matrix, 0, row + j))


@lane_kernel
def add_rows(one, factor, other, row, length, total):
    """``one + factor * other`` for ``length`` entries of flat matrices, from ``row`` on."""
    for j in range(length):
        write(total, 0, row + j, read(one, 0, row + j) + factor * read(other, 0, row + j))


@lane_kernel
def subtract_row(factor, matrix, source, target, length):
    """matrix[target + j] -= factor matrix[source + j], the matrix flat."""
    for j in range(length):
        less = factor * read(matrix, 0, source + j)
        write(matrix, 0, target + j, read(matrix, 0, target + j) - less)


@lane_kernel
def subtract_rows(a, b, matrix, source, stride, target, length):
    """Subtract a times four rows from one row, and b times them from the next."""
    for j in range(length):
        x = read(matrix, 0, source + j)
        y = read(matrix, 0, source + stride + j)
        z = read(matrix, 0, source + 2 * stride + j)
        w = read(matrix, 0, source + 3 * stride + j)
        less = a[0] * x + a[1] * y + a[2] * z + a[3] * w
        write(matrix, 0, target + j, read(matrix, 0, target + j) - less)
        less = b[0] * x + b[1] * y + b[2] * z + b[3] * w
        next_row = target + stride + j
        write(matrix, 0, next_row, read(matrix, 0, next_row) - less)


@part
def column(matrix, first, j):
    """Four consecutive entries of a column."""
    return matrix[first, j], matrix[first + 1, j], matrix[first + 2, j], matrix[first + 3, j]


@part
def factorise(matrix):
    """Replace the upper triangle of A by U, Uᵀ U = A; False if A is not positive definite.

    Four rows are computed at a time and then eliminated from the rows below, two of those at a
    time: a quarter of the passes over the matrix.
    """
    n = len(matrix)
    for first in range(0, n, 4):
        last = min(first + 4, n)
        for k in range(first, last):
            if not matrix[k, k] > 0.0:
                return False
            scale_row(1.0 / np.sqrt(matrix[k, k]), matrix, k * n + k, n - k)
            for i in range(k + 1, last):
                subtract_row(matrix[k, i], matrix, k * n + i, i * n + i, n - i)
        for i in range(last, n, 2):
            a = column(matrix, first, i)
            matrix[i, i] -= a[0] * a[0] + a[1] * a[1] + a[2] * a[2] + a[3] * a[3]
            j = i + 1
            if j < n:
                b = column(matrix, first, j)
                subtract_rows(a, b, matrix, first * n + j, n, i * n + j, n - j)
    return True


@part
def invert(factor, rows):
    """U⁻¹ of an upper triangle U, in place, with zeros below. ``rows`` (2, n) is scratch.

    Two rows at a time, from the last. Of the rows below, which are done, four are subtracted at a
    time.
    """
    n = len(factor)
    for low in range(n - 2, -2, -2):
        i = max(low, 0)
        last = low + 2
        for k in range(i, last):
            for j in range(n):
                rows[k - i, j] = factor[k, j]
                factor[k, j] = 0.0
            factor[k, k] = 1.0
        k = last
        if last - i == 2:
            while k + 4 <= n:
                a = rows[0, k], rows[0, k + 1], rows[0, k + 2], rows[0, k + 3]
                b = rows[1, k], rows[1, k + 1], rows[1, k + 2], rows[1, k + 3]
                subtract_rows(a, b, factor, k * n + k, n, i * n + k, n - k)
                k += 4
        for rest in range(k, n):
            for target in range(i, last):
                subtract_row(
                    rows[target - i, rest], factor, rest * n + rest, target * n + rest, n - rest
                )
        for k in range(last - 1, i - 1, -1):
            for below in range(k + 1, last):
                subtract_row(
                    rows[k - i, below], factor, below * n + below, k * n + below, n - below
                )
            scale_row(1.0 / rows[k - i, k], factor, k * n + k, n - k)


@lane_kernel
def divide_transposed(factor, values):
    """values <- U⁻ᵀ values."""
    n = len(values)
    for i in range(n):
        value = values[i] / factor[i, i]
        values[i] = value
        for j in range(n - i - 1):
            less = value * read(factor, 0, i * n + i + 1 + j)
            write(values, 0, i + 1 + j, read(values, 0, i + 1 + j) - less)


@lane_kernel
def multiply_row(factor, i, values, first):
    """Product of row i of U with the values, both from column ``first`` on."""
    n, total = len(values), 0.0
    for j in range(n - first):
        total += read(factor, 0, i * n + first + j) * read(values, 0, first + j)
    return total


@part
def divide(factor, values):
    """values <- U⁻¹ values."""
    for i in range(len(values) - 1, -1, -1):
        values[i] = (values[i] - multiply_row(factor, i, values, i + 1)) / factor[i, i]


@lane_kernel
def subtract_multiple(factor, source, target):
    """target -= factor source."""
    for j in range(len(target)):
        target[j] -= factor * source[j]


@kernel
def weigh_prior(first, last, precision, x, densities, gradients):
    """-xᵀ P x / 2 of x (n, d), and its gradient -P x."""
    for t in range(first, last):
        gradient = gradients[t]
        gradient[:] = 0.0
        for i in range(len(precision)):
            subtract_multiple(x[t, i], precision[i], gradient)
        total = 0.0
        for i in range(len(precision)):
            total += x[t, i] * gradient[i]
        densities[t] = 0.5 * total


@kernel
def solve_damped(first, last, hessians, which, precision, damping, gradients, steps):
    """Levenberg-Marquardt steps (H + P + λ (diag(H) + P))⁻¹ g; NaN where not positive definite.

    Damping in the metric of the prior shortens smooth and rough components of a step alike. With
    the diagonal of P it would not: for fine cells P has a condition number of 1e8 and its diagonal
    is as large as its largest eigenvalue, so that the least damping suppresses smooth steps.

    Parameters
    ----------
    hessians : (n, d, d)
        Upper triangles.
    which : (k,)
        Index of the Hessian of each system.
    precision : (d, d)
    damping : (k,)
    gradients, steps : (k, d)
    """
    d = len(precision)
    matrix = np.empty((d, d))
    for t in range(first, last):
        hessian = hessians[which[t]]
        for i in range(d):
            add_rows(hessian, 1.0 + damping[t], precision, i * d + i, d - i, matrix)
            matrix[i, i] += damping[t] * hessian[i, i]
        steps[t] = gradients[t]
        if factorise(matrix):
            divide_transposed(matrix, steps[t])
            divide(matrix, steps[t])
        else:
            steps[t] = np.nan


@kernel
def factorise_all(first, last, matrices, good):
    """Factorise upper triangles (n, d, d) in place; ``good`` (n,) receives success."""
    for t in range(first, last):
        good[t] = factorise(matrices[t])


@kernel
def divide_all(first, last, factors, which, transposed, values):
    """values (k, d) <- U⁻¹ values, or U⁻ᵀ values, with U = ``factors[which[t]]`` for row t.

    ``factors`` is (n, d, d). Indices ``which`` (k,), here and below, avoid copies of factors.
    """
    for t in range(first, last):
        if transposed:
            divide_transposed(factors[which[t]], values[t])
        else:
            divide(factors[which[t]], values[t])


@kernel
def multiply_all(first, last, factors, which, values, products):
    """products (k, d) <- U values."""
    for t in range(first, last):
        factor = factors[which[t]]
        for i in range(values.shape[1]):
            products[t, i] = multiply_row(factor, i, values[t], i)


@kernel
def condition_gaussians(
    first, last, curvatures, linear, weight, precision, means, roots, log_determinants
):
    """Posteriors N(m, X Xᵀ) of u ~ N(0, Q⁻¹) under log-likelihoods weight (bᵀu - uᵀHu / 2).

    Parameters
    ----------
    curvatures : (n, d, d)
        H; only the upper triangles are read.
    linear : (n, d)
        b.
    precision : (d, d)
        Q.
    means : (n, d)
        m = A⁻¹ weight b, with A = Q + weight H.
    roots : (n, d, d)
        X, upper triangular.
    log_determinants : (n,)
        log |A|; NaN where A is not positive definite.
    """
    d = len(precision)
    rows = np.empty((2, d))
    for t in range(first, last):
        root, mean = roots[t], means[t]
        for i in range(d):
            mean[i] = weight * linear[t, i]
            for j in range(i, d):
                root[i, j] = precision[i, j] + weight * curvatures[t, i, j]
        if not factorise(root):
            log_determinants[t] = np.nan
            continue
        total = 0.0
        for i in range(d):
            total += np.log(root[i, i])
        log_determinants[t] = 2.0 * total
        divide_transposed(root, mean)
        divide(root, mean)
        invert(root, rows)
