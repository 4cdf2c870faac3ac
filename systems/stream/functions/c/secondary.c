// SPDX-License-Identifier: Apache-2.0
/* Maps what a manager with huge pages shares, as a secondary DPDK process. */
#include "secondary.h"

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_memzone.h>

int secondary_start(int words, char **word) {
    return rte_eal_init(words, word) < 0 ? rte_errno : 0;
}

void *secondary_zone(const char *name, size_t *bytes) {
    const struct rte_memzone *zone = rte_memzone_lookup(name);
    *bytes = zone ? zone->len : 0;
    return zone ? zone->addr : NULL;
}

void secondary_end(void) {
    rte_eal_cleanup();
}
