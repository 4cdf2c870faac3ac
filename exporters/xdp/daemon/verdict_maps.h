// SPDX-License-Identifier: Apache-2.0
/* Verdicts of the operator: how they are stored, removed and listed. See c/state.h. */
#ifndef N3ICD_VERDICT_MAPS_H
#define N3ICD_VERDICT_MAPS_H

#include "kernel.h"
#include "text.h"

/* What a verdict is on: a flow, or the sources of a prefix. */
struct target {
    int flow;
    struct key key;       /* of a flow, canonical */
    struct prefix prefix; /* of sources */
    uint32_t bits;        /* of the prefix's address; 0 for a flow */
};

/* Reads an address, a prefix or a flow as typed; 0 with a message if it is not one. */
int target_read(struct target *out, const char *typed);

/* Writes a target as it is read. */
void target_write(struct text *out, const struct target *t);

/* Puts a verdict into its map; 0 with a message if the kernel refuses. */
int verdict_put(const struct kernel *k, const struct target *t, uint32_t action, uint32_t argument,
                uint64_t until);

/* Order of the bytes, for qsort and bsearch. */
int prefix_compare(const void *a, const void *b);

/*
 * Makes the verdicts by a file those on the prefixes of an allow or block list, which are sorted,
 * each once. What the operator set stays. 0 with a message if the list has no room for all, and
 * then nothing was changed, or if the kernel refuses.
 */
int verdict_put_list(const struct kernel *k, uint32_t action, const struct prefix *prefix,
                     uint32_t count, const char *path);

/* A verdict that the operator wants on a prefix. */
struct wish {
    struct prefix prefix;
    uint64_t until;
};

/*
 * Puts verdicts of the operator on prefixes, each of which is named once; sorts them. One that has
 * the same verdict already keeps its counts. 0 with a message if the list has no room for all of
 * them, and then nothing was changed, or if the kernel refuses. `fresh`: those that had none.
 */
int verdict_put_many(const struct kernel *k, uint32_t action, uint32_t argument, struct wish *wish,
                     uint32_t count, uint32_t *fresh);

/* Copies all entries of the maps of verdicts: see `list` in control.h. 0 with a message. */
int verdict_dump(const struct kernel *k, struct text *out);

/* Removes verdicts, those that allow or all others; their number, or -1 if the kernel refuses. */
int verdict_remove(const struct kernel *k, const struct target *t, int allowed);

/* Calls a function with each verdict that holds. */
typedef void verdict_visitor(void *context, const struct target *t, const struct verdict *v);
void verdict_each(const struct kernel *k, verdict_visitor *visit, void *context);

#endif
