// SPDX-License-Identifier: Apache-2.0
/* Memory that functions map: one piece for all packets, and one for each function. */
#ifndef N3IC_MEMORY_H
#define N3IC_MEMORY_H

#include "settings.h"

#include <rte_mempool.h>
#include <stddef.h>

struct shared_memory {
    char *base;
    size_t bytes;
    int file;      /* the file that functions map, or -1 */
    int readable;  /* the same file, for reading only, or -1 */
    char zone[32]; /* name of DPDK's memory zone, or "" */
};

/* Allocates zeroed memory; exits if there is not enough. */
struct shared_memory memory_new(enum memory kind, const char *name, size_t bytes);
void memory_free(struct shared_memory *m);

/* Makes a pool whose packet buffers lie in memory of the kind that *s names, and sets *m to it. */
struct rte_mempool *memory_pool(const struct settings *s, struct shared_memory *m);

#endif
