# SPDX-License-Identifier: Apache-2.0
"""Templates are compiled once, whatever filters they apply."""

from jinja2 import Environment

from n3ic.util.templates import render


def halved(number: int) -> int:
    return number // 2


def doubled(number: int) -> int:
    return 2 * number


def test_a_template_is_compiled_once_for_its_filters(tmp_path, monkeypatch):
    compiled = []
    whole = Environment.compile
    monkeypatch.setattr(
        Environment, "compile", lambda *a, **k: compiled.append(a[2]) or whole(*a, **k)
    )
    (tmp_path / "n.j2").write_text("{{ n | changed }}\n")
    texts = [render(tmp_path, "n.j2", {"n": n}, {"changed": halved}) for n in (4, 6)]
    assert texts == ["2\n", "3\n"]
    assert render(tmp_path, "n.j2", {"n": 4}, {"changed": doubled}) == "8\n"
    assert compiled == ["n.j2", "n.j2"]
