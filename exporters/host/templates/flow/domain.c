// SPDX-License-Identifier: Apache-2.0
/* See domain.h. The population stability index (PSI) of a feature is a sum over the intervals
 * between its cuts, of shares p of the training rows and q of the flows: (q - p) ln(q / p). */
#include "domain.h"
#include "domain_rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { FEWEST = 200, MIXTURE_STEPS = 200, BISECTIONS = 50 };
static const double many_outside = 0.05, large = 0.25, half = 0.5;

struct domain {
    uint64_t rows, outside;
    uint64_t *counts; /* flows that set each input bit */
};

struct domain *domain_open(uint32_t n_bits) {
    struct domain *d = calloc(1, sizeof *d);
    if (d) {
        d->counts = calloc(n_bits ? n_bits : 1, sizeof *d->counts);
    }
    if (d && !d->counts) {
        free(d);
        return NULL;
    }
    return d;
}

void domain_close(struct domain *d) {
    if (d) {
        free(d->counts);
        free(d);
    }
}

void domain_add(struct domain *d, const uint32_t *values, const uint32_t *words) {
    const uint32_t *bit = axis_bits;
    int out = 0;
    for (uint32_t a = 0; a < axes_known; a++) {
        for (uint32_t i = 0; i < axis_size[a]; i++, bit++) {
            d->counts[*bit] += words[*bit / 32] >> *bit % 32 & 1;
        }
    }
    for (uint32_t i = 0; i < spans_known; i++) {
        const uint32_t value = values[span_feature[i]];
        out |= value < span_low[i] || value > span_high[i];
    }
    d->outside += (uint64_t)out;
    d->rows++;
}

/* A share that is reached with the probability `chance` at most (Chernoff's bound). */
static double share_bound(double share, double rows, double chance) {
    const double need = -log(chance) / rows, p = fmax(share, 1.0 / RATE_UNIT);
    double low = p, high = 1;
    if (-log(p) < need) {
        return 1 + 1 / rows; /* all of so few rows say nothing */
    }
    for (int i = 0; i < BISECTIONS; i++) {
        const double q = (low + high) / 2;
        double entropy = q * log(q / p);
        if (q < 1) {
            entropy += (1 - q) * log((1 - q) / (1 - p));
        }
        if (entropy < need) {
            low = q;
        } else {
            high = q;
        }
    }
    return high;
}

/* Share of the flows in interval i of an axis, whose bits begin at `bit`. */
static double flow_share(const struct domain *d, const uint32_t *bit, uint32_t size, uint32_t i) {
    const double above = i ? (double)d->counts[bit[i - 1]] / (double)d->rows : 1;
    const double next = i < size ? (double)d->counts[bit[i]] / (double)d->rows : 0;
    return fmax(0, above - next);
}

/* Share of the training rows in interval i, by the rates of the axis' bits. */
static double row_share(const double *rate, uint32_t size, uint32_t i) {
    return fmax(0, (i ? rate[i - 1] : 1) - (i < size ? rate[i] : 0));
}

static double class_share(const uint32_t *rate, uint32_t size, uint32_t i) {
    const double above = i ? (double)rate[i - 1] / RATE_UNIT : 1;
    return fmax(half / RATE_UNIT, above - (i < size ? (double)rate[i] / RATE_UNIT : 0));
}

/* Finds the weights of the classes whose mixture comes closest (expectation maximisation). */
static void find_mixture(const struct domain *d, double *weight) {
    for (uint32_t c = 0; c < CLASSES_KNOWN; c++) {
        weight[c] = 1.0 / CLASSES_KNOWN;
    }
    for (int step = 0; step < (CLASSES_KNOWN > 1 ? MIXTURE_STEPS : 0); step++) {
        const uint32_t *bit = axis_bits, *rate = axis_rates;
        double next[CLASSES_KNOWN] = {0}, sum = 0;
        for (uint32_t a = 0; a < axes_known; a++) {
            const uint32_t size = axis_size[a];
            for (uint32_t i = 0; i <= size; i++) {
                double mixed = 0;
                for (uint32_t c = 0; c < CLASSES_KNOWN; c++) {
                    mixed += weight[c] * class_share(rate + c * size, size, i);
                }
                for (uint32_t c = 0; c < CLASSES_KNOWN; c++) {
                    next[c] += weight[c] * class_share(rate + c * size, size, i) *
                               flow_share(d, bit, size, i) / mixed;
                }
            }
            bit += size;
            rate += size * CLASSES_KNOWN;
        }
        for (uint32_t c = 0; c < CLASSES_KNOWN; c++) {
            sum += next[c];
        }
        for (uint32_t c = 0; c < CLASSES_KNOWN; c++) {
            weight[c] = next[c] / fmax(sum, 1e-300);
        }
    }
}

/* The PSI of one axis against the mixture. */
static double axis_psi(const struct domain *d, const uint32_t *bit, const uint32_t *rate,
                       uint32_t size, const double *weight, double *mixed) {
    const double cells = size + 1, unit = RATE_UNIT, rows = (double)d->rows;
    double psi = 0;
    for (uint32_t i = 0; i < size; i++) {
        double share = 0;
        for (uint32_t c = 0; c < CLASSES_KNOWN; c++) {
            share += weight[c] * rate[c * size + i];
        }
        mixed[i] = nearbyint(share) / unit; /* as a model keeps it */
    }
    for (uint32_t i = 0; i <= size; i++) {
        const double p = (row_share(mixed, size, i) * unit + half) / (unit + half * cells);
        const double q = (flow_share(d, bit, size, i) * rows + half) / (rows + half * cells);
        psi += (q - p) * log(q / p);
    }
    return psi;
}

/* The quantile of chi-squared, approximately (Wilson and Hilferty, 1931). */
static double chi_squared(double degrees) {
    const double third = 2 / (9 * degrees);
    return degrees * pow(1 - third + quantile * sqrt(third), 3);
}

/* Counts the features that have moved far, and farther than by chance; finds the largest PSI. */
static uint32_t count_moved_features(const struct domain *d, double *largest) {
    double weight[CLASSES_KNOWN], psi = 0, degrees = 0;
    uint32_t features = 0, most = 0;
    const uint32_t *bit = axis_bits, *rate = axis_rates;
    for (uint32_t a = 0; a < axes_known; a++) {
        most = axis_size[a] > most ? axis_size[a] : most;
    }
    double *mixed = calloc(most + 1, sizeof *mixed);
    *largest = 0;
    if (!mixed) {
        return 0;
    }
    find_mixture(d, weight);
    for (uint32_t a = 0; a < axes_known; a++) {
        psi += axis_psi(d, bit, rate, axis_size[a], weight, mixed);
        degrees += axis_size[a];
        bit += axis_size[a];
        rate += axis_size[a] * CLASSES_KNOWN;
        if (a + 1 == axes_known || axis_feature[a + 1] != axis_feature[a]) {
            features += psi >= large && psi >= chi_squared(degrees) / (double)d->rows;
            *largest = fmax(*largest, psi);
            psi = degrees = 0;
        }
    }
    free(mixed);
    return features;
}

/* Counts the features with a bit that is set oftener than in any class, or more rarely, than by
 * chance: of few flows. */
static uint32_t count_unlike_features(const struct domain *d) {
    const uint32_t *bit = axis_bits, *rate = axis_rates;
    const double rows = (double)d->rows;
    uint32_t bits = 0, features = 0;
    int odd = 0;
    for (uint32_t a = 0; a < axes_known; a++) {
        bits += axis_size[a];
    }
    const double chance = alarm * FEATURES_KNOWN / (2.0 * bits);
    for (uint32_t a = 0; a < axes_known; a++) {
        const uint32_t size = axis_size[a];
        for (uint32_t i = 0; i < size; i++) {
            double most = 0, least = 1;
            for (uint32_t c = 0; c < CLASSES_KNOWN; c++) {
                most = fmax(most, (double)rate[c * size + i] / RATE_UNIT);
                least = fmin(least, (double)rate[c * size + i] / RATE_UNIT);
            }
            const double live = (double)d->counts[bit[i]] / rows;
            odd |= live >= share_bound(most, rows, chance) ||
                   1 - live >= share_bound(1 - least, rows, chance);
        }
        bit += size;
        rate += size * CLASSES_KNOWN;
        if (a + 1 == axes_known || axis_feature[a + 1] != axis_feature[a]) {
            features += (uint32_t)odd;
            odd = 0;
        }
    }
    return features;
}

void domain_write(const struct domain *d, FILE *out, const char *program) {
    if (!axes_known || !d->rows) {
        return;
    }
    const double share = (double)d->outside / (double)d->rows;
    const double bound = fmax(many_outside, share_bound(outside_share, (double)d->rows, alarm));
    const int many = spans_known && share >= bound;
    double largest = 0;
    const int few = d->rows < FEWEST;
    const uint32_t far = few ? 0 : count_moved_features(d, &largest),
                   odd = few ? count_unlike_features(d) : 0;
    if (!many && !far && !odd) {
        if (few) {
            fprintf(out,
                    "%s: note: too few flows (%" PRIu64
                    ") to say whether this is the traffic of the "
                    "training; from %d on it is known\n",
                    program, d->rows, FEWEST);
        }
        return;
    }
    fprintf(out, "%s: warning: this is not the traffic of the training:", program);
    if (many) {
        fprintf(out,
                " %.1f%% of %" PRIu64 " flows are outside of the range of the training rows "
                "(%.1f%% are many)%s",
                100 * share, d->rows, 100 * bound, far || odd ? ";" : "");
    }
    if (far) {
        fprintf(out, " %" PRIu32 " of %d features have moved (largest PSI %.2f; %.2f is a change)",
                far, (int)FEATURES_KNOWN, largest, large);
    }
    if (odd) {
        fprintf(out,
                " %" PRIu32 " of %d features of %" PRIu64 " flows are unlike those of any class",
                odd, (int)FEATURES_KNOWN, d->rows);
    }
    fputs(": check verdicts on labelled flows of this network before you act on them\n", out);
}
