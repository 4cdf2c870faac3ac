# SPDX-License-Identifier: Apache-2.0
"""The stand-ins for p4c and bmv2."""

from tests.support.p4_stand_ins import stand_ins

__all__ = ["stand_ins"]
