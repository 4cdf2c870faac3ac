# SPDX-License-Identifier: Apache-2.0
"""FCsN's kernels on a simulated ring, and its speed-ups over MPI beside ours."""
