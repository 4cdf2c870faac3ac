// SPDX-License-Identifier: Apache-2.0

/* Classifies rows of integer features by n3ic's plain C. */
#include <stddef.h>

#include "n3ic_model.c"

void classify_rows(const uint32_t *rows, size_t count, uint32_t *classes);

void classify_rows(const uint32_t *rows, size_t count, uint32_t *classes) {
    for (size_t i = 0; i < count; i++) {
        classes[i] = (uint32_t)n3ic_infer(rows + i * N3IC_FEATURES);
    }
}
