// SPDX-License-Identifier: Apache-2.0

/* --- features, which choices compare ----------------------------------------------------- */

/* Of each bin its least value: a cut, or 0 below all cuts. */
NET_INLINE void features_of_bins(const uint32_t (*bins)[BLOCK], size_t rows,
                                 uint32_t (*features)[BLOCK]) {
    for (uint32_t f = 0; f < FIELDS; f++) {
        const uint32_t *cut = cuts + fields[f].first;
        for (size_t i = 0; i < rows; i++) {
            features[f][i] = bins[f][i] ? cut[bins[f][i] - 1] : 0;
        }
    }
}

/* Field by field; values from row `count` to `rows` are 0. */
NET_INLINE void features_of_rows(const uint32_t *input, size_t count, size_t rows,
                                 uint32_t (*features)[BLOCK]) {
    for (uint32_t f = 0; f < FIELDS; f++) {
        for (size_t i = 0; i < count; i++) {
            features[f][i] = input[i * FIELDS + f];
        }
        for (size_t i = count; i < rows; i++) {
            features[f][i] = 0;
        }
    }
}
