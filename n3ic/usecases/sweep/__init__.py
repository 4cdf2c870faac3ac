# SPDX-License-Identifier: Apache-2.0
"""Networks of many sizes: trained side by side, and which of them are worth their cost."""
