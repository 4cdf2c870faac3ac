// SPDX-License-Identifier: Apache-2.0
#include "dispatcher.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/if_link.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

#define NAME "xdp_dispatcher" /* libxdp's program, which calls the others */

enum { IN_DRIVER = 1, IN_STACK = 2 }; /* enum xdp_attach_mode */

struct xdp_program;
struct xdp_multiprog;

/* struct xdp_program_opts of libxdp 1.3 */
struct program_options {
    size_t size;
    struct bpf_object *object;
    void *open;
    const char *program, *find, *file, *pin;
    uint32_t id;
    int fd;
};

static struct {
    int is_open;
    long (*error)(const void *pointer);
    void *(*set_print)(void *print);
    struct xdp_program *(*create)(struct program_options *options);
    struct xdp_program *(*from_id)(uint32_t id);
    void (*close)(struct xdp_program *program);
    int (*set_priority)(struct xdp_program *program, unsigned priority);
    int (*set_chain)(struct xdp_program *program, unsigned action, _Bool goes_on);
    int (*set_frags)(struct xdp_program *program, _Bool frags);
    int (*attach)(struct xdp_program *program, int interface, int mode, unsigned flags);
    int (*detach)(struct xdp_program *program, int interface, int mode, unsigned flags);
    uint32_t (*id)(const struct xdp_program *program);
    int (*fd)(const struct xdp_program *program);
    const char *(*name)(const struct xdp_program *program);
    struct xdp_multiprog *(*programs)(int interface);
    struct xdp_program *(*next)(const struct xdp_program *program,
                                const struct xdp_multiprog *programs);
    void (*close_programs)(struct xdp_multiprog *programs);
} xdp;

static const struct {
    const char *name;
    void *to;
} functions[] = {
    {"libxdp_get_error", &xdp.error},
    {"libxdp_set_print", &xdp.set_print},
    {"xdp_program__create", &xdp.create},
    {"xdp_program__from_id", &xdp.from_id},
    {"xdp_program__close", &xdp.close},
    {"xdp_program__set_run_prio", &xdp.set_priority},
    {"xdp_program__set_chain_call_enabled", &xdp.set_chain},
    {"xdp_program__set_xdp_frags_support", &xdp.set_frags},
    {"xdp_program__attach", &xdp.attach},
    {"xdp_program__detach", &xdp.detach},
    {"xdp_program__id", &xdp.id},
    {"xdp_program__fd", &xdp.fd},
    {"xdp_program__name", &xdp.name},
    {"xdp_multiprog__get_from_ifindex", &xdp.programs},
    {"xdp_multiprog__next_prog", &xdp.next},
    {"xdp_multiprog__close", &xdp.close_programs},
};

int dispatcher_open(void) {
    void *(*open_library)(const char *name, int mode), *found = dlsym(RTLD_DEFAULT, "dlopen");
    void *library;

    if (xdp.is_open)
        return 1;
    memcpy(&open_library, &found, sizeof found);
    if (!found) { /* as in a program that is linked statically */
        log_message("running beside other XDP programs needs an n3icd that can open libxdp: link "
                    "it dynamically (make HOST_FLAGS=-O2)");
        return 0;
    }
    library = open_library("libxdp.so.1", RTLD_NOW | RTLD_LOCAL);
    for (unsigned i = 0; library && i < sizeof functions / sizeof *functions; i++) {
        found = dlsym(library, functions[i].name);

        memcpy(functions[i].to, &found, sizeof found);
        if (!found)
            library = NULL;
    }
    if (!library) {
        log_message("running beside other XDP programs needs libxdp 1.3 (Debian: apt-get install "
                    "libxdp1)");
        return 0;
    }
    xdp.set_print(NULL);
    xdp.is_open = 1;
    return 1;
}

struct dispatcher dispatcher_of(uint32_t interface) {
    struct bpf_prog_info info = {0};
    uint32_t size = sizeof info;
    LIBBPF_OPTS(bpf_xdp_query_opts, there);
    int fd;

    if (bpf_xdp_query((int)interface, 0, &there) || !there.prog_id)
        return (struct dispatcher){0};
    fd = bpf_prog_get_fd_by_id(there.prog_id);
    if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &size) || strcmp(info.name, NAME))
        there.prog_id = 0;
    if (fd >= 0)
        close(fd);
    return (struct dispatcher){there.prog_id, there.attach_mode == XDP_ATTACHED_SKB};
}

uint32_t dispatcher_find(uint32_t interface, uint32_t program, const char *name) {
    struct xdp_multiprog *programs;
    struct xdp_program *one;
    uint32_t found = 0;

    /* libxdp 1.3 leaves a program that is no dispatcher open. */
    if (!dispatcher_of(interface).id)
        return 0;
    programs = xdp.programs((int)interface);
    if (xdp.error(programs))
        return 0;
    for (one = xdp.next(NULL, programs); one && !found; one = xdp.next(one, programs))
        if (program ? xdp.id(one) == program : !strcmp(xdp.name(one), name))
            found = xdp.id(one);
    xdp.close_programs(programs);
    return found;
}

static int attach(struct xdp_program *program, uint32_t interface, int mode) {
    int error = xdp.attach(program, (int)interface, mode, 0), fd;

    if (error)
        return error;
    if (dispatcher_find(interface, xdp.id(program), NULL)) {
        fd = dup(xdp.fd(program));
        return fd < 0 ? -errno : fd;
    }
    xdp.detach(program, (int)interface, mode, 0); /* it is there alone, by no link */
    return -ENOSYS;
}

int dispatcher_attach(uint32_t interface, struct bpf_object *object, const char *name,
                      int is_generic, int frags, uint32_t priority) {
    struct program_options options = {.size = sizeof options, .object = object, .program = name};
    struct xdp_program *program = xdp.create(&options);
    long error = xdp.error(program);
    libbpf_print_fn_t print;
    int done;

    if (error)
        return (int)error;
    xdp.set_priority(program, priority);
    xdp.set_chain(program, XDP_PASS, 1);
    xdp.set_frags(program, frags);
    print = libbpf_set_print(NULL); /* libxdp tries what the kernel can do */
    done = attach(program, interface, is_generic ? IN_STACK : IN_DRIVER);
    libbpf_set_print(print);
    xdp.close(program);
    return done;
}

int dispatcher_detach(uint32_t interface, uint32_t id) {
    struct dispatcher there = dispatcher_of(interface);
    struct xdp_program *program;
    long error;

    if (!dispatcher_find(interface, id, NULL))
        return 1;
    program = xdp.from_id(id);
    error = xdp.error(program);
    if (!error) {
        error = xdp.detach(program, (int)interface, there.is_generic ? IN_STACK : IN_DRIVER, 0);
        xdp.close(program);
    }
    if (!error || error == -ENOENT)
        return 1;
    log_message("program %u stays in the dispatcher: %s", id, strerror((int)-error));
    return 0;
}
