"""The manifest of a set: all settings that its samples depend on, and the hashes of its shards.

It is used to complete, verify and reproduce a set. It may be malicious, so everything in it is
checked; it can name only files whose names follow from the format and the shard number.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from dreamwarp.augment.source import SampleForm, SampleSource
from dreamwarp.core.version import __version__
from dreamwarp.data.sample_sets import (
    MANIFEST,
    MANIFEST_KIND,
    MAX_BYTES,
    VERSION,
    brief,
    check_record,
    hash_content,
    is_hash,
    malformed,
    parse_record,
)
from dreamwarp.generation.formats import ShardFormat, make_format
from dreamwarp.generation.shards import MAX_SHARDS, Plan
from dreamwarp.generation.stores import Store, read_bounded

Digests = dict[str, str]


@dataclass(frozen=True)
class Manifest:
    """Settings of a set, and its complete shards."""

    settings: dict[str, Any]  # all that determine the bytes of the set, as JSON values
    shards: list[Digests | None]  # SHA-256 by file name; None if a shard is not complete

    @property
    def plan(self) -> Plan:
        """How samples are divided into shards."""
        return Plan(*(self.settings[name] for name in ("first", "n", "shard_size")))

    @property
    def format(self) -> ShardFormat:
        """The format of the shards."""
        shape, dtype, classes = (self.settings[name] for name in ("shape", "dtype", "classes"))
        form = SampleForm(tuple(shape), np.dtype(dtype), np.array(classes))
        return make_format(self.settings["format"], form)

    @property
    def n_done(self) -> int:
        """Number of complete shards."""
        return sum(shard is not None for shard in self.shards)


def new_manifest(source: SampleSource, plan: Plan, file_format: ShardFormat) -> Manifest:
    """The manifest of a set without complete shards."""
    settings = {
        "n": plan.n,
        "first": plan.first,
        "shard_size": plan.shard_size,
        "format": file_format.name,
        "seed": source.key,
        "strength": source.strength,
        "balance": source.balance,
        "interpolation": source.interpolation,
        "shape": list(source.form.shape),
        "dtype": source.form.dtype.name,
        "classes": source.form.labels,
        "model": source.model.fingerprint,
        "data": source.data_fingerprint,
    }
    return Manifest(settings, [None] * len(plan))


def write_manifest(store: Store, manifest: Manifest) -> None:
    """Write the manifest to a store, replacing an earlier one."""
    contents = {
        "kind": MANIFEST_KIND,
        "version": VERSION,
        "library_version": __version__,
        "settings": manifest.settings,
        "shards": manifest.shards,
        "sha256": hash_content(manifest.settings, manifest.shards),
    }
    text = json.dumps(contents, indent=1, allow_nan=False) + "\n"
    with store.create(MANIFEST) as stream:
        stream.write(text.encode())


def read_manifest(store: Store) -> Manifest:
    """Read and check the manifest in a store."""
    try:
        content = read_bounded(store, MANIFEST, MAX_BYTES)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"`{store.title}` holds no {MANIFEST}, so it is not a set of samples."
        ) from None
    except NotADirectoryError:
        raise NotADirectoryError(
            f"`{store.title}` must be the folder of a set of samples, got a file."
        ) from None
    title = f"{store.title}/{MANIFEST}"
    manifest = Manifest(*check_record(title, parse_record(title, content)))
    _check_shards(title, manifest)
    return manifest


def refuse_difference(store: Store, found: Manifest, wanted: Manifest) -> None:
    """Raise if the set to be resumed has other settings."""
    listed = "; ".join(
        f"`{name}` is {brief(found.settings[name])} there and {brief(value)} here"
        for name, value in wanted.settings.items()
        if found.settings[name] != value
    )
    if listed:
        raise ValueError(
            f"`{store.title}` was made with other settings: {listed}. Use the same settings, or "
            "choose another folder."
        )


# -- checks


def _check_shards(title: str, manifest: Manifest) -> None:
    plan, shards = manifest.plan, manifest.shards
    if len(plan) > MAX_SHARDS:
        raise malformed(title, f"it has {len(plan)} shards, more than {MAX_SHARDS}")
    if not isinstance(shards, list) or len(shards) != len(plan):
        raise malformed(title, f"it must list {len(plan)} shards")
    try:
        file_format = manifest.format
    except ValueError as error:  # it can't hold the samples
        raise malformed(title, str(error)) from None
    for number, digests in enumerate(shards):
        if digests is None:
            continue
        names = set(file_format.names(plan[number]))
        if not isinstance(digests, dict) or set(digests) != names:
            raise malformed(title, f"its shard {number} must list {', '.join(sorted(names))}")
        if not all(is_hash(sha256) for sha256 in digests.values()):
            raise malformed(title, f"its shard {number} must list SHA-256 hashes")
