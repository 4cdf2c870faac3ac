# SPDX-License-Identifier: Apache-2.0
"""The packet path with registers between streams of 512 bits, as shells have them."""
