# SPDX-License-Identifier: Apache-2.0
"""A card of several tenants on a host: one process, one library, one thread pool.

It imports the core, ``systems/card/`` and the exporter ``host``.
"""
