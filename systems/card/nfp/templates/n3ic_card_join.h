/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins the results of a graph's networks. The data plane calls this after it has asked all of
 * them: the networks may be in several islands, so no context sees all results.
 */
#ifndef N3IC_CARD_JOIN_H
#define N3IC_CARD_JOIN_H

#include "n3ic_port.h"

#include "n3ic_card_config.h"

#include "n3ic_card_graphs.h"

struct n3ic_answer {
    uint32_t model;  /* first 32 bits of the network's digest */
    uint32_t result; /* class, or 0xffffffff if the host decides */
    int32_t margin;  /* of a vote: lead over the second class */
};

static uint32_t n3ic_votes(N3IC_STATE struct n3ic_answer *answers, uint32_t count,
                           uint32_t result) {
    uint32_t votes = 0;
    uint32_t i;

    for (i = 0; i < count; i++) {
        if (answers[i].result == result)
            votes++;
    }
    return votes;
}

/* Ties go to the smallest class; the host's verdict comes after all classes. */
static void n3ic_vote(N3IC_STATE struct n3ic_answer *answers, uint32_t count) {
    uint32_t winner = 0;
    uint32_t most = 0;
    uint32_t second = 0;
    uint32_t votes;
    uint32_t i;

    for (i = 0; i < count; i++) {
        votes = n3ic_votes(answers, count, answers[i].result);
        if (votes > most || (votes == most && answers[i].result < answers[winner].result)) {
            winner = i;
            most = votes;
        }
    }
    for (i = 0; i < count; i++) {
        votes = n3ic_votes(answers, count, answers[i].result);
        if (answers[i].result != answers[winner].result && votes > second)
            second = votes;
    }
    answers[0].model = answers[winner].model;
    answers[0].result = answers[winner].result;
    answers[0].margin = (int32_t)(most - second);
}

/* Ties go to the first branch. */
static void n3ic_most_certain(N3IC_STATE struct n3ic_answer *answers, uint32_t count) {
    uint32_t best = 0;
    uint32_t i;

    for (i = 1; i < count; i++) {
        if (answers[i].margin > answers[best].margin)
            best = i;
    }
    answers[0].model = answers[best].model;
    answers[0].result = answers[best].result;
    answers[0].margin = answers[best].margin;
}

/*
 * Joins the answers of a graph. Results and margins are in the order of its networks. Returns the
 * number of results that are left, from the first on, each with its model.
 */
static uint32_t n3ic_join(uint32_t graph, N3IC_STATE struct n3ic_answer *answers) {
    uint32_t count = n3ic_graphs[graph].branches;
    uint32_t i;

    for (i = 0; i < count; i++)
        answers[i].model = n3ic_graphs[graph].models[i];
    if (count == 1 || n3ic_graphs[graph].join == N3IC_JOIN_BOTH)
        return count;
    if (n3ic_graphs[graph].join == N3IC_JOIN_VOTE)
        n3ic_vote(answers, count);
    else
        n3ic_most_certain(answers, count);
    return 1;
}

#endif /* N3IC_CARD_JOIN_H */
