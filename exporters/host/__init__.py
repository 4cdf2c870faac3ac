# SPDX-License-Identifier: Apache-2.0
"""Target ``host``: C11 with kernels for AVX-512, AVX2, NEON and any other CPU, and ``bnn-exec``.

It may import ``n3ic`` and ``n3ic.families``; its benchmark also imports the target ``onnx``.
"""
