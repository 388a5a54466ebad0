"""Samples at scale: written in shards that can be resumed and verified, or streamed.

shards           division of a set into shards and blocks
formats, stores  how and where a shard is written
manifest         settings of a set, and hashes of its shards
generating       the loop over shards; streaming
verification     comparison with the manifest

Not named ``generate``: importing a package of that name would replace the function
``dreamwarp.generate``. Names are imported on first use.
"""

from __future__ import annotations

from dreamwarp.core.listing import import_lazily

# Name to the module that has it.
PUBLIC = {
    "Generated": "generating",
    "Verification": "verification",
    "generate": "generating",
    "stream": "generating",
    "verify": "verification",
}

__all__ = list(PUBLIC)
__getattr__, __dir__ = import_lazily(globals(), PUBLIC)
