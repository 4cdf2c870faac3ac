"""Templates of generated files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

TEMPLATES = Path(__file__).resolve().parent / "templates"


def render(name: str, values: Mapping[str, Any]) -> str:
    """A template of ``templates/`` with its values filled in."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Verilog and Markdown, no HTML
    )
    return environment.get_template(name).render(**values)
