"""The interactive page: a model to play with, in the browser."""
