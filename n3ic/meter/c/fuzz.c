// SPDX-License-Identifier: Apache-2.0
/*
 * Feeds a generated meter from standard input, for fuzzers and sanitizers: per frame its captured
 * bytes and its length (32 bits each), its time (64 bits), and the captured bytes themselves.
 */
#include <stdio.h>

#include "meter.c"

int main(void) {
    struct meter *m = meter_open(LINK_ETHERNET, (const uint64_t[]){1, 2});
    uint32_t sizes[2];
    uint64_t time, records = 0;
    size_t n;

    if (!m)
        return 1;
    while (fread(sizes, sizeof sizes, 1, stdin) == 1 && fread(&time, sizeof time, 1, stdin) == 1) {
        uint64_t at = 0;
        uint8_t *frame;

        if (sizes[0] > 1u << 18)
            break;
        frame = malloc(sizes[0] ? sizes[0] : 1); /* of its exact size, so that overruns show */
        if (!frame || fread(frame, 1, sizes[0], stdin) != sizes[0]) {
            free(frame);
            break;
        }
        meter_count(m, 1, frame, &at, &sizes[0], &sizes[1], &time);
        meter_records(m, &n);
        records += n;
        free(frame);
    }
    meter_finish(m, SIZE_MAX);
    meter_records(m, &n);
    printf("%llu\n", (unsigned long long)(records + n));
    meter_close(m);
    return 0;
}
