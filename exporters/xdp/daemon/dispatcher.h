// SPDX-License-Identifier: Apache-2.0
/*
 * libxdp's dispatcher, which runs several XDP programs on one interface, one after the other. It
 * loads each program once more, as an extension of its own, and pins it.
 *
 * libxdp 1.3 is opened when it is needed, so that n3icd builds and runs without it. Its protocol is
 * described in the README of libxdp, in xdp-tools.
 */
#ifndef N3ICD_DISPATCHER_H
#define N3ICD_DISPATCHER_H

#include <stdint.h>

#define USUAL_PRIORITY 50 /* libxdp's own */
#define NO_PRIORITY UINT32_MAX

struct bpf_object;

/* The dispatcher of an interface: its number in the kernel, 0 if there is none. */
struct dispatcher {
    uint32_t id;
    int is_generic;
};

struct dispatcher dispatcher_of(uint32_t interface);

/* Opens libxdp; 0 with a message where it is not installed, or n3icd cannot open libraries. */
int dispatcher_open(void);

/*
 * The number of a program that the interface's dispatcher runs, by its number or, where that is 0,
 * by its name; 0 if it runs none.
 */
uint32_t dispatcher_find(uint32_t interface, uint32_t program, const char *name);

/*
 * Loads a program of an opened object into the interface's dispatcher, or into a new one. Programs
 * of lower priority run before it; later ones see what it passes. The descriptor of the program; or
 * -errno, ENOSYS where the kernel runs no dispatchers.
 */
int dispatcher_attach(uint32_t interface, struct bpf_object *object, const char *name,
                      int is_generic, int frags, uint32_t priority);

/* Takes a program off; the others go on. 0 on failure, with a message. */
int dispatcher_detach(uint32_t interface, uint32_t program);

#endif
