// SPDX-License-Identifier: Apache-2.0
/* See decisions.h. */
#include "decisions.h"

#include "settings.h"

#include <rte_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DECISIONS = 4096, AT_ONCE = 256 };

struct head {
    struct record record;
    uint32_t class;
    int32_t margin;
};

static size_t score_bytes(const struct bnn *net) {
    return bnn_classes(net) * sizeof(int32_t);
}

static size_t word_bytes(const struct bnn *net) {
    return bnn_words(net) * sizeof(uint32_t);
}

void decisions_open(struct decisions *d, const struct bnn *net, unsigned worker) {
    char name[32];
    snprintf(name, sizeof name, "decisions%u", worker);
    d->net = net;
    d->bytes = (unsigned)RTE_ALIGN(sizeof(struct head) + score_bytes(net) + word_bytes(net), 8);
    d->ring = rte_ring_create_elem(name, d->bytes, DECISIONS, SOCKET_ID_ANY,
                                   RING_F_SP_ENQ | RING_F_SC_DEQ);
    d->scratch = calloc(2, d->bytes);
    if (!d->ring || !d->scratch) {
        fail(EXIT_FAILED, "no memory for decisions: %s", rte_strerror(rte_errno));
    }
}

void decisions_close(struct decisions *d) {
    rte_ring_free(d->ring);
    free(d->scratch);
}

int decisions_enqueue(struct decisions *d, const struct record *r, const struct verdict *v) {
    struct head *head = (struct head *)d->scratch;
    uint8_t *scores = d->scratch + sizeof *head;
    head->record = *r;
    head->class = v->class;
    head->margin = v->margin;
    memcpy(scores, v->scores, score_bytes(d->net));
    memcpy(scores + score_bytes(d->net), v->words, word_bytes(d->net));
    return rte_ring_sp_enqueue_elem(d->ring, d->scratch, d->bytes) == 0;
}

int decisions_write(struct decisions *d, const struct lines *lines, uint64_t *row) {
    uint8_t *element = d->scratch + d->bytes;
    const struct head *head = (const struct head *)element;
    unsigned n = 0;
    while (n < AT_ONCE && rte_ring_sc_dequeue_elem(d->ring, element, d->bytes) == 0) {
        const uint8_t *scores = element + sizeof *head;
        const struct verdict v = {head->class, head->margin, (const int32_t *)scores,
                                  (const uint32_t *)(scores + score_bytes(d->net))};
        lines_write(lines, (*row)++, &head->record, &v);
        n++;
    }
    return n != 0;
}
