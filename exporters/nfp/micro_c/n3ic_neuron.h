/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The neurons: Algorithm 1 with a block size of 32 and a threshold for each neuron.
 *
 * All parameters are in n3ic_words (n3ic_weights.h), which has the layout of weights.bin: a
 * header, four words for each layer, and one row for each neuron. A row is the threshold (or a
 * class's bias), the weights, and in a masked layer the mask.
 */
#ifndef N3IC_NEURON_H
#define N3IC_NEURON_H

#define N3IC_LAYER(layer, item) (n3ic_words[16 + 4 * (layer) + (item)])
#define N3IC_INPUTS 0
#define N3IC_OUTPUTS 1
#define N3IC_ROWS 2
#define N3IC_MASKED 3

#define N3IC_WORDS_OF(bits) (((bits) + 31) / 32)

/* Words of a layer's input or output; bounded, so that wrong weights overrun no array. */
__intrinsic uint32_t n3ic_layer_words(uint32_t layer, uint32_t item) {
    uint32_t words = N3IC_WORDS_OF(N3IC_LAYER(layer, item));

    return words < N3IC_MAX_WORDS ? words : N3IC_MAX_WORDS;
}

/* The place of a neuron's row in n3ic_words. */
__intrinsic uint32_t n3ic_row_place(uint32_t layer, uint32_t neuron) {
    uint32_t words = n3ic_layer_words(layer, N3IC_INPUTS);

    if (N3IC_LAYER(layer, N3IC_MASKED))
        words += words;
    return N3IC_LAYER(layer, N3IC_ROWS) + neuron * (words + 1);
}

/* popcount(XNOR(w, x) & mask) of the neuron at `row`. Padding never agrees: its weights are 1 and
 * its inputs 0. */
__intrinsic uint32_t n3ic_count_agreements(uint32_t row, uint32_t words, uint32_t masked,
                                           N3IC_STATE uint32_t *x) {
    uint32_t count = 0;
    uint32_t same;
    uint32_t i;

    for (i = 0; i < words; i++) {
        same = ~(n3ic_words[row + 1 + i] ^ x[i]);
        if (masked)
            same &= n3ic_words[row + 1 + words + i];
        count += n3ic_popcount(same);
    }
    return count;
}

/* Output word `word` of a hidden layer: bit j % 32 is neuron j, for up to 32 neurons. */
static uint32_t n3ic_hidden_word(uint32_t layer, uint32_t word, N3IC_STATE uint32_t *x) {
    uint32_t words = n3ic_layer_words(layer, N3IC_INPUTS);
    uint32_t masked = N3IC_LAYER(layer, N3IC_MASKED);
    uint32_t neurons = N3IC_LAYER(layer, N3IC_OUTPUTS) - 32 * word;
    uint32_t row = n3ic_row_place(layer, 32 * word);
    uint32_t stride = 1 + (masked ? 2 * words : words);
    uint32_t fired = 0;
    uint32_t bit;

    if (neurons > 32)
        neurons = 32;
    for (bit = 0; bit < neurons; bit++) {
        if (n3ic_count_agreements(row, words, masked, x) >= n3ic_words[row])
            fired |= (uint32_t)1 << bit;
        row += stride;
    }
    return fired;
}

/* Score of a class: agreements and bias. The unsigned sum wraps, so a negative bias in two's
 * complement is right. */
static int32_t n3ic_score(uint32_t index, N3IC_STATE uint32_t *x) {
    uint32_t layer = N3IC_LAYERS - 1;
    uint32_t words = n3ic_layer_words(layer, N3IC_INPUTS);
    uint32_t row = n3ic_row_place(layer, index);

    return (int32_t)(n3ic_count_agreements(row, words, N3IC_LAYER(layer, N3IC_MASKED), x) +
                     n3ic_words[row]);
}

#endif /* N3IC_NEURON_H */
