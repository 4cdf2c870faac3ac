# SPDX-License-Identifier: Apache-2.0
"""One card of several tenants: their networks behind a scheduler of credits, in one image."""
