# SPDX-License-Identifier: Apache-2.0
"""When to decide: networks for several decision points, trained on the same flows and compared."""
