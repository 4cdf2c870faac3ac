// SPDX-License-Identifier: Apache-2.0
/* The network compiled for the host: the same C as the XDP program's, without a kernel. */
#include <stddef.h>

#define NETWORK_KEEP_ROWS
#include "network.h"

const size_t network_value_bytes = sizeof(struct network);

/* Scores, classes, margins, verdicts and rows of many inputs. */
void network_run_batch(const struct network *n, const __u32 *features, size_t rows, __s32 *scores,
                       __u32 *classes, __u32 *margins, __s32 *verdicts, __u8 *selected) {
    for (size_t r = 0; r < rows; r++) {
        struct network_result out;

        network_run(n, features + r * NETWORK_FEATURES, &out);
        for (size_t c = 0; c < NETWORK_CLASSES; c++)
            scores[r * NETWORK_CLASSES + c] = out.score[c];
        classes[r] = out.class;
        margins[r] = out.margin;
        verdicts[r] = out.verdict;
        for (size_t s = 0; s < NETWORK_SELECTORS; s++)
            selected[r * NETWORK_SELECTORS + s] = out.row[s];
    }
}
