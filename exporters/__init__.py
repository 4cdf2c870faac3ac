# SPDX-License-Identifier: Apache-2.0
"""The targets that n3ic exports to: one folder each, found through entry points.

A target writes a trained model as code or files for one kind of device, and runs or decodes what it
wrote for verification. Targets may import ``n3ic`` and ``n3ic.families``.
"""
