// SPDX-License-Identifier: Apache-2.0
/* Writes what the reader of flow-exec makes of each capture named: a line a packet. */
#include "capture.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t never;

static void dump(int fd) {
    const char *wrong = "";
    struct capture *c = capture_open(fd, &never, &wrong);
    struct captured f;
    int got;
    if (!c) {
        printf("refused\n");
        return;
    }
    puts("opened");
    while ((got = capture_next(c, &f, &wrong)) > 0) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < f.captured; i++) {
            sum = sum * 31 + f.bytes[i];
        }
        printf("%" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRId64 " %" PRId64 "\n", f.link,
               f.captured, f.length, sum, f.seconds, f.nanoseconds);
    }
    printf("%s\n", got ? "early" : "end");
    capture_close(c);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const int fd = open(argv[i], O_RDONLY);
        dump(fd);
        close(fd);
    }
    return 0;
}
