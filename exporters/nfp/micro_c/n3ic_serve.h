/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mailbox in IMEM: a context waits for a question in its slot, runs the network, and answers.
 * The including file defines the network's words (n3ic_words), its sizes, the sizes of the arrays
 * (N3IC_MOST_...), and which margins are left to the host (N3IC_UNDECIDED).
 */
#ifndef N3IC_SERVE_H
#define N3IC_SERVE_H

#ifndef N3IC_SCRATCH_WORDS
#define N3IC_SCRATCH_WORDS N3IC_MAX_WORDS
#endif

/* States of a slot. The asking side writes the input first, then one of the two questions. */
#define N3IC_FREE 0
#define N3IC_ASK_BITS 1
#define N3IC_ASK_FEATURES 2
#define N3IC_DONE 3

/* Stands for the class where the margin is below the threshold: the host decides the flow. */
#define N3IC_SHUNT 0xffffffffu

struct n3ic_slot {
    uint32_t state;
    uint32_t input[N3IC_ASK_WORDS]; /* packed input bits, or one word a feature */
    uint32_t result;                /* the class with the highest score, the lowest on a tie; or
                                       N3IC_SHUNT */
    int32_t margin;                 /* best score minus second best */
    int32_t scores[N3IC_MOST_CLASSES];
#ifdef N3IC_TRACE
    uint32_t bits[N3IC_ASK_WORDS];
    uint32_t hidden[N3IC_HIDDEN_WORDS];
#endif
};

__declspec(shared scope(global) export imem) volatile struct n3ic_slot n3ic_box[N3IC_SLOTS];

#ifdef N3IC_TABLES
#include "n3ic_tables.h"
#elif defined(N3IC_GRAPH)
#include "n3ic_graph.h"
#else
#include "n3ic_neuron.h"

#include "n3ic_input.h"

#if N3IC_MODEL_PARALLEL
#include "n3ic_chain.h"
#else
#include "n3ic_data.h"
#endif
#endif

/* Class of packed input bits in `x` (look-up tables: of indices), or N3IC_SHUNT. Writes the class
 * scores to `scores`; `y` is scratch memory. */
static uint32_t n3ic_classify(uint32_t place, N3IC_STATE uint32_t *x, N3IC_STATE uint32_t *y,
                              N3IC_STATE int32_t *scores, int32_t *margin) {
    uint32_t best = 0;
    int32_t distance;
    uint32_t i;

    n3ic_run(place, x, y, scores);
    for (i = 1; i < N3IC_CLASSES; i++) {
        if (scores[i] > scores[best])
            best = i;
    }
    *margin = INT32_MAX;
    for (i = 0; i < N3IC_CLASSES; i++) {
        distance = scores[best] - scores[i];
        if (i != best && distance < *margin)
            *margin = distance;
    }
    if (N3IC_UNDECIDED(*margin))
        return N3IC_SHUNT;
    return best;
}

#ifndef N3IC_NO_MAIN

/* A thread's life: wait for a question in its slot, answer it, wait again. */
static void n3ic_serve(uint32_t place) {
    N3IC_STATE uint32_t features[N3IC_MOST_FEATURES];
    N3IC_STATE uint32_t x[N3IC_MAX_WORDS];
    N3IC_STATE uint32_t y[N3IC_SCRATCH_WORDS];
    N3IC_STATE int32_t scores[N3IC_MOST_CLASSES];
    uint32_t question;
    int32_t margin;
    uint32_t i;

    for (i = 0; i < N3IC_MAX_WORDS; i++)
        x[i] = 0;
    for (i = 0; i < N3IC_SCRATCH_WORDS; i++)
        y[i] = 0;
    for (;;) {
        question = n3ic_load(n3ic_box[place].state);
        if (question != N3IC_ASK_BITS && question != N3IC_ASK_FEATURES) {
            n3ic_pause();
            continue;
        }
        if (question == N3IC_ASK_FEATURES) {
            for (i = 0; i < N3IC_FEATURES; i++)
                features[i] = n3ic_box[place].input[i];
            n3ic_encode(features, x);
        } else {
            for (i = 0; i < N3IC_INPUT_WORDS; i++)
                x[i] = n3ic_box[place].input[i];
#ifdef N3IC_TABLES
            n3ic_address(x, y);
#endif
        }
#ifdef N3IC_TRACE
        for (i = 0; i < N3IC_INPUT_WORDS; i++)
            n3ic_box[place].bits[i] = x[i];
#endif
        n3ic_box[place].result = n3ic_classify(place, x, y, scores, &margin);
        n3ic_box[place].margin = margin;
        for (i = 0; i < N3IC_CLASSES; i++)
            n3ic_box[place].scores[i] = scores[i];
        /* Last: the asking side reads the answer as soon as the state says so. */
        n3ic_store(n3ic_box[place].state, N3IC_DONE);
    }
}

#endif /* N3IC_NO_MAIN */

#endif /* N3IC_SERVE_H */
