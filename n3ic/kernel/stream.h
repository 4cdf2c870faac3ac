// SPDX-License-Identifier: Apache-2.0
/* From a table's columns to input bits and lines of CSV: the code around the kernel. */
#ifndef N3IC_STREAM_H
#define N3IC_STREAM_H

#include "bnn.h"

/* A field of the input, as in the weights file. */
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

/* Packs each row's input bits into n_words words. Returns 0, or -1 if memory is insufficient. */
int stream_encode(const struct stream_input *in, size_t rows, uint32_t n_words, uint32_t *packed);

/*
 * Classifies rows, and writes a line for each: its number, the name of its class (or of the shunt),
 * the margin and one score per class.
 *
 * first:   number of the first row.
 * names:   the text for each class, ready for CSV; then that for the shunt, if the network has a
 *          threshold.
 * text:    buffer of at least rows * (64 + longest name + 12 * classes) bytes.
 * counts:  incremented by the number of rows of each name.
 *
 * Returns the number of bytes written, or SIZE_MAX if memory is insufficient.
 */
size_t stream_lines(const struct bnn *net, const struct stream_input *in, size_t rows,
                    uint64_t first, const char *const *names, char *text, uint64_t *counts);

#endif
