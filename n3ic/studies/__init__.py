# SPDX-License-Identifier: Apache-2.0
"""Studies of one model, of a table or of captures: one folder each."""
