// SPDX-License-Identifier: Apache-2.0
/* A function's side of the shared memory. Needs DPDK's headers, none of its libraries. */
#ifndef N3IC_FUNCTION_H
#define N3IC_FUNCTION_H

#include <stddef.h>
#include <stdint.h>

/* Whether a mapping of `bytes` bytes holds an area that this code knows. */
int function_check(const void *area, size_t bytes);

/*
 * Waits up to wait_us microseconds for packets, and returns how many came, at most `most`. Writes
 * the descriptors and the columns of their packets to the caller's arrays.
 */
size_t function_receive(void *area, size_t most, uint32_t wait_us, uint64_t *descriptors,
                        uint64_t *offset, uint32_t *captured, uint32_t *length, uint64_t *time,
                        uint32_t *port);

/* Gives packets back, each with an action for the manager; returns how many the ring took. */
size_t function_return(void *area, size_t n, const uint64_t *descriptors, const uint8_t *actions);

/* Tells the manager that the function is still working. */
void function_alive(void *area);

/* Whether the function must end; its ring may still hold packets. */
int function_stopping(const void *area);

#endif
