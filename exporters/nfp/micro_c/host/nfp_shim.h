/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Defines the keywords of micro-C for gcc and clang, so that the NFP's source runs on a
 * host: contexts are pthreads, signals are semaphores, and all memories are the host's. gcc
 * cannot parse `__asm { ... }`, so the host has its own popcount and signal.
 */
#ifndef NFP_SHIM_H
#define NFP_SHIM_H

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdint.h>

#define __declspec(placement)
#define __export
#define __shared
#define __cls
#define __ctm
#define __imem
#define __emem
#define __lmem
#define __gpr
#define __intrinsic static __inline__

#define SHIM_MES 64
#define SHIM_CONTEXTS 8
#define SHIM_SIGNALS 16

static sem_t shim_signals[SHIM_MES][SHIM_CONTEXTS][SHIM_SIGNALS];
static __thread uint32_t shim_me;
static __thread uint32_t shim_context;

/* A SIGNAL is the number of a signal of the running context. */
typedef uint32_t SIGNAL;

#define __assign_relative_register(signal, number) (*(signal) = (number))
#define __implicit_write(signal) ((void)(signal))

__intrinsic void __wait_for_all(const SIGNAL *signal) {
    while (sem_wait(&shim_signals[shim_me][shim_context][*signal]) != 0)
        ; /* interrupted by a signal of the host */
}

#define ctx() shim_context

__intrinsic uint32_t n3ic_me(void) {
    return shim_me;
}

__intrinsic uint32_t n3ic_popcount(uint32_t data) {
    return (uint32_t)__builtin_popcount(data);
}

__intrinsic void n3ic_signal(uint32_t me, uint32_t context, uint32_t number) {
    sem_post(&shim_signals[me][context][number]);
}

__intrinsic uint32_t n3ic_try_lock(volatile uint32_t *lock) {
    return __atomic_exchange_n(lock, 1u, __ATOMIC_ACQUIRE) == 0;
}

#define n3ic_load(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define n3ic_store(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELEASE)
#define n3ic_pause() sched_yield()

#endif /* NFP_SHIM_H */
