/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data-parallel mode: each thread runs a whole network.
 */
#ifndef N3IC_DATA_H
#define N3IC_DATA_H

/* Computes the layers in turn, from packed input bits in `x` to class scores. Overwrites `x` and
 * `y`: every word of a layer reads all of `x`, so its outputs wait in `y`. */
static void n3ic_run(uint32_t place, N3IC_STATE uint32_t *x, N3IC_STATE uint32_t *y,
                     N3IC_STATE int32_t *scores) {
    uint32_t layer;
    uint32_t words;
    uint32_t i;
#ifdef N3IC_TRACE
    uint32_t traced = 0;
#endif

    for (layer = 0; layer + 1 < N3IC_LAYERS; layer++) {
        words = n3ic_layer_words(layer, N3IC_OUTPUTS);
        for (i = 0; i < words; i++)
            y[i] = n3ic_hidden_word(layer, i, x);
        for (i = 0; i < words; i++) {
            x[i] = y[i];
#ifdef N3IC_TRACE
            n3ic_box[place].hidden[traced++] = y[i];
#endif
        }
    }
    for (i = 0; i < N3IC_CLASSES; i++)
        scores[i] = n3ic_score(i, x);
    (void)place;
}

#endif /* N3IC_DATA_H */
