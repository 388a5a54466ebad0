"""Volumes: a folder per class, a NIfTI file per sample."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.augment.source import SampleForm
from dreamwarp.data.volumes import MAX_CHANNELS, encode_volume
from dreamwarp.generation.formats.folder import FolderFormat

# NIfTI has no booleans and no half precision.
STORED = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "float32", "float64")  # fmt: skip


class NiftiFormat(FolderFormat):
    """``<class>/<number of the sample>.nii.gz`` with the data's affine; see ``FolderFormat``."""

    name = "nifti"
    ending = ".nii.gz"

    @classmethod
    def find_misfit(cls, form: SampleForm) -> str | None:
        """Why files can't hold samples of a form, or None."""
        is_volume = len(form.shape) == 3 or (len(form.shape) == 4 and form.shape[0] <= MAX_CHANNELS)
        if is_volume and form.dtype.name in STORED:
            return None
        return (
            f"holds volumes (x, y, z), or (channels, x, y, z) of at most {MAX_CHANNELS} channels, "
            "of integers or floats of 32 or 64 bits, got "
            f"{form.dtype} of shape {form.shape}"
        )

    def encode_files(self, X: NDArray[Any]) -> Iterable[bytes]:
        """Contents of the files of samples."""
        affine = np.eye(4) if self.form.affine is None else self.form.affine
        return (encode_volume(volume, affine) for volume in X)
