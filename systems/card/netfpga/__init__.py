# SPDX-License-Identifier: Apache-2.0
"""One card of several tenants in one image: their networks behind a credit scheduler."""
