# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from n3ic.errors import ModelError
from n3ic.model.bits import bytes_for, checked_words, pack, pad_mask, unpack, word_count


def test_bit_i_is_bit_i_mod_32_of_word_i_div_32():
    for i in (0, 1, 31, 32, 33, 63, 64, 99):
        bits = np.zeros(100, dtype=bool)
        bits[i] = True
        words = pack(bits)
        assert words.tolist() == [1 << (i % 32) if w == i // 32 else 0 for w in range(4)]


def test_padding_adds_nothing_to_a_popcount():
    x, w = pack(np.zeros(5, bool), pad=False), pack(np.zeros(5, bool), pad=True)
    assert np.bitwise_count(~(x ^ w)).sum() == 5
    assert w[0] == 0xFFFFFFE0
    assert pad_mask(5)[0] == 0x1F


@given(st.integers(1, 200), st.integers(0, 2**32 - 1), st.sampled_from([0, 1]))
def test_unpack_is_the_inverse_of_pack(n, seed, pad):
    bits = np.random.default_rng(seed).random((3, n)) < 0.5
    words = pack(bits, pad=pad)
    assert words.shape == (3, word_count(n))
    assert words.dtype == np.uint32
    assert np.array_equal(unpack(words, n), bits)


def test_unpack_refuses_a_wrong_number_of_words():
    with pytest.raises(ValueError, match="33 bits need 2 words, got 1"):
        unpack(np.zeros((1, 1), np.uint32), 33)


@pytest.mark.parametrize(
    ("largest", "size"), [(0, 1), (255, 1), (256, 2), (65535, 2), (65536, 4), (2**32 - 1, 4)]
)
def test_bytes_of_an_integer(largest, size):
    assert bytes_for(largest) == size


@pytest.mark.parametrize(("bits", "words"), [(1, 1), (31, 1), (32, 1), (33, 2), (64, 2), (65, 3)])
def test_words_of_bits(bits, words):
    assert word_count(bits) == words
    assert pack(np.zeros(bits, dtype=bool)).shape == (words,)
    assert np.bitwise_count(pad_mask(bits)).sum() == bits


def test_words_are_checked():
    good = np.array([[0xFFFFFFFF, 0x1F]], dtype=np.uint32)
    assert np.array_equal(checked_words(good, 37, "inputs"), good)
    assert checked_words(good[:0], 37, "inputs").shape == (0, 2)
    assert checked_words(good, 64, "inputs") is not None
    for pad in (5, 31):
        damaged = good | np.array([[0, 1 << pad]], dtype=np.uint32)
        with pytest.raises(ModelError, match="pad bits of inputs must be 0"):
            checked_words(np.concatenate([good, damaged]), 37, "inputs")
    for shape in ((2,), (1, 1), (1, 3), (1, 1, 2)):
        with pytest.raises(ModelError, match=r"inputs have shape \(rows, 2\), got"):
            checked_words(np.zeros(shape, dtype=np.uint32), 37, "inputs")
    with pytest.raises(ModelError, match="inputs are uint32, got int64"):
        checked_words(good.astype(np.int64), 37, "inputs")
