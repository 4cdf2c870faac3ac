"""Inputs that decide: the edges of an input stage."""

import numpy as np

from n3ic.model.boundary import boundary_features
from n3ic.model.inputs import Field, InputSpec


def test_each_edge_of_each_field_is_there():
    spec = InputSpec(
        (
            Field.thermometer("a", (1, 50, 2**32 - 1)),
            Field.binary("b", 8),
            Field("c", "binary", 8, 200),
            Field.thermometer("a", (7,)),
        )
    )
    rows = boundary_features(spec)
    assert len({len(v) for v in rows.values()}) == 1
    assert set(rows["a"]) == {0, 1, 2, 6, 7, 8, 49, 50, 51, 2**32 - 2, 2**32 - 1}
    assert {0, 127, 128, 254, 255, 256, 2**32 - 1} <= set(rows["b"])
    assert {199, 200, 201} <= set(rows["c"])
    again = boundary_features(spec)
    assert all(np.array_equal(rows[name], again[name]) for name in rows)


def test_two_features_take_different_values():
    spec = InputSpec((Field.binary("a", 16), Field.binary("b", 16)))
    rows = boundary_features(spec)
    assert (rows["a"] != rows["b"]).mean() > 0.5
