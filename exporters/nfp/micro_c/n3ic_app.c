/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor as a program: each thread serves one slot of a mailbox in IMEM. The network can
 * thus be tried on the card without a data plane. A data plane defines N3IC_NO_MAIN, includes
 * this file and calls n3ic_encode() and n3ic_classify() itself.
 */
#include "n3ic_port.h"

#include "n3ic_config.h"
#include "n3ic_weights.h"

#define N3IC_MOST_CLASSES N3IC_CLASSES
#define N3IC_MOST_FEATURES N3IC_FEATURES
#ifdef N3IC_SHUNTS
#define N3IC_UNDECIDED(margin) ((margin) < (int32_t)n3ic_words[N3IC_WORDS - 1])
#else
#define N3IC_UNDECIDED(margin) 0
#endif

#include "n3ic_serve.h"

#ifndef N3IC_NO_MAIN

/* The part of this context of this micro-engine; contexts without one return. */
int main(void) {
#if N3IC_MODEL_PARALLEL
    if (ctx() < N3IC_FIRST_EXECUTOR) {
        if (n3ic_me() * N3IC_FIRST_EXECUTOR + ctx() < N3IC_SLOTS)
            n3ic_serve(n3ic_me() * N3IC_FIRST_EXECUTOR + ctx());
    } else if (ctx() < N3IC_FIRST_EXECUTOR + N3IC_EXECUTORS_PER_ME) {
        uint32_t place = n3ic_me() * N3IC_EXECUTORS_PER_ME + ctx() - N3IC_FIRST_EXECUTOR;

        if (place < N3IC_EXECUTORS)
            n3ic_run_executor(place);
    }
#else
    if (n3ic_me() * 8 + ctx() < N3IC_SLOTS)
        n3ic_serve(n3ic_me() * 8 + ctx());
#endif
    return 0;
}

#endif /* N3IC_NO_MAIN */
