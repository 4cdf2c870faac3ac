# SPDX-License-Identifier: Apache-2.0
"""An interpreter of the P4_16 subset that n3ic emits: v1model and SimpleSumeSwitch."""

from n3ic.exporters.p4.interpreter.errors import P4Error
from n3ic.exporters.p4.interpreter.switch import Switch, SwitchOutcome

__all__ = ["P4Error", "Switch", "SwitchOutcome"]
