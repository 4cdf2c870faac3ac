import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from n3ic.model.bits import pack, pad_mask, unpack, word_count


def test_bit_i_is_bit_i_mod_32_of_word_i_div_32():
    for i in (0, 1, 31, 32, 33, 63, 64, 99):
        bits = np.zeros(100, dtype=bool)
        bits[i] = True
        words = pack(bits)
        assert words.tolist() == [1 << (i % 32) if w == i // 32 else 0 for w in range(4)]


def test_padding_adds_nothing_to_a_popcount():
    x, w = pack(np.zeros(5, bool), pad=0), pack(np.zeros(5, bool), pad=1)
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
