/* --- features, which choices compare ----------------------------------------------------- */

/* Of each bin its least value: a cut, or 0 below all cuts. */
NET_INLINE void features_of_bins(const uint32_t (*bins)[BLOCK], uint32_t (*features)[BLOCK]) {
    for (uint32_t f = 0; f < FIELDS; f++) {
        const uint32_t *cut = cuts + fields[f].first;
        for (size_t i = 0; i < BLOCK; i++) {
            features[f][i] = bins[f][i] ? cut[bins[f][i] - 1] : 0;
        }
    }
}

/* Field by field; values of missing rows are 0. */
NET_INLINE void features_of_rows(const uint32_t *rows, size_t count, uint32_t (*features)[BLOCK]) {
    for (uint32_t f = 0; f < FIELDS; f++) {
        for (size_t i = 0; i < count; i++) {
            features[f][i] = rows[i * FIELDS + f];
        }
        for (size_t i = count; i < BLOCK; i++) {
            features[f][i] = 0;
        }
    }
}
