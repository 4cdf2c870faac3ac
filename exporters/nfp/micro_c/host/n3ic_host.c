/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the micro-C of the parent folder on a host, one pthread a context.
 *
 *     n3ic_host bits|features weights.bin < questions > answers
 *
 * Questions are 32-bit words in the host's byte order: the packed input bits of a row, or its
 * features. An answer is the class, the margin, the scores, the packed input bits, and the
 * packed outputs of each hidden layer. weights.bin must hold the words that were compiled in.
 */
#define N3IC_TRACE 1
#define main n3ic_context
#include "../n3ic_app.c"
#undef main

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two slots: one is filled and read while the other one's network runs. */
#define HOST_SLOTS (N3IC_SLOTS < 2 ? N3IC_SLOTS : 2)
#define ANSWER_WORDS (2 + N3IC_CLASSES + N3IC_INPUT_WORDS + N3IC_HIDDEN_WORDS)

static void fail(const char *reason) {
    fprintf(stderr, "n3ic_host: %s\n", reason);
    exit(1);
}

#define HOST_MAGIC 0x4f48334eu /* "N3HO": weights of the host target */

static void check_weights(const char *path) {
    FILE *file = fopen(path, "rb");
    unsigned char octets[4];
    unsigned long i;
    uint32_t word;

    if (file == NULL)
        fail("cannot open the weights");
    for (i = 0; i < N3IC_WORDS; i++) {
        if (fread(octets, 1, 4, file) != 4)
            fail("weights.bin is shorter than n3ic_weights.h");
        word = (uint32_t)octets[0] | (uint32_t)octets[1] << 8 | (uint32_t)octets[2] << 16 |
               (uint32_t)octets[3] << 24;
        if (i == 0 && word == HOST_MAGIC)
            fail("weights.bin is of the host target; expected that of n3ic export --target nfp");
        if (word != n3ic_words[i]) {
            fprintf(stderr, "n3ic_host: weights.bin differs from n3ic_weights.h at word %lu\n", i);
            exit(2);
        }
    }
    if (fgetc(file) != EOF)
        fail("weights.bin is longer than n3ic_weights.h");
    fclose(file);
}

struct identity {
    uint32_t me;
    uint32_t context;
};

static void *context_thread(void *argument) {
    struct identity *identity = argument;

    shim_me = identity->me;
    shim_context = identity->context;
    n3ic_context();
    return NULL;
}

static void start_context(uint32_t me, uint32_t context) {
    struct identity *identity = malloc(sizeof(*identity));
    pthread_attr_t attributes;
    pthread_t thread;

    if (identity == NULL || me >= SHIM_MES || context >= SHIM_CONTEXTS)
        fail("more contexts are needed than the NFP has");
    identity->me = me;
    identity->context = context;
    if (pthread_attr_init(&attributes) != 0 ||
        pthread_attr_setstacksize(
            &attributes, 65536 + 16 * (N3IC_MAX_WORDS + N3IC_CLASSES + N3IC_FEATURES)) != 0 ||
        pthread_create(&thread, &attributes, context_thread, identity) != 0)
        fail("cannot start a thread");
}

static void write_answer(uint32_t slot) {
    static uint32_t words[ANSWER_WORDS];
    uint32_t at = 0;
    uint32_t i;

    while (n3ic_load(n3ic_box[slot].state) != N3IC_DONE)
        n3ic_pause();
    words[at++] = n3ic_box[slot].result;
    words[at++] = (uint32_t)n3ic_box[slot].margin;
    for (i = 0; i < N3IC_CLASSES; i++)
        words[at++] = (uint32_t)n3ic_box[slot].scores[i];
    for (i = 0; i < N3IC_INPUT_WORDS; i++)
        words[at++] = n3ic_box[slot].bits[i];
    for (i = 0; i < N3IC_HIDDEN_WORDS; i++)
        words[at++] = n3ic_box[slot].hidden[i];
    if (fwrite(words, 4, ANSWER_WORDS, stdout) != ANSWER_WORDS)
        fail("cannot write an answer");
    n3ic_store(n3ic_box[slot].state, N3IC_FREE);
}

int main(int argc, char **argv) {
    static uint32_t question[N3IC_ASK_WORDS];
    uint32_t width;
    uint32_t question_kind;
    uint32_t row;
    uint32_t i;

    if (argc != 3)
        fail("usage: n3ic_host bits|features weights.bin");
    check_weights(argv[2]);
    question_kind = strcmp(argv[1], "bits") == 0 ? N3IC_ASK_BITS : N3IC_ASK_FEATURES;
    width = question_kind == N3IC_ASK_BITS ? N3IC_INPUT_WORDS : N3IC_FEATURES;
#if N3IC_MODEL_PARALLEL
    for (row = 0; row < SHIM_MES * SHIM_CONTEXTS * SHIM_SIGNALS; row++)
        sem_init(&shim_signals[0][0][0] + row, 0, 0);
    for (i = 0; i < N3IC_EXECUTORS; i++)
        start_context(i / N3IC_EXECUTORS_PER_ME, N3IC_FIRST_EXECUTOR + i % N3IC_EXECUTORS_PER_ME);
    for (i = 0; i < HOST_SLOTS; i++)
        start_context(i / N3IC_FIRST_EXECUTOR, i % N3IC_FIRST_EXECUTOR);
#else
    for (i = 0; i < HOST_SLOTS; i++)
        start_context(i / 8, i % 8);
#endif
    /* Rows take the slots in turn, so that the answers leave in the order of the questions. */
    for (row = 0; fread(question, 4, width, stdin) == width; row++) {
        if (row >= HOST_SLOTS)
            write_answer(row % HOST_SLOTS);
        for (i = 0; i < width; i++)
            n3ic_box[row % HOST_SLOTS].input[i] = question[i];
        n3ic_store(n3ic_box[row % HOST_SLOTS].state, question_kind);
    }
    for (i = row < HOST_SLOTS ? 0 : row - HOST_SLOTS; i < row; i++)
        write_answer(i % HOST_SLOTS);
    if (fflush(stdout) != 0)
        fail("cannot write the answers");
    exit(0); /* contexts wait for questions for ever; this ends them */
}
