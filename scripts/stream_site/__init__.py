# SPDX-License-Identifier: Apache-2.0
"""Load and capacity of each stage behind a site's many cards, and a simulation of their queues."""
