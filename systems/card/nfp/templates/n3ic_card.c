/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Networks of several owners in one firmware. An island keeps some of them in its CLS. Each of its
 * contexts serves one network and answers only the requests in its slot of a mailbox in IMEM. So
 * frequent requests for one network never occupy the contexts of another.
 */
#include "n3ic_port.h"

#include "n3ic_card_config.h"

/* First word of this context's network among those of the island. */
static N3IC_OF_CONTEXT uint32_t n3ic_first;

#include "n3ic_card_weights.h"

/* The context's network has the layout of a weights.bin; its header gives the sizes. */
#define n3ic_words (n3ic_island + n3ic_first)
#define N3IC_LAYERS n3ic_words[3]
#define N3IC_INPUT_WORDS ((n3ic_words[4] + 31) / 32)
#define N3IC_FEATURES n3ic_words[7]
#define N3IC_CLASSES N3IC_LAYER(N3IC_LAYERS - 1, N3IC_OUTPUTS)

/* The second layout ends in the smallest margin that is decided. */
#define N3IC_UNDECIDED(margin)                                                                     \
    (n3ic_words[1] == 2 && (margin) < (int32_t)n3ic_words[n3ic_words[2] - 1])
#define N3IC_MODEL_PARALLEL 0

#include "n3ic_serve.h"

/* Serves this context's network; a context without one returns. */
int main(void) {
    uint32_t place = n3ic_me() * 8 + ctx();
    uint32_t network = n3ic_serves[place % N3IC_CONTEXTS];

    if (network >= N3IC_NETWORKS)
        return 0;
    n3ic_first = n3ic_starts[network];
    n3ic_serve(place);
    return 0;
}
