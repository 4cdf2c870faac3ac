# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from n3ic.errors import ExportError
from n3ic.kernel import blob
from n3ic.kernel.library import KernelError, KernelLibrary
from n3ic.model.random_models import random_model
from tests.support.kernel_models import (
    HEADER_WORDS,
    limits_at,
    put_word,
    reseal,
    small_model,
    weights_at,
    word,
)

MODEL = small_model()
BLOB = blob.dump(MODEL)
WORDS = len(BLOB) // 4
FIELDS_AT = HEADER_WORDS + 4 * len(MODEL.layers)


def test_layout_is_as_documented() -> None:
    header = [word(BLOB, i) for i in range(10)]
    cuts = sum(len(f.cuts) for f in MODEL.input.fields)
    assert BLOB[:4] == b"N3HO"
    assert BLOB[40:72].hex() == MODEL.digest
    assert header[1:] == [1, len(BLOB), 3, MODEL.input.n_bits, 5, 5, 2, cuts, 0]
    assert [word(BLOB, HEADER_WORDS + i) for i in range(4)] == [MODEL.input.n_bits, 33, 0, 0]
    layer = MODEL.hidden[0]
    at = weights_at(MODEL, 0)
    got = [word(BLOB, at + i) for i in range(layer.weight_words.size)]
    assert got == layer.weight_words.ravel().tolist()
    got = [word(BLOB, limits_at(MODEL, 0) + j) for j in range(layer.n_outputs)]
    assert got == layer.thresholds.tolist()


@pytest.mark.slow
def test_a_threshold_makes_a_blob_of_another_version(library: KernelLibrary) -> None:
    """Which a reader from before there were thresholds refuses."""
    data = blob.dump(MODEL.with_shunt(3))
    assert [word(data, i) for i in (1, 9)] == [2, 3]
    assert library.load(data).shunt == 3
    assert library.load(BLOB).shunt == 0
    for index, value, message in ((1, 1, "sizes"), (9, 0, "sizes"), (9, 2**31, "sizes")):
        with pytest.raises(KernelError, match=message):
            library.load(put_word(data, index, value))
    with pytest.raises(KernelError, match="sizes"):
        library.load(put_word(BLOB, 9, 3))
    with pytest.raises(KernelError, match="another version"):
        library.load(put_word(data, 1, 3))


def test_the_same_model_gives_the_same_bytes() -> None:
    assert blob.dump(small_model()) == BLOB


def test_too_many_layers_are_refused() -> None:
    model = random_model((*[2] * 66,), np.random.default_rng(0))
    with pytest.raises(ExportError, match="64"):
        blob.dump(model)


@pytest.mark.slow
def test_every_truncation_is_refused(library: KernelLibrary) -> None:
    for length in range(0, len(BLOB), 3):
        with pytest.raises(KernelError):
            library.load(BLOB[:length])
        if length >= 4:
            # With a checksum that fits, and with a length that fits too.
            cut = reseal(BLOB[: length - length % 4])
            with pytest.raises(KernelError):
                library.load(cut)
            if len(cut) >= 16:
                with pytest.raises(KernelError):
                    library.load(put_word(cut, 2, len(cut)))


def test_every_flipped_bit_is_seen(library: KernelLibrary) -> None:
    for at in range(len(BLOB)):
        damaged = bytearray(BLOB)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(KernelError):
            library.load(bytes(damaged))


@pytest.mark.parametrize(
    ("index", "value", "words"),
    [
        (0, 0, "not a weights file of n3ic's host target"),
        (0, int.from_bytes(b"N3NF", "little"), "weights for the NFP"),
        (1, 3, "another version"),
        (2, len(BLOB) + 4, "cut short"),
        (3, 0, "sizes"),
        (3, 65, "sizes"),
        (3, 0xFFFFFFFF, "sizes"),
        (4, 0, "sizes"),
        (4, 0xFFFFFFFF, "sizes"),
        (5, 0xFFFFFFFF, "sizes"),
        (6, 0, "sizes"),
        (6, 0x10000, "sizes"),
        (7, 1, "sizes"),
        (7, 0xFFFF, "sizes"),
        (8, 0xFFFFFFFF, "cut short"),
        (8, 0, "field"),
        (9, 1, "sizes"),
        (18, 71, "sizes"),
        (19, 0, "sizes"),
        (19, 65536, "sizes"),
        (20, 2, "sizes"),
        (21, 1, "sizes"),
        (FIELDS_AT, 5, "field"),
        (FIELDS_AT + 1, 2, "field"),
        (FIELDS_AT + 2, 0, "field"),
        (FIELDS_AT + 2, 33, "field"),
        (FIELDS_AT + 3, 65536, "field"),
        (FIELDS_AT + 20, 0, "field"),
        (FIELDS_AT + 21, 1, "field"),
        (weights_at(MODEL, 0) + 2, 0, "padding"),
        (limits_at(MODEL, 0), MODEL.input.n_bits + 2, "threshold"),
        (limits_at(MODEL, 2), 1 << 24, "bias"),
        (limits_at(MODEL, 2), -(1 << 24), "bias"),
        (limits_at(MODEL, 2) + 3, 0, "scale"),
        (limits_at(MODEL, 2) + 3, 0x7FF00000, "scale"),
        (limits_at(MODEL, 2) + 3, 0xBFF00000, "scale"),
        (limits_at(MODEL, 2) + 12, 0, "name"),
        (limits_at(MODEL, 2) + 12, 0xFFFFFFFF, "name"),
    ],
)
def test_hostile_words_are_refused_with_a_reason(
    library: KernelLibrary, index: int, value: int, words: str
) -> None:
    with pytest.raises(KernelError, match=words):
        library.load(put_word(BLOB, index, value))


@settings(max_examples=300, deadline=None)
@given(
    changes=st.lists(
        st.tuples(
            st.integers(0, WORDS - 2),
            st.one_of(st.integers(0, 70), st.integers(0, 2**32 - 1), st.sampled_from([2**31])),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_any_words_load_or_are_refused(
    library: KernelLibrary, changes: list[tuple[int, int]]
) -> None:
    data = BLOB
    for index, value in changes:
        data = put_word(data, index, value)
    try:
        net = library.load(data)
    except KernelError:
        return
    # What loads also runs.
    net.classify(np.zeros((3, net.n_words), dtype=np.uint32))
