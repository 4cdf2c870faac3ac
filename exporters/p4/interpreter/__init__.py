"""An interpreter of the P4_16 subset that n3ic emits: v1model and SimpleSumeSwitch."""

from n3ic.exporters.p4.interpreter.errors import P4Error
from n3ic.exporters.p4.interpreter.switch import Outcome, Switch

__all__ = ["Outcome", "P4Error", "Switch"]
