// SPDX-License-Identifier: Apache-2.0
/* Drift: how far a feature of live flows has moved from the training rows. */
#ifndef N3ICD_DRIFT_H
#define N3ICD_DRIFT_H

#include "pack.h"

/*
 * Population stability index of a feature over the intervals between its cuts, by the rule of
 * n3ic/evaluation/drift.py. `row` counts how often each row was selected by so many flows.
 */
double drift_index(const struct pack_drift *d, const uint64_t *row, uint64_t flows);

#endif
