// SPDX-License-Identifier: Apache-2.0
/* A function as a secondary DPDK process; needs DPDK's libraries. */
#ifndef N3IC_SECONDARY_H
#define N3IC_SECONDARY_H

#include <stddef.h>

/* Joins the primary process that EAL's arguments name; returns 0, or an errno. */
int secondary_start(int words, char **word);

/* Address and size of a zone that the primary process reserved; NULL if it does not exist. */
void *secondary_zone(const char *name, size_t *bytes);

void secondary_end(void);

#endif
