# SPDX-License-Identifier: Apache-2.0
"""Options: an option that would be ignored is an error, and a record holds those that apply."""

import pytest

from n3ic.errors import UsageError
from n3ic.options import Option, applying, parse_options

KNOWN = (
    Option("style", "how", "small", choices=("small", "large", "auto")),
    Option("lanes", "how many", 1, only_with=(("style", ("large", "auto")),)),
    Option("port", "which", 7, only_with=(("style", ("large",)), ("udp", (True,)))),
    Option("udp", "whether", False),
    Option("queue", "where", 0, newer=True),
)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"lanes": "2"}, "--lanes applies only with --style large or auto"),
        ({"lanes": "1"}, "--lanes applies only with"),  # also its default, when typed
        ({"style": "large", "port": "9"}, "--style large and --udp True"),
    ],
)
def test_an_option_that_does_not_apply_is_refused(given, text):
    with pytest.raises(UsageError, match=text):
        parse_options(KNOWN, given, "the test")


def test_what_is_recorded_parses_again():
    values = parse_options(KNOWN, {"style": "auto", "lanes": "3"}, "the test")
    assert values == {"style": "auto", "lanes": 3, "port": 7, "udp": False, "queue": 0}
    record = applying(KNOWN, values)
    assert record == {"style": "auto", "lanes": 3, "udp": False}
    assert parse_options(KNOWN, record, "the test") == values
    assert applying(KNOWN, values | {"queue": 1}) == record | {"queue": 1}
