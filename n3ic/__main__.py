"""``python -m n3ic``."""

from n3ic.cli.main import main

main()
