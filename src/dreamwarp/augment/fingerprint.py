"""What tells one set of samples from another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Bytes looked at together: samples may be a map of what memory can't hold.
PART_BYTES = 16 * 2**20


def fingerprint(X: NDArray[Any]) -> str:
    """SHA-256, in hexadecimal, of samples: number, type and values, in whatever axes they come."""
    digest = hashlib.sha256(json.dumps([len(X), X.dtype.str[1:]]).encode())
    for _, part in parts(X):
        digest.update(np.ascontiguousarray(part, X.dtype.newbyteorder("<")).data)
    return digest.hexdigest()


def parts(X: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Number of the first, and samples, of one part after the other."""
    step = max(1, PART_BYTES * len(X) // max(1, X.nbytes))
    return ((first, X[first : first + step]) for first in range(0, len(X), step))
