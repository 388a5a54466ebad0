"""The manifest of a set: every setting that its samples depend on, and a hash per shard.

With it a set can be completed, checked and made again. Like all files it may come from elsewhere,
so nothing in it is believed before it is checked, and it holds no file names to be opened: those
follow from the format and the number of a shard.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

import dreamwarp
from dreamwarp.augment.formats import FORMATS, ShardFormat, make_format
from dreamwarp.augment.shards import MAX_SHARDS, Plan
from dreamwarp.augment.source import BALANCES, MAX_NUMBER, Form, SampleSource
from dreamwarp.augment.stores import Store, read_bounded
from dreamwarp.data.guards import count_bytes
from dreamwarp.model.labels import check_classes

NAME = "manifest.json"
KIND, VERSION = "dreamwarp samples", 1
# More than the longest list of shards with classes of the longest names takes.
MAX_BYTES = 64 * 2**20
MAX_AXES = 4
# Longest value that an error quotes whole: hashes are.
MAX_WORDS = 70
SHA256 = re.compile(r"[0-9a-f]{64}")
# Types that samples may have.
DTYPE = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)")

Digests = dict[str, str]


@dataclass(frozen=True)
class Manifest:
    """What a set is, and how far it has come.

    Attributes
    ----------
    settings : dict
        All that its bytes depend on, as JSON can hold it.
    shards : list of dict of str to str, or None
        Of each shard: SHA-256 of its files by name; None while it has not been made.
    """

    settings: dict[str, Any]
    shards: list[Digests | None]

    @property
    def plan(self) -> Plan:
        """How samples are cut into shards."""
        return Plan(*(self.settings[name] for name in ("first", "n", "shard_size")))

    @property
    def format(self) -> ShardFormat:
        """How shards are written."""
        shape, dtype, classes = (self.settings[name] for name in ("shape", "dtype", "classes"))
        form = Form(tuple(shape), np.dtype(dtype), np.array(classes))
        return make_format(self.settings["format"], form)

    @property
    def n_done(self) -> int:
        """Shards that have been made."""
        return sum(shard is not None for shard in self.shards)


def new_manifest(source: SampleSource, plan: Plan, file_format: ShardFormat) -> Manifest:
    """The manifest of a set of which nothing has been made."""
    settings = {
        "n": plan.n,
        "first": plan.first,
        "shard_size": plan.shard_size,
        "format": file_format.name,
        "seed": source.key,
        "strength": source.strength,
        "balance": source.balance,
        "shape": list(source.form.shape),
        "dtype": source.form.dtype.name,
        "classes": source.form.labels,
        "model": source.model.fingerprint,
        "data": source.data_fingerprint,
    }
    return Manifest(settings, [None] * len(plan))


def write_manifest(store: Store, manifest: Manifest) -> None:
    """Put the manifest into a store, in place of the one that is there."""
    contents = {
        "kind": KIND,
        "version": VERSION,
        "library_version": dreamwarp.__version__,
        "settings": manifest.settings,
        "shards": manifest.shards,
    }
    text = json.dumps(contents, indent=1, allow_nan=False) + "\n"
    with store.create(NAME) as stream:
        stream.write(text.encode())


def read_manifest(store: Store) -> Manifest:
    """The manifest in a store; a ValueError says what is wrong with it."""
    try:
        content = read_bounded(store, NAME, MAX_BYTES)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"`{store.title}` holds no {NAME}, so it is no set of samples."
        ) from None
    except NotADirectoryError:
        raise NotADirectoryError(
            f"`{store.title}` must be the folder of a set of samples, and is a file."
        ) from None
    if len(content) > MAX_BYTES:
        raise _malformed(store, f"it has more than {MAX_BYTES} bytes")
    record = _parse(store, content)
    if not isinstance(record, dict) or record.get("kind") != KIND:
        raise _malformed(store, "it is of another kind")
    if record.get("version") != VERSION:
        raise ValueError(
            f"`{store.title}/{NAME}` has version {record.get('version')!r}, and this library reads "
            f"version {VERSION}. Use the library that wrote it."
        )
    settings, shards = record.get("settings"), record.get("shards")
    _check_settings(store, settings)
    manifest = Manifest(settings, shards)  # type: ignore[arg-type]
    _check_shards(store, manifest)
    return manifest


def refuse_difference(store: Store, found: Manifest, wanted: Manifest) -> None:
    """Refuse to go on with a set that was made with other settings."""
    differing = [name for name, value in wanted.settings.items() if found.settings[name] != value]
    if differing:
        listed = "; ".join(
            f"`{name}` is {_brief(found.settings[name])} there and {_brief(wanted.settings[name])} "
            "here"
            for name in differing
        )
        raise ValueError(
            f"`{store.title}` was made with other settings: {listed}. Use the same, or choose "
            "another folder."
        )


# -- checks


def _parse(store: Store, content: bytes) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no number")

    try:
        return json.loads(content, parse_constant=refuse)
    except RecursionError:
        raise _malformed(store, "it is nested too deeply") from None
    except ValueError as error:
        raise _malformed(store, f"it is not JSON ({error})") from None


def _check_settings(store: Store, settings: Any) -> None:
    checks = {
        "n": _is_count,
        "first": lambda value: value == 0 or _is_count(value),
        "shard_size": _is_count,
        "format": lambda value: value in tuple(FORMATS),
        "seed": lambda value: _is_whole(value) and 0 <= value < 2**64,
        "strength": _is_real,
        "balance": lambda value: value in BALANCES,
        "shape": _is_shape,
        "dtype": lambda value: isinstance(value, str) and DTYPE.fullmatch(value),
        "classes": _are_classes,
        "model": _is_hash,
        "data": _is_hash,
    }
    if not isinstance(settings, dict) or set(settings) != set(checks):
        raise _malformed(store, f"its settings must be {', '.join(checks)}")
    for name, is_good in checks.items():
        if not is_good(settings[name]):
            raise _malformed(store, f"its `{name}` can't be {_brief(settings[name])}")
    if settings["first"] + settings["n"] > MAX_NUMBER:
        raise _malformed(store, "its samples have numbers that are too large")
    try:
        count_bytes("a sample", settings["shape"], np.dtype(settings["dtype"]))
        Manifest(settings, []).format  # noqa: B018  refuses forms that it can't hold
    except ValueError as error:
        raise _malformed(store, str(error)) from None


def _check_shards(store: Store, manifest: Manifest) -> None:
    plan, shards = manifest.plan, manifest.shards
    if len(plan) > MAX_SHARDS:
        raise _malformed(store, f"it has {len(plan)} shards, more than {MAX_SHARDS}")
    if not isinstance(shards, list) or len(shards) != len(plan):
        raise _malformed(store, f"it must list {len(plan)} shards")
    file_format = manifest.format
    for number, digests in enumerate(shards):
        if digests is None:
            continue
        names = set(file_format.names(plan[number]))
        if not isinstance(digests, dict) or set(digests) != names:
            raise _malformed(store, f"its shard {number} must have {', '.join(sorted(names))}")
        if not all(_is_hash(sha256) for sha256 in digests.values()):
            raise _malformed(store, f"its shard {number} has something else than SHA-256 hashes")


def _malformed(store: Store, reason: str) -> ValueError:
    return ValueError(
        f"`{store.title}/{NAME}` is not the manifest of a set of samples: {reason}. Remove the set "
        "and make it again."
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_whole(value) and 1 <= value < MAX_NUMBER


def _is_real(value: Any) -> bool:
    real = isinstance(value, float) or (_is_whole(value) and value < MAX_NUMBER)
    return real and 0.0 <= value < float("inf")


def _is_shape(value: Any) -> bool:
    is_list = isinstance(value, list) and 1 <= len(value) <= MAX_AXES
    return is_list and all(_is_count(size) for size in value)


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and SHA256.fullmatch(value) is not None


def _are_classes(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    try:
        classes = check_classes(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(classes[0], bool)


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_WORDS else f"{text[: MAX_WORDS - 3]}..."
