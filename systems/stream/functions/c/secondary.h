// SPDX-License-Identifier: Apache-2.0
/* A function as a secondary process of DPDK; needs DPDK's libraries. */
#ifndef N3IC_SECONDARY_H
#define N3IC_SECONDARY_H

#include <stddef.h>

/* Joins the primary process that EAL's words name; gives 0, or why not as an errno. */
int secondary_start(int words, char **word);

/* Address and size of a zone that the primary reserved; NULL where there is none. */
void *secondary_zone(const char *name, size_t *bytes);

void secondary_end(void);

#endif
