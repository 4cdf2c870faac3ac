# SPDX-License-Identifier: Apache-2.0
"""A card under load: tenants, bursts and failures, and who gets what under which policy."""
