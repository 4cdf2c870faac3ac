// SPDX-License-Identifier: Apache-2.0
/* Lines of CSV, one for each decided flow; n3ic predict CAPTURE writes the same bytes. */
#ifndef N3IC_LINES_H
#define N3IC_LINES_H

#include "bnn.h"
#include "meter.h"

#include <stdio.h>

/* Where lines go, and what they hold besides key, times and verdict. */
struct lines {
    FILE *to;
    const struct bnn *net;
    int registers, features, bits;
};

struct verdict {
    uint32_t class; /* or BNN_SHUNT */
    int32_t margin;
    const int32_t *scores;
    const uint32_t *words; /* the network's input */
};

void lines_header(const struct lines *l);
void lines_write(const struct lines *l, uint64_t row, const struct record *r,
                 const struct verdict *v);

#endif
