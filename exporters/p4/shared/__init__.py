# SPDX-License-Identifier: Apache-2.0
"""The parts that the targets ``p4`` and ``p4-netfpga`` share: pipeline, options and checks."""
