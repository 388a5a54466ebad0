"""What knows nothing of warps.

Compiled kernels and their threads, random draws by number, interpolation, files, progress, checks
of arguments, work on a cluster.
"""
