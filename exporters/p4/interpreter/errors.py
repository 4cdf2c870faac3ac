"""The error of the P4 interpreter."""

from __future__ import annotations

from n3ic.errors import VerifyError


class P4Error(VerifyError):
    """A program, an entry or an execution that a P4 compiler or switch would refuse.

    Attributes:
        line: source line, or 0 where there is none.
    """

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {message}" if line else message)
        self.line = line
