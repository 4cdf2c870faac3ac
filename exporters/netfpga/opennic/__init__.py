# SPDX-License-Identifier: Apache-2.0
"""The user box of OpenNIC shell around the packet path."""
