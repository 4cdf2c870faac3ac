// SPDX-License-Identifier: Apache-2.0
/*
 * Files that n3icd writes beside its sinks: the pack of an update, which holds over restarts until
 * the configured pack is another one, and the record by which `n3ic xdp` finds the program.
 */
#ifndef N3ICD_STORE_H
#define N3ICD_STORE_H

#include "kernel.h"
#include "settings.h"

/* The current pack, and the sum of the configured one; NULL if that one cannot be read. */
struct pack *store_read(const struct settings *s, uint32_t *configured);

/* Stores a pack in place of the configured one with that sum; 0 on failure, with a message. */
int store_write_update(const struct settings *s, uint32_t configured, const struct pack *p);

/* Removes stored packs of the interface, except the one for the configured pack. */
void store_remove_updates(const struct settings *s, uint32_t configured);

/* Writes the record of a program; 0 on failure, with a message. */
int record_write(const struct settings *s, const struct kernel *k, const struct pack *p);

/* Puts another pack into the record. */
int record_pack(const struct settings *s, const struct kernel *k, const struct pack *p);

/* Removes the records of an interface. */
void record_remove(const struct settings *s);

#endif
