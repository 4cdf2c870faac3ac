# SPDX-License-Identifier: Apache-2.0
"""Host CPU: C11 with kernels for AVX-512, AVX2, NEON and any other CPU, and ``bnn-exec``."""
