"""Tools that are independent of warps.

Compiled kernels and threads, counter-based random draws, interpolation, files, progress, checks of
arguments, samples and labels, work on a cluster.
"""
