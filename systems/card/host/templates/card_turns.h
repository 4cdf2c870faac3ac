// SPDX-License-Identifier: Apache-2.0
/*
 * Which queue of a card is served next: token buckets of what is guaranteed, and turns. The card's
 * library runs this in nanoseconds, its simulation in clock cycles; both are ticks here.
 */
#ifndef N3IC_CARD_TURNS_H
#define N3IC_CARD_TURNS_H

#include <stdint.h>

enum card_colour { CARD_WITHIN, CARD_BEYOND, CARD_COLOURS };

/* A time; the fraction is in parts of a rate. */
struct card_instant {
    uint64_t tick, part;
};

/* What a queue of frames is guaranteed, and when it is served. */
struct card_share {
    uint64_t rate, burst; /* bytes per second, bytes; the rate is above 0 */
    /* How far its turn is ahead of the turn that was taken last; nobody saves up turns. */
    uint64_t lead[CARD_COLOURS];
    /* At its rate, the frames that were served within the guarantee last until `paid`; with the
     * next one, until `owed`. */
    struct card_instant paid, owed;
};

/*
 * Finds until when the next frame would keep a share's rate busy (ITU-T I.371, virtual scheduling).
 * The bucket is asked when a frame is served, so the frames of a queue keep their order. It counts
 * from the frame's arrival, so waiting costs nothing of the guarantee.
 */
static inline void card_share_weigh(struct card_share *share, uint64_t second, uint64_t arrived,
                                    uint32_t size) {
    struct card_instant from = share->paid;
    if ((int64_t)(arrived - from.tick) > 0)
        from = (struct card_instant){arrived, 0};
    uint64_t parts = size * second + from.part;
    share->owed = (struct card_instant){from.tick + parts / share->rate, parts % share->rate};
}

/* Whether the frame that was weighed is within the guarantee: the bucket has paid for it by now. */
static inline int card_share_pays(const struct card_share *share, uint64_t second, uint64_t now) {
    /* Whole seconds apart from the rest: burst * second could exceed 64 bits. */
    uint64_t depth =
        share->burst / share->rate * second + share->burst % share->rate * second / share->rate;
    return (int64_t)(share->owed.tick - now - depth) <= 0;
}

/* Bytes that the bucket lacks, rounded up. */
static inline uint64_t card_share_lacks(const struct card_share *share, uint64_t second,
                                        uint64_t now) {
    int64_t busy = (int64_t)(share->paid.tick - now);
    if (busy < 0)
        return 0;
    /* The product may exceed 64 bits; a double errs by less than a thousandth of a byte. */
    double parts = (double)busy * (double)share->rate + (double)share->paid.part;
    double bytes = parts / (double)second + 0.999;
    return bytes < (double)share->burst ? (uint64_t)bytes : share->burst;
}

/* Changes what is guaranteed; what the bucket holds stays, up to its new size. */
static inline void card_share_change(struct card_share *share, uint64_t rate, uint64_t burst,
                                     uint64_t second, uint64_t now) {
    uint64_t held = share->burst - card_share_lacks(share, second, now);
    uint64_t parts = held < burst ? (burst - held) * second : 0;
    share->rate = rate;
    share->burst = burst;
    share->paid = (struct card_instant){now + parts / rate, parts % rate};
}

/* Lets another share's turn pass, which was ahead by `lead`. */
static inline void card_share_pass(struct card_share *share, enum card_colour colour,
                                   uint64_t lead) {
    share->lead[colour] = share->lead[colour] > lead ? share->lead[colour] - lead : 0;
}

#endif
