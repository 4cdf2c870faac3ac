// SPDX-License-Identifier: Apache-2.0
/*
 * Whether the flows that a network classifies are like the rows that it was trained on: how many
 * have a feature outside of the training's range, and how far the rates of the input bits are from
 * the closest mixture of the training's classes. n3ic predict has the same rule.
 */
#ifndef DOMAIN_H
#define DOMAIN_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct domain; /* opaque */

/* NULL where memory is too little. */
struct domain *domain_open(uint32_t n_bits);
void domain_close(struct domain *d);

/* Looks at a flow: the integers of the network's features, and its packed input bits. */
void domain_add(struct domain *d, const uint32_t *values, const uint32_t *words);

/* Writes a line where the traffic is another. */
void domain_write(const struct domain *d, FILE *out, const char *program);

#endif
