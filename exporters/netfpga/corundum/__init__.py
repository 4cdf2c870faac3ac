# SPDX-License-Identifier: Apache-2.0
"""The application block of Corundum around the packet path."""
