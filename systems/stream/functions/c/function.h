// SPDX-License-Identifier: Apache-2.0
/* A function's side of the shared memory. Needs DPDK's headers, none of its libraries. */
#ifndef N3IC_FUNCTION_H
#define N3IC_FUNCTION_H

#include <stddef.h>
#include <stdint.h>

/* Whether a mapping of so many bytes holds an area that this code knows. */
int function_check(const void *area, size_t bytes);

/*
 * Waits at most so long for packets and gives how many came, `most` at most. Descriptors and the
 * columns of their packets go to arrays of the caller.
 */
size_t function_receive(void *area, size_t most, uint32_t wait_us, uint64_t *descriptors,
                        uint64_t *offset, uint32_t *captured, uint32_t *length, uint64_t *time,
                        uint32_t *port);

/* Gives packets back, each with what is to be done with it; gives how many the ring took. */
size_t function_return(void *area, size_t n, const uint64_t *descriptors, const uint8_t *actions);

/* Tells the manager that the function works on. */
void function_alive(void *area);

/* Whether the function is to end; packets may still lie in its ring. */
int function_stopping(const void *area);

#endif
