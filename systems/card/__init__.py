# SPDX-License-Identifier: Apache-2.0
"""One card with many models and tenants: its description, and the plan of each tenant's share.

It imports only the core; each folder of a target also imports that target's exporter.
"""
