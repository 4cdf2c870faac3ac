// SPDX-License-Identifier: Apache-2.0
#include "drift.h"

#include <math.h>

#define HALF 0.5 /* added to each cell, so that the logarithm of an empty cell exists */

/* The share of an interval; rounded rates may cross. */
static double interval_share(double above, double next) {
    return above > next ? above - next : 0;
}

/* The term of one interval in the index: the shares p of training rows and q of flows, smoothed as
 * counts. */
static double psi_term(double p, double q, uint64_t flows, uint32_t cells) {
    double trained = (p * RATE_UNIT + HALF) / (RATE_UNIT + HALF * cells);
    double live = (q * (double)flows + HALF) / ((double)flows + HALF * cells);

    return (live - trained) * log(live / trained);
}

double drift_index(const struct pack_drift *d, const uint64_t *row, uint64_t flows) {
    double index = 0;
    uint32_t at = 0;

    while (at < d->words) {
        uint32_t cuts = pack_word(d, at++);
        double p = 1, q = 1;

        for (uint32_t i = 0; i < cuts; i++) {
            double rate = (double)pack_word(d, at) / RATE_UNIT;
            uint32_t ranges = pack_word(d, at + 1);
            uint64_t flows_above = 0;

            at += 2;
            for (; ranges; ranges--, at += 2)
                for (uint32_t r = pack_word(d, at); r < pack_word(d, at + 1); r++)
                    flows_above += row[r];
            index +=
                psi_term(interval_share(p, rate),
                         interval_share(q, (double)flows_above / (double)flows), flows, cuts + 1);
            p = rate;
            q = (double)flows_above / (double)flows;
        }
        index += psi_term(p, q, flows, cuts + 1);
    }
    return index;
}
