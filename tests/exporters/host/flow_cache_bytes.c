// SPDX-License-Identifier: Apache-2.0
/* Writes how many bytes the flow cache of a generated meter takes. */
#include <stdio.h>

#include "meter.c"

int main(void) {
    struct meter *m = meter_open(LINK_ETHERNET, (const uint64_t[]){1, 2});
    if (!m) {
        return 1;
    }
    printf("%zu\n", METER_CACHE_FLOWS * (sizeof *m->flows + sizeof *m->ages) +
                        (m->mask + 1) * sizeof *m->buckets);
    meter_close(m);
    return 0;
}
