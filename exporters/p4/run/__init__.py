# SPDX-License-Identifier: Apache-2.0
"""Runs a generated program on packets, in the interpreter and on bmv2."""
