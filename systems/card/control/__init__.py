# SPDX-License-Identifier: Apache-2.0
"""Control of a card that runs: the loop that sets rates, and loads and unloads chains."""
