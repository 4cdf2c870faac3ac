# SPDX-License-Identifier: Apache-2.0
"""Which text a model may carry."""

import pytest

from n3ic.errors import ModelError
from n3ic.model.text import MAX_NAME, check_text


@pytest.mark.parametrize("text", ["", "a" * (MAX_NAME + 1), "a\nb", "a\0", "\ud800", 5, None])
def test_text_that_is_refused(text):
    with pytest.raises(ModelError, match=r"^name: expected 1 to 256 printable"):
        check_text("name", text)


def test_text_of_every_length_that_is_allowed():
    for text in ("a", "a" * MAX_NAME, "ü 字"):
        check_text("name", text)
    check_text("name", "", least=0)
    check_text("name", "ab", least=2, most=2)
    for text in ("a", "abc"):
        with pytest.raises(ModelError):
            check_text("name", text, least=2, most=2)
