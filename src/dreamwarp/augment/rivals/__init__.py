"""Hand-designed augmentations, as baselines: the same deformations for every class."""
