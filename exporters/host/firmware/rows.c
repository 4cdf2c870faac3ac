// SPDX-License-Identifier: Apache-2.0

/* Calls the functions of a plain export for rows at a time; only verification compiles it. */
#include <stddef.h>

#include "n3ic_model.c"

int size_features(void);
int size_words(void);
int size_classes(void);
void run_rows(const uint32_t *bits, int rows, int32_t *scores, int32_t *verdicts);
void encode_rows(const uint32_t *features, int rows, uint32_t *bits, int32_t *verdicts);

int size_features(void) {
    return N3IC_FEATURES;
}

int size_words(void) {
    return N3IC_WORDS;
}

int size_classes(void) {
    return N3IC_CLASSES;
}

void run_rows(const uint32_t *bits, int rows, int32_t *scores, int32_t *verdicts) {
    for (ptrdiff_t i = 0; i < rows; i++) {
        n3ic_scores(bits + i * N3IC_WORDS, scores + i * N3IC_CLASSES);
        verdicts[i] = n3ic_decide(scores + i * N3IC_CLASSES);
    }
}

void encode_rows(const uint32_t *features, int rows, uint32_t *bits, int32_t *verdicts) {
    for (ptrdiff_t i = 0; i < rows; i++) {
        n3ic_encode(features + i * N3IC_FEATURES, bits + i * N3IC_WORDS);
        verdicts[i] = n3ic_infer(features + i * N3IC_FEATURES);
    }
}
