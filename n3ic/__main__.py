# SPDX-License-Identifier: Apache-2.0
"""``python -m n3ic``."""

from n3ic.cli.main import main

main()
