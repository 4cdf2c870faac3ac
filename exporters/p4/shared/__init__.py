# SPDX-License-Identifier: Apache-2.0
"""What the targets ``p4`` and ``p4-netfpga`` share: the pipeline, its options and checks."""
