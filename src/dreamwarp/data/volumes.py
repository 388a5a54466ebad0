"""Volumes: NIfTI files, single or in folders with one folder per class, read by nibabel."""

from __future__ import annotations

import gzip
import os
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.core.files import write_beside
from dreamwarp.core.listing import import_extra
from dreamwarp.core.progress import tracked
from dreamwarp.core.samples import check_finite
from dreamwarp.core.validation import as_finite_array, warn_user
from dreamwarp.data import guards
from dreamwarp.data.dataset import DataSet, list_classes, split_off_test

Array = NDArray[np.float64]

SUFFIXES = (".nii", ".nii.gz")
# Directions in which the axes of a volume run after reading: right, front and top.
ORIENTATION = "RAS"
# A 4-D file with at most this many volumes has channels (modalities of a scan), else it is a time
# series.
MAX_CHANNELS = 8
# Relative difference up to which voxel sizes count as equal: headers hold float32.
SAME_SPACING = 1e-3


@dataclass(frozen=True, eq=False)
class VoxelGrid:
    """World coordinates of the voxels of a volume."""

    shape: tuple[int, int, int]  # voxels along each axis
    affine: Array  # (4, 4), maps voxel indices to world coordinates in millimetres
    has_affine: bool = True  # False: directions are unknown, and `affine` has voxel sizes alone

    @property
    def spacing(self) -> Array:
        """Size of a voxel along each axis (3,), in millimetres."""
        return np.linalg.norm(self.affine[:3, :3], axis=0)

    def to_world(self, points: ArrayLike) -> Array:
        """World coordinates of points (..., 3) of the unit cube, the domain of warps."""
        voxels = as_finite_array("points", points) * self.shape - 0.5
        return voxels @ self.affine[:3, :3].T + self.affine[:3, 3]

    def to_unit(self, points: ArrayLike) -> Array:
        """Points of the unit cube with world coordinates (..., 3)."""
        moved = as_finite_array("points", points) - self.affine[:3, 3]
        return (np.linalg.solve(self.affine[:3, :3], moved[..., None])[..., 0] + 0.5) / self.shape


@dataclass(frozen=True, eq=False)
class VolumeForm:
    """Header of a volume, with axes in the order left-right, back-front, down-up."""

    grid: VoxelGrid
    turn: Array | None  # of the stored axes, as nibabel.orientations has it; None: they stay
    n_channels: int  # 1 for a plain volume
    dtype: np.dtype[Any]  # of the values after scaling


def read_volume(path: str | os.PathLike[str]) -> tuple[NDArray[Any], VoxelGrid]:
    """A NIfTI volume, (x, y, z) or (channels, x, y, z), and its voxel grid.

    If the file has an affine, axes are flipped and swapped to run as nearly as possible to the
    right, the front and the top of the patient. Values are not interpolated.
    """
    file = guards.check_file(path)
    form = _read_form(file)
    return _read_values(file, form), form.grid


def write_volume(path: str | os.PathLike[str], values: NDArray[Any], affine: ArrayLike) -> None:
    """Write a volume (x, y, z) or (channels, x, y, z) as NIfTI, atomically."""
    file = Path(path)
    if not file.name.endswith(SUFFIXES):
        raise ValueError(f"`path` must end in .nii or .nii.gz, got {file.name!r}.")
    content = encode_volume(values, affine, packed=file.name.endswith(".gz"))
    with write_beside(file) as temporary:
        temporary.write_bytes(content)


def encode_volume(values: NDArray[Any], affine: ArrayLike, *, packed: bool = True) -> bytes:
    """A volume as NIfTI; the same volume gives the same bytes."""
    nibabel = import_extra("nibabel", "volumes", "a NIfTI volume")
    array = np.asarray(values)
    if array.ndim not in (3, 4) or array.dtype.kind not in "biuf":
        raise ValueError(
            f"`values` must be a volume (x, y, z) or (channels, x, y, z) of real numbers, got "
            f"{array.dtype} of shape {array.shape}."
        )
    stored = array.astype(np.uint8) if array.dtype.kind == "b" else array
    stored = np.moveaxis(stored, 0, -1) if stored.ndim == 4 else stored
    image = nibabel.Nifti1Image(stored, np.asarray(affine, np.float64), dtype=stored.dtype)
    content = image.to_bytes()
    # Noise hardly compresses: level 1 takes a fifth of the time of level 9.
    return gzip.compress(content, compresslevel=1, mtime=0) if packed else content


def read_nifti_folder(
    path: str | os.PathLike[str],
    *,
    resize: tuple[int, ...] | None = None,
    numbered: bool = False,
) -> DataSet:
    """NIfTI volumes of a folder with one folder per class, as :func:`list_classes` finds them.

    X is (n, x, y, z) or (n, channels, x, y, z), in the stored dtype, or float32 if values are
    scaled or resized. Without ``resize``, all volumes must have the same shape and voxel size. With
    it, they are resampled to this many voxels along each axis: all share one box in millimetres, as
    large as the largest volume, and are centred in it. Voxels outside a volume get its smallest
    value.
    """
    root = Path(path)
    files, y, n_train = list_classes(root, SUFFIXES, "NIfTI volumes", numbered=numbered)
    n = len(files)
    forms = [_read_form(file) for file in tracked(files, n, "checking volumes")]
    _check_alike(files, forms, is_resized=resize is not None)
    if resize is None:
        grid, dtype = forms[0].grid, np.result_type(*(form.dtype for form in forms))
    else:
        grid, dtype = _common_grid(forms, _check_resize(resize)), np.dtype(np.float32)
    channels = () if forms[0].n_channels == 1 else (forms[0].n_channels,)
    X = np.empty((n, *channels, *grid.shape), dtype)
    for k, file in enumerate(tracked(files, n, "reading volumes")):
        values = _read_values(file, forms[k])
        check_finite(str(file), values)
        X[k] = values if resize is None else _place(values, forms[k].grid, grid)
    orientation = ORIENTATION if forms[0].grid.has_affine else None
    return split_off_test(
        root, X, y, n_train, n_axes=3, affine=grid.affine, orientation=orientation
    )


# -- headers


@contextmanager
def _open_volume(file: Path) -> Iterator[Any]:
    """Open a NIfTI image without reading its values; errors in the file become a ValueError."""
    nibabel = import_extra("nibabel", "volumes", "a NIfTI volume")
    unreadable = (
        nibabel.filebasedimages.ImageFileError, nibabel.spatialimages.HeaderDataError,
        nibabel.orientations.OrientationError, EOFError, ValueError, OSError, TypeError,
        OverflowError, zlib.error,
    )  # fmt: skip
    with guards.reading_as("a NIfTI volume", file, unreadable), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # harmless defects of headers
        image = nibabel.load(file)
        if not isinstance(image, nibabel.Nifti1Image):
            raise ValueError(f"it is of type {type(image).__name__}")
        yield image


def _read_form(file: Path) -> VolumeForm:
    orientations = import_extra("nibabel.orientations", "volumes", "a NIfTI volume")
    with _open_volume(file) as image:
        header, shape = image.header, tuple(map(int, image.shape))
        dtype = np.dtype(header.get_data_dtype())
        if dtype.kind not in "buif":
            raise ValueError(f"`{file}` must hold real numbers, got {dtype}. Convert it.")
        guards.check_expansion(
            file,
            packed=file.stat().st_size,
            unpacked=guards.count_bytes(file, shape, dtype) + int(image.dataobj.offset),
            at_most=guards.MOST_EXPANSION if file.name.lower().endswith(".gz") else 1,
        )
        is_scaled = (image.dataobj.slope, image.dataobj.inter) != (1.0, 0.0)
        has_affine = bool(header["sform_code"] > 0 or header["qform_code"] > 0)
        affine = image.affine if has_affine else np.diag([*header.get_zooms()[:3], 1.0])
        spatial, n_channels = _split_axes(file, shape)
        affine = np.asarray(affine, np.float64)
        if not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < 1e-12:
            raise ValueError(
                f"`{file}` must have an invertible affine, got {affine[:3].round(3).tolist()}. Set "
                "its sform or qform."
            )
        turn = orientations.io_orientation(affine) if has_affine else None
        if turn is not None:
            x, y, z = (spatial[k] for k in np.argsort(turn[:, 0]))
            affine, spatial = affine @ orientations.inv_ornt_aff(turn, spatial), (x, y, z)
    stored = np.dtype(np.float32) if is_scaled else dtype.newbyteorder("=")
    return VolumeForm(VoxelGrid(spatial, affine, has_affine), turn, n_channels, stored)


def _split_axes(file: Path, shape: tuple[int, ...]) -> tuple[tuple[int, int, int], int]:
    """Voxels along three axes, and number of channels."""
    if len(shape) < 3:
        raise ValueError(
            f"`{file}` must have three axes, got shape {shape}. Save single slices as images, such "
            "as PNG."
        )
    x, y, z, *rest = shape
    channels = [n for n in rest if n != 1] or [1]  # components of vectors are on the fifth axis
    if len(channels) > 1 or min(shape) < 1 or channels[0] > MAX_CHANNELS:
        raise ValueError(
            f"`{file}` must have three axes, or a fourth of at most {MAX_CHANNELS} channels, got "
            f"shape {shape}. Split a time series into volumes, with "
            "`nibabel.funcs.four_to_three`, and give each its file."
        )
    return (x, y, z), channels[0]


def _read_values(file: Path, form: VolumeForm) -> NDArray[Any]:
    """(x, y, z), or (channels, x, y, z)."""
    with _open_volume(file) as image:
        values = np.asarray(image.dataobj, form.dtype)
        values = values.reshape(*image.shape[:3], form.n_channels)
        if form.turn is not None:
            from nibabel import orientations

            values = orientations.apply_orientation(values, form.turn)
    values = np.moveaxis(values, -1, 0)
    return np.ascontiguousarray(values[0] if form.n_channels == 1 else values)


# -- folders


def _check_alike(files: Sequence[Path], forms: Sequence[VolumeForm], *, is_resized: bool) -> None:
    """Raise if only some have an affine, or volumes differ in channels or, unless resized, voxels.

    Warn if none has an affine.
    """
    first, start = forms[0], f"`{files[0]}` has"
    size = first.grid.shape
    remedy = (
        f"Use `--resize {'x'.join(map(str, size))}` (`resize={size}`), or another number of voxels."
    )
    for file, form in zip(files, forms, strict=True):
        other = f"`{file}` has"
        if form.grid.has_affine != first.grid.has_affine:
            some, none = (start, other) if first.grid.has_affine else (other, start)
            raise ValueError(
                f"volumes must all have an affine or none, but {none} none (sform_code and "
                f"qform_code are 0) while {some} one. Set it, for example by "
                "`nibabel.Nifti1Image(values, affine)`."
            )
        if form.n_channels != first.n_channels:
            raise ValueError(
                f"volumes must have the same number of channels: {start} {first.n_channels}, "
                f"{other} {form.n_channels}. Convert or remove it."
            )
        if is_resized:
            continue
        if form.grid.shape != first.grid.shape:
            own, found = (" x ".join(map(str, grid.shape)) for grid in (first.grid, form.grid))
            raise ValueError(
                f"volumes must have the same shape: {start} {own} voxels, {other} {found}. {remedy}"
            )
        if not np.allclose(form.grid.spacing, first.grid.spacing, rtol=SAME_SPACING, atol=0.0):
            raise ValueError(
                f"volumes must have voxels of one size: {start} {_in_mm(first.grid.spacing)}, "
                f"{other} {_in_mm(form.grid.spacing)}. {remedy}"
            )
    if not first.grid.has_affine:
        warn_user(
            f"`{files[0]}` and the other volumes have no affine: axes keep their stored order, "
            "assumed to be the same in all.",
            UserWarning,
        )


def _in_mm(spacing: Array) -> str:
    return " x ".join(f"{size:.4g}" for size in spacing) + " mm"


def _check_resize(resize: tuple[int, ...]) -> tuple[int, int, int]:
    if len(resize) != 3 or min(resize) < 1:
        raise ValueError(
            "`--resize` (`resize`) must be three integers for volumes, such as 64x64x64, got "
            f"{'x'.join(map(str, resize))}."
        )
    return resize[0], resize[1], resize[2]


def _common_grid(forms: Sequence[VolumeForm], shape: tuple[int, int, int]) -> VoxelGrid:
    """A grid over a box as large, in millimetres, as the largest volume."""
    extents = np.max([form.grid.spacing * form.grid.shape for form in forms], axis=0)
    first, spacing = forms[0].grid, extents / shape
    directions = first.affine[:3, :3] / first.spacing
    center = first.to_world(np.full(3, 0.5))
    affine = np.eye(4)
    affine[:3, :3] = directions * spacing
    affine[:3, 3] = center - affine[:3, :3] @ (np.array(shape) / 2.0 - 0.5)
    return VoxelGrid(shape, affine)


def _place(values: NDArray[Any], own: VoxelGrid, grid: VoxelGrid) -> NDArray[np.float32]:
    """Resample a volume, centred in a grid, by linear interpolation.

    If voxels become larger, values are smoothed first, to avoid aliasing.
    """
    from scipy import ndimage

    factor = grid.spacing / own.spacing
    offset = (np.array(own.shape) - 1.0) / 2.0 - factor * (np.array(grid.shape) - 1.0) / 2.0
    channels = values.reshape(-1, *own.shape).astype(np.float32)
    out = np.empty((len(channels), *grid.shape), np.float32)
    for channel, placed in zip(channels, out, strict=True):
        smooth = ndimage.gaussian_filter(
            channel, 0.5 * np.sqrt(np.maximum(factor**2 - 1.0, 0.0)), mode="nearest"
        )
        ndimage.affine_transform(
            smooth, factor, offset, grid.shape, placed, order=1, cval=float(channel.min()),
            mode="grid-constant",
        )  # fmt: skip
    return out.reshape(*values.shape[: values.ndim - 3], *grid.shape)
