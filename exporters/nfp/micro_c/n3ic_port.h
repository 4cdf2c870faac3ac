/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What differs between the NFP's compiler and a host's: the popcount, signals
 * between micro-engines, the lock, and the number of the running micro-engine.
 * Every other file of this folder is the same source for both.
 */
#ifndef N3IC_PORT_H
#define N3IC_PORT_H

#if defined(__NFP_TOOL_NFCC) || defined(__NFCC_VERSION) || defined(__NFP_LANG_MICROC)

#include <nfp.h>
#include <nfp/me.h>
#include <nfp/mem_atomic.h>
#include <stdint.h>

/* Islands of micro-engines are i32 to i36; the first micro-engine of an island is number 4. */
#define N3IC_FIRST_ISLAND 32
#define N3IC_FIRST_ME 4
#define N3IC_MES_PER_ISLAND 12

/* Number of set bits: three instructions of a micro-engine. */
__intrinsic uint32_t n3ic_popcount(uint32_t data) {
    uint32_t count;

    __asm {
        pop_count1[data]
        pop_count2[data]
        pop_count3[count, data]
    }
    return count;
}

/* Number of this micro-engine, counted over all islands. */
__intrinsic uint32_t n3ic_me(void) {
    uint32_t me = __ME();

    return ((me >> 4) - N3IC_FIRST_ISLAND) * N3IC_MES_PER_ISLAND + (me & 15) - N3IC_FIRST_ME;
}

/* Raise signal `number` in a context of any micro-engine. */
__intrinsic void n3ic_signal(uint32_t me, uint32_t context, uint32_t number) {
    uint32_t island = N3IC_FIRST_ISLAND + me / N3IC_MES_PER_ISLAND;
    uint32_t unit = N3IC_FIRST_ME + me % N3IC_MES_PER_ISLAND;
    uint32_t address = (island << 24) | (unit << 9) | (context << 6) | (number << 2);

    __asm ct[interthread_signal, --, address, 0, --];
}

/* Take a lock in IMEM; 1 if it was free. */
__intrinsic uint32_t n3ic_try_lock(volatile __imem uint32_t *lock) {
    __xrw uint32_t value = 1;

    mem_test_set(&value, (__mem40 void *)lock, sizeof(value));
    return value == 0;
}

#define n3ic_load(place) (place)
#define n3ic_store(place, value) ((place) = (value))
#define n3ic_pause() sleep(500)

#else

#include "host/nfp_shim.h"

#endif

#endif /* N3IC_PORT_H */
