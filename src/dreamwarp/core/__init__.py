"""Parts that know nothing of warps.

Compiled kernels and threads, counter-based random draws, interpolation, files, progress, checks of
arguments, samples and labels, work on a cluster.
"""
