// SPDX-License-Identifier: Apache-2.0

/* Classifies rows by the C of m2cgen, which is included as forest.c; FEATURES and CLASSES are
 * defined on the command line. */
#include <stddef.h>
#include <stdint.h>

#include "forest.c"

void classify_rows(double *rows, size_t count, uint32_t *classes);

void classify_rows(double *rows, size_t count, uint32_t *classes) {
    for (size_t i = 0; i < count; i++) {
        double shares[CLASSES];
        uint32_t best = 0;
        score(rows + i * FEATURES, shares);
        for (uint32_t k = 1; k < CLASSES; k++) {
            best = shares[k] > shares[best] ? k : best;
        }
        classes[i] = best;
    }
}
