# SPDX-License-Identifier: Apache-2.0
"""The baseline of the cluster's simulation: the same kernels with MPI on processor cores.

It imports the core and ``systems/cluster/``.
"""
