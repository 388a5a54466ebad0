"""Files for tests of readers."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from dreamwarp.data.idx import CODES, TYPES, encode_header


def write_idx(path: Path, array: ArrayLike) -> Path:
    """Write an array as IDX, compressed if the name ends in ``.gz``."""
    values = np.asarray(array)
    dtype = values.dtype.newbyteorder("=")
    content = encode_header(dtype, values.shape) + values.astype(TYPES[CODES[dtype]]).tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path
