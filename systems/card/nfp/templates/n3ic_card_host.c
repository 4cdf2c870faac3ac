/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the micro-C of an island on a host, one pthread a context; see nfp_shim.h.
 *
 *     n3ic_card_host < questions > answers
 *
 * A question is a network of the island, its kind (1 bits, 2 features), and N3IC_ASK_WORDS words.
 * An answer is the result, the margin, N3IC_MOST_CLASSES scores and N3IC_HIDDEN_WORDS words.
 */
#define N3IC_TRACE 1
#define main n3ic_context
#include "../n3ic_card.c"
#undef main

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVING 2 /* contexts of a network that are run */
#define QUESTION_WORDS (2 + N3IC_ASK_WORDS)
#define ANSWER_WORDS (2 + N3IC_MOST_CLASSES + N3IC_HIDDEN_WORDS)

struct server {
    uint32_t place;
    long row; /* row that it works on, or -1 */
};

static struct server servers[N3IC_NETWORKS][SERVING];
static uint32_t counts[N3IC_NETWORKS], turns[N3IC_NETWORKS];
static uint32_t *answers;

static void fail(const char *reason) {
    fprintf(stderr, "n3ic_card_host: %s\n", reason);
    exit(1);
}

static void *context_thread(void *argument) {
    struct server *server = argument;

    shim_me = server->place / 8;
    shim_context = server->place % 8;
    n3ic_context();
    return NULL;
}

static void start(uint32_t network, uint32_t place) {
    struct server *server = &servers[network][counts[network]++];
    pthread_t thread;

    server->place = place;
    server->row = -1;
    if (pthread_create(&thread, NULL, context_thread, server) != 0)
        fail("cannot start a thread");
}

static void collect(struct server *server) {
    volatile struct n3ic_slot *slot = &n3ic_box[server->place];
    uint32_t *words;
    uint32_t i;

    if (server->row < 0)
        return;
    while (n3ic_load(slot->state) != N3IC_DONE)
        n3ic_pause();
    words = answers + server->row * ANSWER_WORDS;
    *words++ = slot->result;
    *words++ = (uint32_t)slot->margin;
    for (i = 0; i < N3IC_MOST_CLASSES; i++)
        *words++ = (uint32_t)slot->scores[i];
    for (i = 0; i < N3IC_HIDDEN_WORDS; i++)
        *words++ = slot->hidden[i];
    n3ic_store(slot->state, N3IC_FREE);
    server->row = -1;
}

int main(void) {
    static uint32_t question[QUESTION_WORDS];
    struct server *server;
    long rows = 0;
    uint32_t i, k;

    for (i = 0; i < N3IC_CONTEXTS; i++)
        if (n3ic_serves[i] < N3IC_NETWORKS && counts[n3ic_serves[i]] < SERVING)
            start(n3ic_serves[i], N3IC_ISLAND * N3IC_CONTEXTS + i);
    while (fread(question, 4, QUESTION_WORDS, stdin) == QUESTION_WORDS) {
        if (question[0] >= N3IC_NETWORKS || counts[question[0]] == 0)
            fail("no such network in this island");
        answers = realloc(answers, (rows + 1) * ANSWER_WORDS * sizeof(*answers));
        if (answers == NULL)
            fail("out of memory");
        server = &servers[question[0]][turns[question[0]]++ % counts[question[0]]];
        collect(server);
        for (i = 0; i < N3IC_ASK_WORDS; i++)
            n3ic_box[server->place].input[i] = question[2 + i];
        server->row = rows++;
        n3ic_store(n3ic_box[server->place].state, question[1]);
    }
    for (i = 0; i < N3IC_NETWORKS; i++)
        for (k = 0; k < counts[i]; k++)
            collect(&servers[i][k]);
    if (fwrite(answers, 4 * ANSWER_WORDS, rows, stdout) != (size_t)rows || fflush(stdout) != 0)
        fail("cannot write the answers");
    exit(0);
}
