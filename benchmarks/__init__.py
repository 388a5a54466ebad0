"""Benchmarks: one question per file, peers measured in the same run with the same data.

``python -m benchmarks`` answers all of them, ``python -m benchmarks flow2d images`` some.
"""

# In the order they are run and shown.
QUESTIONS = (
    "flow2d",
    "flow1d",
    "flow3d",
    "images",
    "volumes",
    "series",
    "colour",
    "align",
    "training",
    "landmarks",
    "generation",
    "scaling",
    "hardware",
    "startup",
)
