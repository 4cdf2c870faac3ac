# SPDX-License-Identifier: Apache-2.0
"""Several models or several machines: systems built from exported models."""
