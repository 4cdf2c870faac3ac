/*
 * Several owners' networks in one firmware. An island keeps some of them in its CLS, and each of
 * its contexts serves one of them: it answers what is asked in its slot of a mailbox in IMEM, and
 * nothing else. Who asks one network fast keeps the contexts of no other one busy.
 */
#include "n3ic_port.h"

#include "n3ic_card_config.h"

/* First word of this context's network among those of the island. */
static N3IC_OF_CONTEXT uint32_t n3ic_first;

#include "n3ic_card_weights.h"

/* The network of this context has the layout of a weights.bin: sizes come from its header. */
#define n3ic_words (n3ic_island + n3ic_first)
#define N3IC_LAYERS n3ic_words[3]
#define N3IC_INPUT_WORDS ((n3ic_words[4] + 31) / 32)
#define N3IC_FEATURES n3ic_words[7]
#define N3IC_CLASSES N3IC_LAYER(N3IC_LAYERS - 1, N3IC_OUTPUTS)

/* States of a slot: whoever asks writes input first, then one of the two questions. */
#define N3IC_FREE 0
#define N3IC_ASK_BITS 1
#define N3IC_ASK_FEATURES 2
#define N3IC_DONE 3

/* In place of a class: the margin is below the threshold, the host decides the flow. */
#define N3IC_SHUNT 0xffffffffu

struct n3ic_slot {
    uint32_t state;
    uint32_t input[N3IC_ASK_WORDS]; /* packed input bits, or one word a feature */
    uint32_t result;                /* class with the highest score, or N3IC_SHUNT */
    int32_t margin;                 /* best score minus second best */
    int32_t scores[N3IC_MOST_CLASSES];
#ifdef N3IC_TRACE
    uint32_t hidden[N3IC_HIDDEN_WORDS];
#endif
};

__declspec(shared scope(global) export imem) volatile struct n3ic_slot n3ic_box[N3IC_SLOTS];

#include "n3ic_neuron.h"

#include "n3ic_input.h"

#include "n3ic_data.h"

static uint32_t n3ic_classify(uint32_t place, N3IC_STATE uint32_t *x, N3IC_STATE uint32_t *y,
                              N3IC_STATE int32_t *scores, int32_t *margin) {
    uint32_t classes = N3IC_CLASSES;
    uint32_t best = 0;
    int32_t distance;
    uint32_t i;

    n3ic_run(place, x, y, scores);
    for (i = 1; i < classes; i++) {
        if (scores[i] > scores[best])
            best = i;
    }
    *margin = INT32_MAX;
    for (i = 0; i < classes; i++) {
        distance = scores[best] - scores[i];
        if (i != best && distance < *margin)
            *margin = distance;
    }
    /* The second layout ends in the smallest margin that is decided. */
    if (n3ic_words[1] == 2 && *margin < (int32_t)n3ic_words[n3ic_words[2] - 1])
        return N3IC_SHUNT;
    return best;
}

/* A context's life: wait for a question in its slot, answer it, wait again. */
static void n3ic_serve(uint32_t place) {
    N3IC_STATE uint32_t features[N3IC_MOST_FEATURES];
    N3IC_STATE uint32_t x[N3IC_MAX_WORDS];
    N3IC_STATE uint32_t y[N3IC_MAX_WORDS];
    N3IC_STATE int32_t scores[N3IC_MOST_CLASSES];
    uint32_t asked;
    int32_t margin;
    uint32_t i;

    for (i = 0; i < N3IC_MAX_WORDS; i++)
        x[i] = y[i] = 0;
    for (;;) {
        asked = n3ic_load(n3ic_box[place].state);
        if (asked != N3IC_ASK_BITS && asked != N3IC_ASK_FEATURES) {
            n3ic_pause();
            continue;
        }
        if (asked == N3IC_ASK_FEATURES) {
            for (i = 0; i < N3IC_FEATURES; i++)
                features[i] = n3ic_box[place].input[i];
            n3ic_encode(features, x);
        } else {
            for (i = 0; i < N3IC_INPUT_WORDS; i++)
                x[i] = n3ic_box[place].input[i];
        }
        n3ic_box[place].result = n3ic_classify(place, x, y, scores, &margin);
        n3ic_box[place].margin = margin;
        for (i = 0; i < N3IC_CLASSES; i++)
            n3ic_box[place].scores[i] = scores[i];
        n3ic_store(n3ic_box[place].state, N3IC_DONE);
    }
}

/* What this context does; one that no network has returns. */
int main(void) {
    uint32_t place = n3ic_me() * 8 + ctx();
    uint32_t network = n3ic_serves[place % N3IC_CONTEXTS];

    if (network >= N3IC_NETWORKS)
        return 0;
    n3ic_first = n3ic_starts[network];
    n3ic_serve(place);
    return 0;
}
