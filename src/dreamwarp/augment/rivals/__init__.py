"""Hand-made augmentations to compare with: the same deformations for every class."""
