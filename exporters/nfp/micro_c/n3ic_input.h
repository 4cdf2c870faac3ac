/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input stage: integer features to packed input bits.
 *
 * n3ic_words[5] counts the fields and n3ic_words[6] is the place of the first. A field has five
 * words: index of the feature, kind (0 binary, 1 thermometer), width in bits, largest value, and
 * the place of a thermometer's cuts.
 */
#ifndef N3IC_INPUT_H
#define N3IC_INPUT_H

static void n3ic_encode(N3IC_STATE uint32_t *features, N3IC_STATE uint32_t *x) {
    uint32_t field = n3ic_words[6];
    uint32_t fields = n3ic_words[5];
    uint32_t bit = 0;
    uint32_t value;
    uint32_t width;
    uint32_t i;
    uint32_t k;

    for (i = 0; i < N3IC_INPUT_WORDS; i++)
        x[i] = 0;
    for (i = 0; i < fields; i++) {
        value = features[n3ic_words[field]];
        width = n3ic_words[field + 2];
        if (value > n3ic_words[field + 3])
            value = n3ic_words[field + 3];
        if (n3ic_words[field + 1] == 0) {
            x[bit / 32] |= value << (bit % 32);
            /* A field in two words has bit % 32 > 0, so the shift is below 32, as C demands. */
            if (bit % 32 + width > 32 && bit / 32 + 1 < N3IC_INPUT_WORDS)
                x[bit / 32 + 1] |= value >> (32 - bit % 32);
            bit += width;
        } else {
            for (k = 0; k < width; k++) {
                if (value >= n3ic_words[n3ic_words[field + 4] + k])
                    x[bit / 32] |= (uint32_t)1 << (bit % 32);
                bit++;
            }
        }
        field += 5;
    }
}

#endif /* N3IC_INPUT_H */
