# SPDX-License-Identifier: Apache-2.0
"""The three ways of messages to a model, measured side by side, beside the figures of *NetML*."""
