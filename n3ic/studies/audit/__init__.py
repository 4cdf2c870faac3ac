# SPDX-License-Identifier: Apache-2.0
"""The leak audit: finds columns that are an address, a TTL or a time in disguise."""
