"""Experiments on real data: one question per file, results as JSON files beside them."""
