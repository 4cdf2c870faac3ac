/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the token buckets on a host.
 *
 *     n3ic_card_rate_host THREADS < frames > answers
 *
 * A frame is its graph, its length in bytes, and its tick, the low word first. An answer is 1 if
 * the frame may pass. Each of the threads asks about every THREADS-th frame, in order.
 */
#include "../n3ic_card_rate.h"

#include <stdio.h>
#include <stdlib.h>

#define FRAME_WORDS 4
#define MOST_THREADS 16

static uint32_t *frames, *answers;
static long rows, threads;

static void *ask(void *argument) {
    const uint32_t *frame;
    long i;

    for (i = (long)argument; i < rows; i += threads) {
        frame = frames + i * FRAME_WORDS;
        answers[i] = n3ic_admit(frame[0], frame[1], (uint64_t)frame[3] << 32 | frame[2]);
    }
    return NULL;
}

int main(int argc, char **argv) {
    static uint32_t frame[FRAME_WORDS];
    pthread_t started[MOST_THREADS];
    long i;

    threads = argc == 2 ? atol(argv[1]) : 0;
    if (threads < 1 || threads > MOST_THREADS)
        return 2;
    while (fread(frame, 4, FRAME_WORDS, stdin) == FRAME_WORDS) {
        frames = realloc(frames, (rows + 1) * sizeof(frame));
        if (frames == NULL || frame[0] >= N3IC_GRAPHS)
            return 1;
        for (i = 0; i < FRAME_WORDS; i++)
            frames[rows * FRAME_WORDS + i] = frame[i];
        rows++;
    }
    answers = calloc(rows + 1, sizeof(*answers));
    if (answers == NULL)
        return 1;
    for (i = 0; i < threads; i++)
        if (pthread_create(&started[i], NULL, ask, (void *)i) != 0)
            return 1;
    for (i = 0; i < threads; i++)
        pthread_join(started[i], NULL);
    return fwrite(answers, 4, rows, stdout) != (size_t)rows || fflush(stdout) != 0;
}
