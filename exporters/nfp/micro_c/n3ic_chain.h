/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model-parallel mode: one network at a time is computed by a chain of executor threads.
 *
 * A dispatcher names a layer and sends a start notification to the first executor, which
 * passes it on before it works. Each executor computes the words of the layer that its place
 * in the chain gives it, and writes them to IMEM. The last one sends an end notification
 * back; each executor passes it on when its own words are written. When it reaches the
 * dispatcher, the layer is done.
 */
#ifndef N3IC_CHAIN_H
#define N3IC_CHAIN_H

#define N3IC_SIGNAL_START 1
#define N3IC_SIGNAL_END 2
#define N3IC_FIRST_EXECUTOR 2 /* contexts 0 and 1 of a micro-engine are dispatchers */

/* The layer that is being computed: its number, the dispatcher that waits for it, its input and
 * output. Layer l reads n3ic_results[l & 1] and writes the other half, so that a fast executor does
 * not overwrite what a slow one still reads. */
__declspec(shared scope(global) export imem) volatile uint32_t n3ic_job_layer;
__declspec(shared scope(global) export imem) volatile uint32_t n3ic_job_dispatcher;
__declspec(shared scope(global) export imem) volatile uint32_t n3ic_job_lock;
__declspec(shared scope(global) export imem) volatile uint32_t n3ic_results[2][N3IC_MAX_WORDS];
__declspec(shared scope(global) export imem) volatile int32_t n3ic_result_scores[N3IC_CLASSES];

__intrinsic void n3ic_notify_executor(uint32_t place, uint32_t number) {
    n3ic_signal(place / N3IC_EXECUTORS_PER_ME, N3IC_FIRST_EXECUTOR + place % N3IC_EXECUTORS_PER_ME,
                number);
}

__intrinsic void n3ic_notify_dispatcher(uint32_t place, uint32_t number) {
    n3ic_signal(place / N3IC_FIRST_EXECUTOR, place % N3IC_FIRST_EXECUTOR, number);
}

/* Computes an executor's part of the current layer; its place in the chain says which. */
static void n3ic_compute_share(uint32_t place, N3IC_STATE uint32_t *x) {
    uint32_t layer = n3ic_job_layer;
    uint32_t from = layer & 1;
    uint32_t last = layer == N3IC_LAYERS - 1;
    uint32_t words = n3ic_layer_words(layer, N3IC_INPUTS);
    uint32_t items = last ? N3IC_CLASSES : n3ic_layer_words(layer, N3IC_OUTPUTS);
    uint32_t share;
    uint32_t end;
    uint32_t k;
    uint32_t i;

    share = (items + N3IC_EXECUTORS - 1) / N3IC_EXECUTORS;
    i = place * share;
    end = i + share;
    if (end > items)
        end = items;
    if (i >= end)
        return;
    /* One copy to fast memory: each of the executor's neurons reads the whole input. */
    for (k = 0; k < words; k++)
        x[k] = n3ic_results[from][k];
    for (; i < end; i++) {
        if (last)
            n3ic_result_scores[i] = n3ic_score(i, x);
        else
            n3ic_results[from ^ 1][i] = n3ic_hidden_word(layer, i, x);
    }
}

static void n3ic_run_executor(uint32_t place) {
    N3IC_STATE uint32_t x[N3IC_MAX_WORDS];
    SIGNAL start;
    SIGNAL end;
    uint32_t i;

    for (i = 0; i < N3IC_MAX_WORDS; i++)
        x[i] = 0;
    __assign_relative_register(&start, N3IC_SIGNAL_START);
    __assign_relative_register(&end, N3IC_SIGNAL_END);
    for (;;) {
        __implicit_write(&start);
        __wait_for_all(&start);
        if (place + 1 < N3IC_EXECUTORS)
            n3ic_notify_executor(place + 1, N3IC_SIGNAL_START);
        n3ic_compute_share(place, x);
        /* The end passes from the last executor to the first, so it follows every write. */
        if (place + 1 < N3IC_EXECUTORS) {
            __implicit_write(&end);
            __wait_for_all(&end);
        }
        if (place == 0)
            n3ic_notify_dispatcher(n3ic_job_dispatcher, N3IC_SIGNAL_END);
        else
            n3ic_notify_executor(place - 1, N3IC_SIGNAL_END);
    }
}

/* The dispatcher's part: has the layers computed in turn, from packed input bits to class scores.
 */
static void n3ic_run(uint32_t place, N3IC_STATE uint32_t *x, N3IC_STATE uint32_t *y,
                     N3IC_STATE int32_t *scores) {
    SIGNAL end;
    uint32_t layer;
    uint32_t i;
#ifdef N3IC_TRACE
    uint32_t traced = 0;
#endif

    __assign_relative_register(&end, N3IC_SIGNAL_END);
    while (!n3ic_try_lock(&n3ic_job_lock))
        n3ic_pause();
    n3ic_job_dispatcher = place;
    for (i = 0; i < N3IC_INPUT_WORDS; i++)
        n3ic_results[0][i] = x[i];
    for (layer = 0; layer < N3IC_LAYERS; layer++) {
        n3ic_job_layer = layer;
        n3ic_notify_executor(0, N3IC_SIGNAL_START);
        __implicit_write(&end);
        __wait_for_all(&end);
#ifdef N3IC_TRACE
        if (layer + 1 < N3IC_LAYERS) {
            for (i = 0; i < n3ic_layer_words(layer, N3IC_OUTPUTS); i++)
                n3ic_box[place].hidden[traced++] = n3ic_results[(layer & 1) ^ 1][i];
        }
#endif
    }
    for (i = 0; i < N3IC_CLASSES; i++)
        scores[i] = n3ic_result_scores[i];
    n3ic_store(n3ic_job_lock, 0);
    (void)y; /* used in data-parallel mode */
}

#endif /* N3IC_CHAIN_H */
