// SPDX-License-Identifier: Apache-2.0
/* The calls of bnn.h that a card makes, of one network that is compiled in, or of the kernel. */
#ifndef NETWORK_CALLS_H
#define NETWORK_CALLS_H

#include <stddef.h>
#include <stdint.h>

struct bnn;

struct network_calls {
    int (*load)(struct bnn **out, const void *blob, size_t size);
    void (*free)(struct bnn *net);
    uint32_t (*inputs)(const struct bnn *net);
    uint32_t (*words)(const struct bnn *net);
    uint32_t (*features)(const struct bnn *net);
    uint32_t (*classes)(const struct bnn *net);
    const char *(*feature_name)(const struct bnn *net, uint32_t index);
    const char *(*model)(const struct bnn *net);
    void (*encode)(const struct bnn *net, const uint32_t *features, uint32_t *words);
    void (*infer_batch)(const struct bnn *net, const uint32_t *words, size_t rows,
                        uint32_t *classes, int32_t *margins, int32_t *scores);
};

#endif
