// SPDX-License-Identifier: Apache-2.0
/* What the lcores counted, for people and for programs. */
#ifndef N3IC_STATISTICS_H
#define N3IC_STATISTICS_H

#include "worker.h"

/* Packets that the receivers have taken so far. */
uint64_t packets_received(const struct shared *all);

/* Writes the statistics as JSON into a file that is there whole or not at all. */
void write_json(struct shared *all, const char *path, double seconds);

/* Writes them as lines for a person, those that are 0 left out. */
void write_text(struct shared *all, FILE *to, double seconds);

#endif
