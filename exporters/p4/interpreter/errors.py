# SPDX-License-Identifier: Apache-2.0
"""The error of the P4 interpreter."""

from __future__ import annotations

from n3ic.errors import VerifyError


class P4Error(VerifyError):
    """A P4 compiler or switch would refuse a program, an entry or an execution.

    Attributes:
        line: source line; 0 if unknown.
    """

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {message}" if line else message)
        self.line = line
