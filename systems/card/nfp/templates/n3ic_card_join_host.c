/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins results on a host.
 *
 *     n3ic_card_join_host < results > answers
 *
 * A row of results is a graph, and N3IC_MOST_BRANCHES pairs of result and margin. An answer is the
 * number of results that are left, and N3IC_MOST_BRANCHES times model, result and margin.
 */
#include "../n3ic_card_join.h"

#include <stdio.h>

#define ROW_WORDS (1 + 2 * N3IC_MOST_BRANCHES)
#define ANSWER_WORDS (1 + 3 * N3IC_MOST_BRANCHES)

int main(void) {
    static struct n3ic_answer answers[N3IC_MOST_BRANCHES];
    static uint32_t row[ROW_WORDS], out[ANSWER_WORDS];
    uint32_t i;

    while (fread(row, 4, ROW_WORDS, stdin) == ROW_WORDS) {
        if (row[0] >= N3IC_GRAPHS)
            return 1;
        for (i = 0; i < N3IC_MOST_BRANCHES; i++) {
            answers[i].result = row[1 + 2 * i];
            answers[i].margin = (int32_t)row[2 + 2 * i];
        }
        out[0] = n3ic_join(row[0], answers);
        for (i = 0; i < N3IC_MOST_BRANCHES; i++) {
            out[1 + 3 * i] = answers[i].model;
            out[2 + 3 * i] = answers[i].result;
            out[3 + 3 * i] = (uint32_t)answers[i].margin;
        }
        if (fwrite(out, 4, ANSWER_WORDS, stdout) != ANSWER_WORDS)
            return 1;
    }
    return fflush(stdout) != 0;
}
