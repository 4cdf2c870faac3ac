// SPDX-License-Identifier: Apache-2.0
/* From columns of a table to lines of CSV: what `n3ic predict` runs on the host's network. */
#ifndef N3IC_STREAM_H
#define N3IC_STREAM_H

#include "bnn.h"

/* A field of the input, as the weights file has it. */
struct stream_field {
    uint32_t column; /* index of its feature's column */
    uint32_t is_thermometer;
    uint32_t width;
    uint32_t clamp;
};

/* A table, and how its columns become input bits. */
struct stream_input {
    const uint32_t *const *columns; /* `rows` integers each */
    const struct stream_field *fields;
    const uint32_t *cuts; /* of the thermometer fields, one after the other */
    uint64_t n_fields;
};

/*
 * Classifies rows, and writes a line for each: its number, the name of its class (or of the shunt),
 * the margin and a score a class.
 *
 * first:   number of the first row.
 * names:   what to write for each class, ready for CSV; after them what to write for the shunt,
 *          where the network has a threshold.
 * text:    holds rows * (64 + longest name + 12 * classes) bytes at least.
 * counts:  rows of each name, added to what is there.
 *
 * Returns the bytes written, or SIZE_MAX where there is no memory.
 */
size_t stream_lines(const struct bnn *net, const struct stream_input *in, size_t rows,
                    uint64_t first, const char *const *names, char *text, uint64_t *counts);

#endif
