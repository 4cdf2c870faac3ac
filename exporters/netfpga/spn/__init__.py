# SPDX-License-Identifier: Apache-2.0
"""Sum-product networks for the NetFPGA: a fully spatial pipeline, one input per clock."""
