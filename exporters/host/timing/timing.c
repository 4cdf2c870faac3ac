// SPDX-License-Identifier: Apache-2.0
/* Times a kernel: single calls, batches, and calls that each wait for the previous one. */
#define _POSIX_C_SOURCE 200809L

#include "bnn.h"

#include <stdint.h>
#include <time.h>

double timing_batches(const struct bnn *net, const uint32_t *words, size_t rows, size_t batch,
                      uint32_t repeats, uint32_t *classes, int32_t *margins);
double timing_features(const struct bnn *net, const uint32_t *features, size_t rows, size_t batch,
                       uint32_t repeats, uint32_t *classes, int32_t *margins);
double timing_dependent(const struct bnn *net, const uint32_t *words, size_t rows,
                        uint32_t repeats);

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Nanoseconds per inference, the fastest of `repeats` passes over all rows. */
double timing_batches(const struct bnn *net, const uint32_t *words, size_t rows, size_t batch,
                      uint32_t repeats, uint32_t *classes, int32_t *margins) {
    const uint32_t width = bnn_words(net);
    double best = 0;
    for (uint32_t i = 0; i < repeats; i++) {
        const double start = now_ns();
        if (batch == 1) {
            for (size_t r = 0; r < rows; r++) {
                classes[r] = bnn_infer(net, words + r * width, &margins[r]);
            }
        } else {
            for (size_t r = 0; r < rows; r += batch) {
                const size_t n = rows - r < batch ? rows - r : batch;
                bnn_infer_batch(net, words + r * width, n, classes + r, margins + r, NULL);
            }
        }
        const double took = (now_ns() - start) / (double)rows;
        if (i == 0 || took < best) {
            best = took;
        }
    }
    return best;
}

/* As timing_batches(), from integer features. */
double timing_features(const struct bnn *net, const uint32_t *features, size_t rows, size_t batch,
                       uint32_t repeats, uint32_t *classes, int32_t *margins) {
    const uint32_t width = bnn_features(net);
    double best = 0;
    for (uint32_t i = 0; i < repeats; i++) {
        const double start = now_ns();
        for (size_t r = 0; r < rows; r += batch) {
            const size_t n = rows - r < batch ? rows - r : batch;
            bnn_run_batch(net, features + r * width, n, classes + r, margins + r, NULL);
        }
        const double took = (now_ns() - start) / (double)rows;
        if (i == 0 || took < best) {
            best = took;
        }
    }
    return best;
}

/* The class of each row chooses the next row, so that no two inferences overlap in the CPU. `rows`
 * must be a power of two. */
double timing_dependent(const struct bnn *net, const uint32_t *words, size_t rows,
                        uint32_t repeats) {
    const uint32_t width = bnn_words(net);
    double best = 0;
    for (uint32_t i = 0; i < repeats; i++) {
        const double start = now_ns();
        size_t at = 0;
        for (size_t r = 0; r < rows; r++) {
            at = (at + 1 + bnn_infer(net, words + at * width, NULL)) & (rows - 1);
        }
        const double took = (now_ns() - start) / (double)rows;
        if (i == 0 || took < best) {
            best = took;
        }
    }
    return best;
}
