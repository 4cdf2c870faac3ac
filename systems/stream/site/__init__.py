# SPDX-License-Identifier: Apache-2.0
"""A site of many cards: load and capacity of each stage behind them, and its queues simulated."""
