// SPDX-License-Identifier: Apache-2.0
#include "kernel.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/if_link.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "build.h"
#include "dispatcher.h"
#include "text.h"

#define METER "n3ic_meter" /* the program at XDP */
#define FRAGS "xdp.frags"  /* section of programs that may take frames in several pieces */

/* Names in the object and below the pins, and the sizes that this n3icd was built for. */
static const struct {
    const char *name, *pin;
    uint32_t value;
} maps[MAPS] = {
    [MAP_EVENTS] = {"events", "events", 0},
#if N3ICD_BUCKETS
    [MAP_FLOWS] = {"flows", "flows", sizeof(struct bucket)},
#else
    [MAP_FLOWS] = {"flows", "flows", sizeof(struct slot)},
#endif
    [MAP_COUNTED] = {"counted", "counted", sizeof(struct counters)},
    [MAP_TALLIES] = {"tallies", "tallies", sizeof(struct tally)},
    [MAP_MODELS] = {"models", "models", 4},
    [MAP_DISPATCH] = {"dispatch", "dispatch", 4},
    [MAP_POLICIES] = {"policies", "policies", sizeof(struct policy)},
    [MAP_INTERFACES] = {"interfaces", "interfaces", 4},
    [MAP_CPUS] = {"cpus", "cpus", 4},
    [MAP_CONFIG] = {"config", "config", sizeof(struct config)},
    [MAP_GUARDS] = {"guards", "guards", sizeof(struct guard)},
    [MAP_TUPLES] = {"tuples", "tuples", sizeof(struct verdict)},
    [MAP_HOSTS] = {"hosts", "hosts", sizeof(struct verdict)},
    [MAP_ALLOWED] = {"allowed", "allowed", sizeof(struct verdict)},
    [MAP_LISTED] = {"listed", "listed", sizeof(struct verdict)},
    [MAP_STRIKES] = {"strikes", "strikes", sizeof(struct strikes)},
    [MAP_USES] = {"uses", "uses", 8},
    [MAP_SOCKETS] = {"sockets", "sockets", 4},
    [MAP_SAMPLES] = {"samples", "samples", 0},
    [MAP_OPTIONS] = {".rodata.options", "options", sizeof(struct options)},
    [MAP_FOUND] = {"found", "found", sizeof(struct idle_flows)},
    [MAP_STATE] = {"state", "state", sizeof(struct state)},
};

/* A path below the pins; 0 with a message if it is too long. */
static int join_path(char *out, size_t room, const char *folder, const char *name) {
    int made = snprintf(out, room, "%s/%s", folder, name);

    if (made >= 0 && (size_t)made < room)
        return 1;
    log_message("%s/%s: the path is too long: at most %zu bytes", folder, name, room - 1);
    return 0;
}

/* The folder of an interface; a BPF file system takes no dots. `~n` begins no such name. */
static int pins_folder(char *out, size_t room, const char *pins, const char *interface,
                       const char *before) {
    char name[2 * IF_NAMESIZE + 8], *to = name + snprintf(name, sizeof name, "%s", before);

    for (const char *c = interface; *c && to < name + sizeof name - 3; c++) {
        if (*c == '.' || *c == '~') {
            *to++ = '~';
            *to++ = *c == '.' ? 'd' : 't';
        } else {
            *to++ = *c;
        }
    }
    *to = 0;
    return join_path(out, room, pins, name);
}

/* Removes a folder of pins; 1 also where there is none. */
static int remove_folder(const char *folder) {
    DIR *open = opendir(folder);
    struct dirent *entry;
    char path[512];

    if (!open)
        return errno == ENOENT;
    while ((entry = readdir(open)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            if (!join_path(path, sizeof path, folder, entry->d_name) || unlink(path))
                break;
    closedir(open);
    if (!entry && !rmdir(folder))
        return 1;
    log_message("%s cannot be removed: %s", folder, strerror(errno));
    return 0;
}

/* The number of a program, and whether it is an extension, as the dispatcher's are; 0 without. */
static uint32_t program_id(int fd, int *is_extension) {
    struct bpf_prog_info info = {0};
    uint32_t size = sizeof info;

    if (bpf_obj_get_info_by_fd(fd, &info, &size))
        return 0;
    *is_extension = info.type == BPF_PROG_TYPE_EXT;
    return info.id;
}

/* Takes a pinned program off a dispatcher, which holds it without its pins; 0 with a message. */
static int leave_dispatcher(const char *interface, const char *folder) {
    char path[512];
    int fd, is_extension = 0, done;
    uint32_t id;

    if (!join_path(path, sizeof path, folder, "program"))
        return 0;
    fd = bpf_obj_get(path);
    if (fd < 0)
        return 1;
    id = program_id(fd, &is_extension);
    done = !is_extension || (dispatcher_open() && dispatcher_detach(if_nametoindex(interface), id));
    close(fd);
    return done;
}

int kernel_remove(const char *interface, const char *pins) {
    static const char *const before[] = {"~n", ""};
    char folder[256];

    for (unsigned i = 0; i < sizeof before / sizeof *before; i++)
        if (!pins_folder(folder, sizeof folder, pins, interface, before[i]) ||
            !leave_dispatcher(interface, folder) || !remove_folder(folder))
            return 0;
    return 1;
}

/* --- taking over ----------------------------------------------------------------------------- */

static int open_pin(const char *folder, const char *name) {
    char path[512];
    int fd;

    if (!join_path(path, sizeof path, folder, name))
        return -1;
    fd = bpf_obj_get(path);
    if (fd < 0)
        log_message("%s: %s", path, strerror(-fd));
    return fd;
}

/* Checks a map against what this n3icd was built for, and notes its entries. */
static int check_map(const struct kernel *k, enum map m, uint32_t *entries) {
    struct bpf_map_info info = {0};
    uint32_t size = sizeof info;

    if (bpf_obj_get_info_by_fd(k->map[m], &info, &size)) {
        log_message("map %s cannot be read: %s", maps[m].name, strerror(errno));
        return 0;
    }
    if (maps[m].value && info.value_size != maps[m].value) {
        log_message(
            "map %s has values of %u bytes, this n3icd expects %u: build both from one export",
            maps[m].name, info.value_size, maps[m].value);
        return 0;
    }
    *entries = info.max_entries;
    return 1;
}

static int check_maps(struct kernel *k) {
    uint32_t entries[MAPS];
    const uint32_t first = 0;

    for (int m = 0; m < MAPS; m++)
        if (!check_map(k, (enum map)m, &entries[m]))
            return 0;
    if (bpf_map_lookup_elem(k->map[MAP_OPTIONS], &first, &k->options) ||
        bpf_map_lookup_elem(k->map[MAP_STATE], &first, &k->state)) {
        log_message("the program's options cannot be read: %s", strerror(errno));
        return 0;
    }
    k->users = entries[MAP_COUNTED];
    k->room = entries[MAP_FLOWS] * (N3ICD_BUCKETS ? WAYS : 1);
    if (entries[MAP_TALLIES] != k->users * SLOTS || entries[MAP_MODELS] != SLOTS ||
        entries[MAP_POLICIES] != POLICIES) {
        log_message("the program's maps have other sizes than this n3icd expects: build both from "
                    "one export");
        return 0;
    }
    return 1;
}

/* What the headers of older kernels lack. */
enum { LINK_TCX = 11, TCX_INGRESS = 46, TCX_EGRESS = 47 };

static uint32_t index_of_link(int link) {
    struct bpf_link_info info = {0};
    uint32_t size = sizeof info;

    /* A link of tcx has its interface at the same place. */
    return bpf_obj_get_info_by_fd(link, &info, &size) ||
                   (info.type != BPF_LINK_TYPE_XDP && (int)info.type != LINK_TCX)
               ? 0
               : info.xdp.ifindex;
}

static int link_count(const struct kernel *k) {
    return k->state.tcx ? 2 : k->state.dispatched ? 0 : 1; /* libxdp has the dispatcher's */
}

static int attach_tcx(struct kernel *k) {
    static const int direction[LINKS] = {TCX_INGRESS, TCX_EGRESS};

    for (int i = 0; i < LINKS; i++) {
        k->link[i] =
            bpf_link_create(k->program, (int)k->index, (enum bpf_attach_type)direction[i], NULL);
        if (k->link[i] < 0) {
            log_message("%s: the program cannot be attached at tcx: %s%s", k->interface,
                        strerror(-k->link[i]), k->link[i] == -EINVAL ? ": it needs Linux 6.6" : "");
            return 0;
        }
    }
    return 1;
}

/* Whether the pinned program is another one than this n3icd was built with. */
static int is_of_another_build(const struct kernel *k) {
    const uint32_t first = 0;
    struct state state = {0};
    int fd = open_pin(k->pins, maps[MAP_STATE].pin);
    int differs = fd >= 0 && !bpf_map_lookup_elem(fd, &first, &state) &&
                  memcmp(state.layout, N3ICD_LAYOUT, sizeof state.layout) != 0;

    if (fd >= 0)
        close(fd);
    return differs;
}

static int open_pins(struct kernel *k) {
    for (int m = 0; m < MAPS; m++)
        if ((k->map[m] = open_pin(k->pins, maps[m].pin)) < 0)
            return 0;
    if ((k->program = open_pin(k->pins, "program")) < 0 ||
        (k->end = open_pin(k->pins, "end")) < 0 || (k->idle = open_pin(k->pins, "idle")) < 0 ||
        !check_maps(k))
        return 0;
    if (!memcmp(k->state.layout, N3ICD_LAYOUT, sizeof k->state.layout))
        return 1;
    log_message("%s belongs to another program: start its n3icd, or forget its flows (--remove)",
                k->pins);
    return 0;
}

static int pin_fd(int fd, const char *folder, const char *name) {
    char path[512];

    if (!join_path(path, sizeof path, folder, name))
        return 0;
    if (!bpf_obj_pin(fd, path))
        return 1;
    log_message("%s cannot be pinned: %s", path, strerror(errno));
    return 0;
}

static const char *const link_pin[LINKS] = {"link", "link-out"};

static int pin_links(const struct kernel *k, const char *folder) {
    for (int i = 0; i < link_count(k); i++)
        if (!pin_fd(k->link[i], folder, link_pin[i]))
            return 0;
    return 1;
}

static void close_links(struct kernel *k) {
    for (int i = 0; i < LINKS; i++) {
        if (k->link[i] >= 0)
            close(k->link[i]);
        k->link[i] = -1;
    }
}

static void close_program(struct kernel *k) {
    int *all[] = {&k->program, &k->end, &k->idle};

    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        if (*all[i] >= 0)
            close(*all[i]);
        *all[i] = -1;
    }
    for (int m = 0; m < MAPS; m++) {
        if (k->map[m] >= 0)
            close(k->map[m]);
        k->map[m] = -1;
    }
}

/* Whether the interface's dispatcher runs the program. */
static int is_dispatched(struct kernel *k) {
    uint32_t there = dispatcher_of(k->index).id;
    int is_extension;

    if (there && there == k->dispatcher)
        return 1;
    if (!dispatcher_find(k->index, program_id(k->program, &is_extension), NULL))
        return there && there != dispatcher_of(k->index).id; /* another tool replaces it now */
    k->dispatcher = there;
    return 1;
}

/*
 * Opens pinned links. If the interface was removed and added again, its links are deleted. 0 with a
 * message if a link is of another interface.
 */
static int open_links(struct kernel *k) {
    char path[512];
    uint32_t index = 0;
    int whole = 1;

    if (k->state.dispatched)
        return dispatcher_open();

    for (int i = 0; i < link_count(k); i++) {
        if (!join_path(path, sizeof path, k->pins, link_pin[i]))
            return 0;
        k->link[i] = bpf_obj_get(path);
        index = k->link[i] < 0 ? 0 : index_of_link(k->link[i]);
        whole = whole && index == k->index;
        if (index && index != k->index) {
            log_message(
                "%s: its program is attached to the interface of index %u, not to %s: take it off "
                "(--remove)",
                k->pins, index, k->interface);
            return 0;
        }
    }
    if (whole)
        return 1;
    close_links(k);
    for (int i = 0; i < link_count(k); i++) {
        if (!join_path(path, sizeof path, k->pins, link_pin[i]))
            return 0;
        if (unlink(path) && errno != ENOENT) {
            log_message("%s: %s", path, strerror(errno));
            return 0;
        }
    }
    return 1;
}

/* --- loading --------------------------------------------------------------------------------- */

/* Pins all of a program in a folder that gets its name last, so that a whole one is found or none.
 */
static int pin_all(const struct kernel *k, const char *pins) {
    char folder[256];

    if (!pins_folder(folder, sizeof folder, pins, k->interface, "~n"))
        return 0;
    if (mkdir(folder, 0700)) {
        log_message("%s: %s", folder, strerror(errno));
        return 0;
    }
    for (int m = 0; m < MAPS; m++)
        if (!pin_fd(k->map[m], folder, maps[m].pin))
            return 0;
    if (!pin_fd(k->program, folder, "program") || !pin_fd(k->end, folder, "end") ||
        !pin_fd(k->idle, folder, "idle") || !pin_links(k, folder))
        return 0;
    if (k->is_taken_over && !remove_folder(k->pins)) /* of the program before */
        return 0;
    if (!rename(folder, k->pins))
        return 1;
    log_message("%s: %s", k->pins, strerror(errno));
    return 0;
}

static int print_warning(enum libbpf_print_level level, const char *format, va_list arguments) {
    return level == LIBBPF_WARN ? vfprintf(stderr, format, arguments) : 0;
}

/* A copy of a descriptor, which stays open when the object is closed. */
static int duplicate_fd(int fd) {
    return fd < 0 ? -1 : dup(fd);
}

static int find_map(struct kernel *k, struct bpf_object *object, enum map m) {
    k->map[m] = duplicate_fd(bpf_object__find_map_fd_by_name(object, maps[m].name));
    if (k->map[m] < 0)
        log_message("the object has no map %s", maps[m].name);
    return k->map[m] >= 0;
}

static int find_program(struct bpf_object *object, const char *name) {
    struct bpf_program *program = bpf_object__find_program_by_name(object, name);
    int fd = program ? duplicate_fd(bpf_program__fd(program)) : -1;

    if (fd < 0)
        log_message("the object has no program %s", name);
    return fd;
}

/* Sizes the maps by a pack. */
static int size_maps(struct bpf_object *object, const struct pack *p) {
    static const enum map sized[PACK_ENTRIES] = {MAP_FLOWS, MAP_TUPLES, MAP_HOSTS};
    struct bpf_map *map;

    for (int i = 0; i < PACK_ENTRIES; i++) {
        map = bpf_object__find_map_by_name(object, maps[sized[i]].name);
        if (!map || bpf_map__set_max_entries(map, p->entries[i])) {
            log_message("the object has no map %s", maps[sized[i]].name);
            return 0;
        }
    }
    map = bpf_object__find_map_by_name(object, "tags");
    if (map && bpf_map__set_max_entries(map, p->entries[0])) {
        log_message("the object's map tags cannot have an entry for each bucket");
        return 0;
    }
    map = bpf_object__find_map_by_name(object, "recent_of_cpus");
    if (map && bpf_map__set_max_entries(map, (uint32_t)libbpf_num_possible_cpus())) {
        log_message("the object's map recent_of_cpus cannot have an entry for each CPU");
        return 0;
    }
    return 1;
}

/* Whether a map holds data of the networks, which are others in a succeeding program. */
static int is_of_networks(const char *name) {
    static const char *const names[] = {"models", "tallies", "scratches", "heads"};

    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return 1;
    return !strncmp(name, ".rodata", 7) || !strcmp(name, "n3ic.rodata");
}

/* Has a map of the object be a map of the program before. */
static int inherit_map(struct bpf_map *map, int fd, const struct bpf_map_info *info) {
    if (bpf_map__key_size(map) != info->key_size || bpf_map__value_size(map) != info->value_size) {
        log_message("map %s of the program there has values of %u bytes, expected %u: this one has "
                    "another meter or other classes",
                    info->name, info->value_size, bpf_map__value_size(map));
        return 0;
    }
    if (!bpf_map__reuse_fd(map, fd))
        return 1;
    log_message("map %s of the program there cannot be taken over: %s", info->name,
                strerror(errno));
    return 0;
}

/* Whether the kernel, which cuts names, calls a map so; unnamed data have the object's name. */
static int is_named(const struct bpf_map *map, const char *name) {
    char of_object[64];

    snprintf(of_object, sizeof of_object, "n3ic%s", bpf_map__name(map));
    return !strncmp(bpf_map__name(map), name, BPF_OBJ_NAME_LEN - 1) ||
           !strncmp(of_object, name, BPF_OBJ_NAME_LEN - 1);
}

/* Has the object's maps be those of a program; `succeeds`: but for what networks decide. */
static int inherit_maps(struct bpf_object *object, int program, int succeeds) {
    uint32_t id[64], size = sizeof(struct bpf_prog_info);
    struct bpf_prog_info info = {.nr_map_ids = sizeof id / sizeof *id,
                                 .map_ids = (uint64_t)(uintptr_t)id};
    int done = !bpf_obj_get_info_by_fd(program, &info, &size);

    if (!done || info.nr_map_ids > sizeof id / sizeof *id) {
        log_message("the maps of the program there cannot be read: %s", strerror(errno));
        return 0;
    }
    for (uint32_t i = 0; done && i < info.nr_map_ids; i++) {
        struct bpf_map_info of_map = {0};
        uint32_t room = sizeof of_map;
        int fd = bpf_map_get_fd_by_id(id[i]);
        struct bpf_map *map;

        if (fd < 0 || bpf_obj_get_info_by_fd(fd, &of_map, &room)) {
            log_message("a map of the program there cannot be read: %s", strerror(errno));
            done = 0;
        } else if (!succeeds || !is_of_networks(of_map.name)) {
            bpf_object__for_each_map(map, object) {
                if (is_named(map, of_map.name))
                    done = done && inherit_map(map, fd, &of_map);
            }
        }
        if (fd >= 0)
            close(fd);
    }
    return done;
}

/* Gives the object its options: those of the program before, so that flows stay in their place. */
static int set_options(struct kernel *k, struct bpf_object *object, const struct pack *p,
                       int before) {
    struct options options = before >= 0 ? k->options : p->options;
    struct bpf_map *map = bpf_object__find_map_by_name(object, maps[MAP_OPTIONS].name);

#ifdef __x86_64__
    options.locked = options.locked ? LOCKED_IN_ORDER : NOT_LOCKED;
#endif
    if (before < 0 &&
        getrandom(options.secret, sizeof options.secret, 0) != (ssize_t)sizeof options.secret) {
        log_message("cannot read a random key from the kernel: %s", strerror(errno));
        return 0;
    }
    if (map && !bpf_map__set_initial_value(map, &options, sizeof options))
        return 1;
    log_message(
        "the object's options have another size than this n3icd expects: build both from one "
        "export");
    return 0;
}

/* Has the object load its meter, in the form of the state, and with `end` what ends flows. */
static void choose_programs(const struct kernel *k, struct bpf_object *object, int end) {
    struct bpf_program *program;

    bpf_object__for_each_program(program, object) {
        const char *name = bpf_program__name(program);

        bpf_program__set_autoload(program, !strcmp(name, k->state.tcx ? "n3ic_tc" : METER) ||
                                               (end && !strcmp(name, "n3ic_end")));
        if (!strcmp(bpf_program__section_name(program), FRAGS))
            bpf_program__set_flags(program, k->state.frags ? BPF_F_XDP_HAS_FRAGS : 0);
    }
}

static int load_chosen(struct bpf_object *object) {
    if (!bpf_object__load(object))
        return 1;
    log_message("the kernel refuses the program: %s%s", strerror(errno),
                errno == EPERM ? ": CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON are needed" : "");
    return 0;
}

/*
 * Loads the metering program, with room and options of a pack; or with those of the program
 * `before` and its maps, unless that is -1.
 */
static int load_meter(struct kernel *k, struct bpf_object *object, const struct pack *p,
                      int before) {
    const char *program_name = k->state.tcx ? "n3ic_tc" : METER;

    if (!set_options(k, object, p, before) ||
        !(before >= 0 ? inherit_maps(object, before, 1) : size_maps(object, p)))
        return 0;
    choose_programs(k, object, 1);
    if (!load_chosen(object))
        return 0;
    for (int m = 0; m <= MAP_OPTIONS; m++)
        if (!find_map(k, object, (enum map)m))
            return 0;
    k->program = find_program(object, program_name);
    k->end = find_program(object, "n3ic_end");
    return k->program >= 0 && k->end >= 0;
}

static int load_idle(struct kernel *k, struct bpf_object *object) {
    struct bpf_map *map = bpf_object__find_map_by_name(object, maps[MAP_FLOWS].name);

    if (!map || bpf_map__reuse_fd(map, k->map[MAP_FLOWS]) || bpf_object__load(object)) {
        log_message("the kernel refuses the program for idle flows: %s", strerror(errno));
        return 0;
    }
    k->idle = find_program(object, "n3ic_idle");
    return k->idle >= 0 && find_map(k, object, MAP_FOUND);
}

static struct bpf_object *open_object(const char *path) {
    /* Global data get the name that `n3ic xdp` knows. */
    LIBBPF_OPTS(bpf_object_open_opts, named, .object_name = "n3ic");
    struct bpf_object *object = bpf_object__open_file(path, &named);

    if (!object)
        log_message("%s: libbpf cannot read this object file: %s", path, strerror(errno));
    return object;
}

/* Opens an object file, loads it, and closes it. */
static int load_object(struct kernel *k, const char *path, const struct pack *p, int before) {
    struct bpf_object *object = open_object(path);
    int done;

    if (!object)
        return 0;
    done = p ? load_meter(k, object, p, before) : load_idle(k, object);
    bpf_object__close(object);
    return done;
}

/* Loads both objects, and makes the map of the state. */
static int load_programs(struct kernel *k, const struct program *anew, int before) {
    const uint32_t first = 0;

    memcpy(k->state.layout, N3ICD_LAYOUT, sizeof k->state.layout);
    memcpy(k->state.meter, N3ICD_METER, sizeof k->state.meter);
    memset(k->state.digest, 0, sizeof k->state.digest);
    if (!load_object(k, anew->object, anew->pack, before) || !load_object(k, anew->idle, NULL, -1))
        return 0;
    k->map[MAP_STATE] = bpf_map_create(BPF_MAP_TYPE_ARRAY, "state", 4, sizeof k->state, 1, NULL);
    if (k->map[MAP_STATE] >= 0 &&
        !bpf_map_update_elem(k->map[MAP_STATE], &first, &k->state, BPF_ANY))
        return check_maps(k) && kernel_apply(k, anew->pack);
    log_message("the map of the resident state cannot be made: %s", strerror(errno));
    return 0;
}

/* Loads it once more, with frames in several pieces or without, in place of the one there. */
static int load_in_form(struct kernel *k, const struct program *anew, uint32_t frags) {
    close_program(k);
    k->state.frags = frags;
    return load_programs(k, anew, -1);
}

/*
 * Ways to attach at XDP, the best first. A driver that refuses a program which takes frames in
 * several pieces may accept one that does not.
 */
static const struct way {
    enum mode mode;
    uint32_t frags;
} ways[] = {{MODE_NATIVE, 1}, {MODE_NATIVE, 0}, {MODE_GENERIC, 1}};

/* Whether a driver lacks XDP, or lacks it in this form or at this MTU. */
static int is_not_native(int error) {
    return error == -EOPNOTSUPP || error == -EINVAL || error == -ERANGE;
}

/* Loads the program into the dispatcher, in place of the one that is loaded, whose maps it has. */
static int attach_in_dispatcher(struct kernel *k, const char *path) {
    /* What was left of a start that was interrupted after it attached a program. */
    uint32_t left = k->is_taken_over ? dispatcher_find(k->index, 0, METER) : 0;
    struct bpf_object *object;
    int program = -ECANCELED; /* with a message */

    if (left && !dispatcher_detach(k->index, left))
        return program;
    object = open_object(path);
    if (!object)
        return program;
    choose_programs(k, object, 0);
    if (inherit_maps(object, k->program, 0))
        program = dispatcher_attach(k->index, object, METER, (int)k->state.generic,
                                    (int)k->state.frags, k->state.priority);
    bpf_object__close(object);
    if (program < 0)
        return program;
    close(k->program);
    k->program = program;
    return 0;
}

static int attach_in_mode(struct kernel *k, enum mode mode, const char *object) {
    LIBBPF_OPTS(bpf_link_create_opts, options,
                .flags = mode == MODE_GENERIC ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE);
    int error;

    k->state.generic = mode == MODE_GENERIC;
    if (k->state.dispatched) {
        error = attach_in_dispatcher(k, object);
        if (error != -ENOSYS || k->is_taken_over)
            return error;
        log_message("%s: this kernel cannot run XDP programs from a dispatcher: this one is alone "
                    "there",
                    k->interface);
        k->state.dispatched = 0;
    }
    k->link[0] = bpf_link_create(k->program, (int)k->index, BPF_XDP, &options);
    return k->link[0];
}

/* Says why a program is not attached in the best way. */
static void report_way(const struct kernel *k, int refused) {
    if (k->state.generic)
        log_message("%s has no native XDP%s (%s): the program runs in generic mode, which is "
                    "slower",
                    k->interface, refused == -ERANGE ? " at its MTU" : "", strerror(-refused));
    else
        log_message("%s takes no frames in several pieces (%s): short ones only", k->interface,
                    strerror(-refused));
}

/* Attaches the program; if it `is_new`, in another form if need be. */
static int attach_program(struct kernel *k, enum mode mode, const struct program *anew,
                          int is_new) {
    struct dispatcher there = {0};
    int error = 0, refused = 0;

    if (k->state.tcx)
        return attach_tcx(k);
    if (k->state.dispatched)
        there = dispatcher_of(k->index);
    if (there.id && mode == MODE_AUTO)
        mode = there.is_generic ? MODE_GENERIC : MODE_NATIVE;
    for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (mode != MODE_AUTO && mode != ways[i].mode)
            continue;
        if (ways[i].frags != k->state.frags) {
            if (!is_new && ways[i].mode == MODE_NATIVE)
                continue;
            if (is_new && !load_in_form(k, anew, ways[i].frags))
                return 0;
        }
        error = attach_in_mode(k, ways[i].mode, anew->object);
        if (error >= 0) {
            if (refused)
                report_way(k, refused);
            return 1;
        }
        if (!is_not_native(error))
            break;
        if (!refused)
            refused = error;
    }
    log_message("%s: the program cannot be attached: %s%s", k->interface, strerror(-error),
                error == -EBUSY || error == -EEXIST
                    ? ": another XDP program is attached: take it off with n3ic xdp unload or ip "
                      "link set dev ... xdp off, or load it by libxdp (xdp-loader), whose "
                      "dispatcher runs several"
                    : "");
    return 0;
}

/* Pins the program that was loaded anew in the place of the one before. */
static int pin_again(const struct kernel *k) {
    char path[512];

    if (!join_path(path, sizeof path, k->pins, "program"))
        return 0;
    if (!unlink(path))
        return pin_fd(k->program, k->pins, "program");
    log_message("%s: %s", path, strerror(errno));
    return 0;
}

/* Attaches the pinned program again. */
static int attach_again(struct kernel *k, const struct program *anew, enum mode mode) {
    const uint32_t first = 0;
    const int is_extension = k->state.dispatched;

    if (!attach_program(k, mode, anew, 0) || (is_extension && !pin_again(k)))
        return 0;
    if (!bpf_map_update_elem(k->map[MAP_STATE], &first, &k->state, BPF_ANY))
        return pin_links(k, k->pins);
    log_message("the state cannot be written: %s", strerror(errno));
    return 0;
}

/* Opens what is pinned; attaches it again if its interface was removed and added again. */
static int take_over_program(struct kernel *k, const struct program *anew,
                             const struct place *wanted) {
    const int tcx = wanted->mode == MODE_TCX;

    if (!open_pins(k))
        return 0;
    k->is_taken_over = 1;
    if (tcx != (int)k->state.tcx ||
        (wanted->priority != NO_PRIORITY &&
         (!k->state.dispatched || wanted->priority != k->state.priority))) {
        char bytes[128];
        struct text there = {.bytes = bytes, .room = sizeof bytes};

        kernel_write_place(k, &there);
        log_message("%s: the program stays where it was loaded (%.*s): to change the mode or "
                    "priority, take it off (--remove) and start n3icd again",
                    k->interface, (int)there.used, there.bytes);
    }
    return open_links(k) && (k->link[0] >= 0 || (k->state.dispatched && is_dispatched(k)) ||
                             attach_again(k, anew, wanted->mode));
}

/*
 * Decides whether a dispatcher runs the program: where one is attached, or a priority is wanted. 0
 * with a message if it cannot.
 */
static int choose_dispatcher(struct kernel *k, const struct place *wanted) {
    uint32_t other;

    if (k->state.tcx || (wanted->priority == NO_PRIORITY && !dispatcher_of(k->index).id))
        return 1;
    if (!dispatcher_open())
        return 0;
    k->state.dispatched = 1;
    k->state.priority = wanted->priority == NO_PRIORITY ? USUAL_PRIORITY : wanted->priority;
    other = dispatcher_find(k->index, 0, METER);
    if (!other)
        return 1;
    log_message("%s: program %u of n3ic runs in the dispatcher there: take it off with n3ic xdp "
                "unload or xdp-loader unload -i %u %s",
                k->interface, other, other, k->interface);
    return 0;
}

static int load_and_attach(struct kernel *k, const struct place *wanted, const struct program *anew,
                           const char *pins) {
    const uint32_t first = 0;
    char folder[256];

    /* Remains of a start that was interrupted: removing its pins detaches its program. */
    if (!pins_folder(folder, sizeof folder, pins, k->interface, "~n") ||
        !leave_dispatcher(k->interface, folder) || !remove_folder(folder))
        return 0;
    k->state.tcx = wanted->mode == MODE_TCX;
    k->state.frags = 1;
    if (!choose_dispatcher(k, wanted) || !load_programs(k, anew, -1) ||
        !attach_program(k, wanted->mode, anew, 1))
        return 0;
    bpf_map_update_elem(k->map[MAP_STATE], &first, &k->state, BPF_ANY);
    if (pin_all(k, pins))
        return 1;
    leave_dispatcher(k->interface, folder);
    remove_folder(folder); /* with the link, which would stay attached */
    return 0;
}

/* Where the program there is attached, and its options. */
static int read_program_before(struct kernel *k) {
    const enum map wanted[] = {MAP_STATE, MAP_OPTIONS};
    void *to[] = {&k->state, &k->options};
    const uint32_t first = 0;
    int done = 1;

    for (unsigned i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        int fd = open_pin(k->pins, maps[wanted[i]].pin);

        done = done && fd >= 0 && !bpf_map_lookup_elem(fd, &first, to[i]);
        if (fd >= 0)
            close(fd);
    }
    if (!done)
        log_message("%s: the program there cannot be read", k->pins);
    if (!done || !memcmp(k->state.meter, N3ICD_METER, sizeof k->state.meter))
        return done;
    log_message("%s: the program there has another meter, flow table or number of classes: take it "
                "off (--remove)",
                k->pins);
    return 0;
}

/* Puts the program in the place of the one before. */
static int replace_program(struct kernel *k, const char *object, int before) {
    int is_extension, error = 0;

    if (k->state.dispatched) {
        /* Both at once would count packets twice. */
        log_message("%s: the dispatcher takes one program off before it runs the next: packets "
                    "pass unmetered for a moment",
                    k->interface);
        if (!dispatcher_detach(k->index, program_id(before, &is_extension)))
            return 0;
        error = attach_in_mode(k, k->state.generic ? MODE_GENERIC : MODE_NATIVE, object);
    }
    for (int i = 0; !error && i < link_count(k); i++)
        error = bpf_link_update(k->link[i], k->program, NULL);
    if (!error)
        return 1;
    log_message("%s: the program there cannot be replaced: %s", k->interface, strerror(-error));
    return 0;
}

/* Puts a new program in the place of the pinned one, which it succeeds. */
static int succeed_program(struct kernel *k, const struct program *anew, const char *pins) {
    char folder[256];
    int before = open_pin(k->pins, "program"), done;

    k->is_taken_over = 1;
    done = before >= 0 && read_program_before(k) && open_links(k) && load_programs(k, anew, before);
    if (done && k->link[0] < 0 && !k->state.dispatched) {
        log_message("%s: the program there is not attached: take it off (--remove)", k->pins);
        done = 0;
    }
    done = done && pins_folder(folder, sizeof folder, pins, k->interface, "~n") &&
           remove_folder(folder) && replace_program(k, anew->object, before);
    if (before >= 0)
        close(before);
    return done && pin_all(k, pins);
}

static void reset_kernel(struct kernel *k) {
    memset(k, 0, sizeof *k);
    k->program = k->end = k->idle = -1;
    for (int i = 0; i < LINKS; i++)
        k->link[i] = -1;
    for (int m = 0; m < MAPS; m++)
        k->map[m] = -1;
}

/*
 * Whether an interface's packets begin with an Ethernet header, which the program reads first;
 * those of tun, PPP, GRE and WireGuard do not.
 */
static int has_ethernet(const char *interface) {
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int done;

    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    done = fd >= 0 && !ioctl(fd, SIOCGIFHWADDR, &request);
    if (!done)
        log_message("the type of the interface %s cannot be read: %s", interface, strerror(errno));
    if (fd >= 0)
        close(fd);
    if (done && request.ifr_hwaddr.sa_family != ARPHRD_ETHER &&
        request.ifr_hwaddr.sa_family != ARPHRD_LOOPBACK) {
        log_message(
            "%s: its packets have no Ethernet header, which the program needs (tun, PPP, GRE and "
            "WireGuard have none)",
            interface);
        return 0;
    }
    return done;
}

/* Reads what is known of an interface before its program is opened. */
static int read_interface(struct kernel *k, const char *interface, const char *pins) {
    size_t largest = sizeof(struct tally) > sizeof(struct counters) ? sizeof(struct tally)
                                                                    : sizeof(struct counters);
    int cpus = libbpf_num_possible_cpus();

    reset_kernel(k);
    libbpf_set_print(print_warning);
    /* libbpf's own handler sets the flag of this section, whatever a caller says. */
    libbpf_register_prog_handler(FRAGS, BPF_PROG_TYPE_XDP, BPF_XDP, NULL);
    if (strlen(interface) >= sizeof k->interface || !(k->index = if_nametoindex(interface))) {
        log_message("there is no interface %s", interface);
        return 0;
    }
    strcpy(k->interface, interface);
    if (cpus < 1 || !(k->values = calloc((size_t)cpus, (largest + 7) / 8 * 8))) {
        log_message("the number of processors cannot be read: %s", strerror(errno));
        return 0;
    }
    k->cpus = (uint32_t)cpus;
    return pins_folder(k->pins, sizeof k->pins, pins, interface, "");
}

int kernel_view(struct kernel *k, const char *interface, const char *pins) {
    return read_interface(k, interface, pins) && open_pins(k);
}

int kernel_open(struct kernel *k, const char *interface, const char *pins,
                const struct place *wanted, const struct program *anew, int succeeds) {
    char path[512];
    int is_pinned, done;

    if (!read_interface(k, interface, pins) || !has_ethernet(interface) ||
        !join_path(path, sizeof path, k->pins, "program"))
        return 0;
    if (mkdir(pins, 0700) && errno != EEXIST) {
        log_message("%s: %s: is a BPF file system mounted there (mount -t bpf bpf /sys/fs/bpf)?",
                    pins, strerror(errno));
        return 0;
    }
    is_pinned = access(path, F_OK) == 0;
    if (is_pinned && succeeds && is_of_another_build(k))
        done = succeed_program(k, anew, pins);
    else
        done =
            is_pinned ? take_over_program(k, anew, wanted) : load_and_attach(k, wanted, anew, pins);
    if (!done)
        return 0;
    k->idle_flows = mmap(NULL, sizeof *k->idle_flows, PROT_READ, MAP_SHARED, k->map[MAP_FOUND], 0);
    if (k->idle_flows == MAP_FAILED) {
        k->idle_flows = NULL;
        log_message("the map of idle flows cannot be read: %s", strerror(errno));
        return 0;
    }
    return 1;
}

void kernel_close(struct kernel *k) {
    if (k->idle_flows)
        munmap(k->idle_flows, sizeof *k->idle_flows);
    close_links(k);
    close_program(k);
    free(k->values);
    free(k->sweep.flow);
    reset_kernel(k);
}

int kernel_unload(struct kernel *k, const char *pins) {
    for (int i = 0; i < link_count(k); i++)
        if (bpf_link_detach(k->link[i])) {
            log_message("%s: the program cannot be detached: %s", k->interface, strerror(errno));
            return 0;
        }
    return kernel_remove(k->interface, pins);
}

const char *kernel_mode(const struct kernel *k) {
    return k->state.tcx ? "tcx" : k->state.generic ? "generic" : "native";
}

void kernel_write_place(const struct kernel *k, struct text *out) {
    text_format(out, "%s%s", kernel_mode(k), k->state.tcx ? ", both directions" : " XDP");
    if (!k->state.frags)
        text_format(out, " without frames in several pieces");
    if (k->state.dispatched)
        text_format(out, ", in a dispatcher, priority %" PRIu32, k->state.priority);
}

int kernel_is_attached(struct kernel *k) {
    if (k->state.dispatched)
        return is_dispatched(k);
    for (int i = 0; i < link_count(k); i++)
        if (index_of_link(k->link[i]) != k->index)
            return 0;
    return 1;
}

/* --- values ---------------------------------------------------------------------------------- */

/* A map that holds one value; -1 where the kernel has no memory for it. */
static int inner_map(const char *name, const struct pack_value *v) {
    const uint32_t first = 0;
    int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, name, sizeof first, v->size, 1, NULL);

    if (fd >= 0 && bpf_map_update_elem(fd, &first, v->bytes, BPF_ANY)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Sets the counters of a slot to 0. */
static void clear_tally(struct kernel *k, uint32_t slot) {
    memset(k->values, 0, k->cpus * ((sizeof(struct tally) + 7) / 8 * 8));
    for (uint32_t user = 0; user < k->users; user++) {
        uint32_t at = user * SLOTS + slot;

        bpf_map_update_elem(k->map[MAP_TALLIES], &at, k->values, BPF_ANY);
    }
}

/* Swaps in new maps of networks and rules; each packet sees either an old or a new one. */
static int replace_inner_maps(struct kernel *k, const struct pack *p, const int *fd) {
    static const uint8_t none[32];

    for (uint32_t i = 0; i < p->values; i++) {
        const struct pack_value *v = &p->value[i];
        int outer = k->map[v->map == PACK_MODELS ? MAP_MODELS : MAP_DISPATCH];

        if (fd[i] < 0)
            continue;
        if (bpf_map_update_elem(outer, &v->index, &fd[i], BPF_ANY))
            return 0;
        if (v->map == PACK_MODELS && memcmp(k->state.digest[v->index], v->bytes, 32)) {
            clear_tally(k, v->index);
            memcpy(k->state.digest[v->index], v->bytes, 32);
        }
    }
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        if (pack_network(p, slot) || !memcmp(k->state.digest[slot], none, sizeof none))
            continue;
        bpf_map_delete_elem(k->map[MAP_MODELS], &slot);
        memcpy(k->state.digest[slot], none, sizeof none);
    }
    return 1;
}

/* Whether the hook has the actions of a pack's policies, and XDP can send to their interfaces. */
static int supports_pack(const struct kernel *k, const struct pack *p) {
    for (uint32_t i = 0; i < p->values; i++) {
        struct policy policy;
        const struct pack_value *v = &p->value[i];
        char name[IF_NAMESIZE];
        uint32_t index;

        if (v->map == PACK_INTERFACE && !k->state.tcx) { /* tcx takes the header off */
            memcpy(&index, v->bytes, sizeof index);
            if (if_indextoname(index, name) && !has_ethernet(name))
                return 0;
        }
        if (v->map != PACK_POLICIES || v->size != sizeof policy)
            continue;
        memcpy(&policy, v->bytes, sizeof policy);
        if (k->state.tcx ? policy.action == ACT_SOCKET || policy.action == ACT_CPU
                         : policy.action == ACT_MIRROR) {
            log_message(
                "%s: the pack %s", k->interface,
                k->state.tcx
                    ? "hands packets to a socket or CPU, which tcx cannot: mode = native can"
                    : "mirrors packets, which XDP cannot: mode = tcx can");
            return 0;
        }
    }
    return 1;
}

#define FORGOTTEN (1u << 26) /* entries looked at, as a flood brings new ones all the time */

/* Deletes verdicts that decisions made, and counts of decisions that have not made one yet. */
static void delete_decided_verdicts(const struct kernel *k) {
    static const enum map maps_with_decisions[] = {MAP_TUPLES, MAP_HOSTS, MAP_STRIKES};

    for (unsigned i = 0; i < sizeof maps_with_decisions / sizeof *maps_with_decisions; i++) {
        union {
            struct key flow;
            struct subject source;
        } key, next;
        union {
            struct verdict verdict;
            struct strikes strikes;
        } value;
        int fd = k->map[maps_with_decisions[i]], more = !bpf_map_get_next_key(fd, NULL, &next);

        for (uint32_t left = FORGOTTEN; more && left; left--) {
            key = next;
            more = !bpf_map_get_next_key(fd, &key, &next);
            if (!bpf_map_lookup_elem(fd, &key, &value) &&
                (maps_with_decisions[i] == MAP_STRIKES || value.verdict.by != BY_OPERATOR))
                bpf_map_delete_elem(fd, &key);
        }
    }
}

int kernel_apply(struct kernel *k, const struct pack *p) {
    static const enum map plain[] = {
        [PACK_POLICIES] = MAP_POLICIES,
        [PACK_CONFIG] = MAP_CONFIG,
        [PACK_INTERFACE] = MAP_INTERFACES,
        [PACK_CPUS] = MAP_CPUS,
    };
    static const enum pack_map order[] = {PACK_INTERFACE, PACK_CPUS, PACK_CONFIG, PACK_POLICIES};
    const uint32_t first = 0;
    struct config before;
    int fd[PACK_VALUES], done = 1, anew;

    if (!supports_pack(k, p))
        return 0;
    anew = !bpf_map_lookup_elem(k->map[MAP_CONFIG], &first, &before) && before.dry_run;

    /* Steps that may lack memory come first, while nothing has changed. */
    for (uint32_t i = 0; i < p->values; i++) {
        const struct pack_value *v = &p->value[i];

        fd[i] = -1;
        if (v->map == PACK_MODELS || v->map == PACK_DISPATCH) {
            fd[i] = inner_map(v->map == PACK_MODELS ? "models" : "dispatch", v);
            done = done && fd[i] >= 0;
        }
    }
    /* What a dry run decided never acts. Once more below, for what is decided meanwhile. */
    if (done && anew)
        delete_decided_verdicts(k);
    for (unsigned o = 0; o < sizeof order / sizeof *order; o++)
        for (uint32_t i = 0; done && i < p->values; i++)
            if (p->value[i].map == order[o] &&
                bpf_map_update_elem(k->map[plain[order[o]]], &p->value[i].index, p->value[i].bytes,
                                    BPF_ANY))
                done = 0;
    done = done && replace_inner_maps(k, p, fd) &&
           !bpf_map_update_elem(k->map[MAP_STATE], &first, &k->state, BPF_ANY);
    if (done && anew)
        delete_decided_verdicts(k);
    if (!done)
        log_message("the values of the pack cannot be written: %s", strerror(errno));
    for (uint32_t i = 0; i < p->values; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    return done;
}

/* --- reading --------------------------------------------------------------------------------- */

/* Adds the words of all CPUs' values at an index. */
static int sum_over_cpus(struct kernel *k, enum map m, uint32_t at, uint64_t *out, size_t words) {
    const uint64_t *value = k->values;

    if (bpf_map_lookup_elem(k->map[m], &at, k->values))
        return 0;
    for (uint32_t cpu = 0; cpu < k->cpus; cpu++, value += words)
        for (size_t i = 0; i < words; i++)
            out[i] += value[i];
    return 1;
}

_Static_assert(sizeof(struct counters) % 8 == 0 && sizeof(struct tally) % 8 == 0, "words only");

int kernel_counters(struct kernel *k, struct counters *out) {
    uint64_t *words = (uint64_t *)(void *)out;

    memset(out, 0, sizeof *out);
    for (uint32_t user = 0; user < k->users; user++)
        if (!sum_over_cpus(k, MAP_COUNTED, user, words, sizeof *out / 8))
            return 0;
    return 1;
}

int kernel_tally(struct kernel *k, uint32_t slot, struct tally *out) {
    uint64_t *words = (uint64_t *)(void *)out;

    memset(out, 0, sizeof *out);
    for (uint32_t user = 0; user < k->users; user++)
        if (!sum_over_cpus(k, MAP_TALLIES, user * SLOTS + slot, words, sizeof *out / 8))
            return 0;
    return 1;
}

/* Flows in the table, and the counters of that time. */
static int count_flows(struct kernel *k, const struct counters *now, struct counters *then,
                       uint64_t *flows) {
    *then = *now;
#if N3ICD_BUCKETS
    (void)k;
    *flows = now->inserted - now->removed - now->replaced;
    return 1;
#else
    struct key key, next;

    if (k->swept.packets || k->swept.inserted) {
        *then = k->swept;
        *flows = k->flows;
        return 1;
    }
    for (*flows = 0; *flows < k->room; ++*flows, key = next)
        if (bpf_map_get_next_key(k->map[MAP_FLOWS], *flows ? &key : NULL, &next))
            break;
    return 1;
#endif
}

static uint64_t excess_of(uint64_t all, uint64_t some) {
    return all > some ? all - some : 0;
}

int kernel_figures(struct kernel *k, struct figures *out) {
    const uint32_t first = 0;
    struct counters then;
    struct guard guard;

    if (!kernel_counters(k, &out->counters) ||
        !count_flows(k, &out->counters, &then, &out->flows) ||
        bpf_map_lookup_elem(k->map[MAP_GUARDS], &first, &guard) ||
        bpf_map_lookup_elem(k->map[MAP_CONFIG], &first, &out->config))
        return 0;
    out->blocked_hosts = guard.blocked;
    out->evicted = excess_of(then.inserted, then.removed + out->flows);
    /* Flows in the table may be undecided as yet, so that more may have left undecided. */
    out->undecided = excess_of(then.started, then.flows_decided + out->flows);
    return 1;
}

uint64_t kernel_now(const struct kernel *k) {
    struct timespec now;

    clock_gettime(k->options.clock ? CLOCK_MONOTONIC_COARSE : CLOCK_MONOTONIC, &now);
    return ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec) / METER_TICK_NS;
}

/* --- idle flows ------------------------------------------------------------------------------ */

/* Sorts the flow that is idle for longest first, as in the reference meter. */
static int compare_age(const void *a, const void *b) {
    const struct idle_flow *x = a, *y = b;

    if (x->last != y->last)
        return x->last < y->last ? -1 : 1;
    return (x->touched > y->touched) - (x->touched < y->touched);
}

/* Ends the listed flows; their number, or -1. */
static int end_flows(const struct kernel *k, uint64_t now, const struct idle_flow *flow,
                     uint32_t count) {
    struct {
        struct ends head;
        struct key key[ENDS_AT_ONCE];
    } request = {{.now = now, .why = BY_IDLE, .count = count}, {{{0}, {0}, 0, 0, 0, 0, {0}}}};
    LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = &request, .data_size_in = sizeof request);

    for (uint32_t i = 0; i < count; i++)
        request.key[i] = flow[i].key;
    return bpf_prog_test_run_opts(k->end, &run) ? -1 : (int)run.retval;
}

/* Notes the idle flows of the table, the oldest first; 0 if the kernel refuses. */
static int search_idle_flows(struct kernel *k) {
    struct idle_search search = {.now = k->sweep.now};
    struct sweep *s = &k->sweep;
    LIBBPF_OPTS(bpf_test_run_opts, run, .ctx_in = &search, .ctx_size_in = sizeof search);

    if (bpf_prog_test_run_opts(k->idle, &run) || k->idle_flows->count > IDLE_AT_ONCE)
        return 0;
    s->count = k->idle_flows->count;
    s->next = 0;
    s->flows = k->idle_flows->flows;
    memcpy(s->flow, k->idle_flows->flow, s->count * sizeof *s->flow);
    qsort(s->flow, s->count, sizeof *s->flow, compare_age);
    return kernel_counters(k, &s->counters);
}

int kernel_sweep(struct kernel *k) {
    struct sweep *s = &k->sweep;

    if (s->running)
        return 1;
    if (!s->flow && !(s->flow = malloc(IDLE_AT_ONCE * sizeof *s->flow)))
        return 0;
    s->now = kernel_now(k);
    s->running = search_idle_flows(k);
    return s->running;
}

int kernel_sweep_step(struct kernel *k) {
    struct sweep *s = &k->sweep;
    uint32_t left = s->count - s->next, count = left < ENDS_AT_ONCE ? left : ENDS_AT_ONCE;
    int ended = count ? end_flows(k, s->now, s->flow + s->next, count) : 0;

    if (ended < 0)
        return s->running = 0;
    k->ended += (uint64_t)ended;
    s->next += count;
    if (s->next < s->count)
        return 1;
    if (s->count == IDLE_AT_ONCE) /* there may be more, and not all flows were counted */
        return s->running = search_idle_flows(k);
    s->running = 0;
    k->flows = s->flows; /* of one time with the counters, so that figures add up */
    k->swept = s->counters;
    return 1;
}
