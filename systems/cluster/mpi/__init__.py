"""The baseline: the same kernels with MPI on the cores of a processor."""
