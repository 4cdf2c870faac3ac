# SPDX-License-Identifier: Apache-2.0
"""The baseline: the same kernels with MPI on processor cores."""
