// SPDX-License-Identifier: Apache-2.0
#include "store.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build.h"
#include "text.h"

#define PATH 768

static int join_path(char out[PATH], const char *folder, const char *name) {
    int made = snprintf(out, PATH, "%s/%s", folder, name);

    if (made >= 0 && made < PATH)
        return 1;
    log_message("%s/%s: the path is too long: at most %d bytes", folder, name, PATH - 1);
    return 0;
}

static int report_errno(const char *path) {
    log_message("%s: %s", path, strerror(errno));
    return 0;
}

/* Writes a file whole, or leaves what was there. */
static int write_file(const char *folder, const char *name, const void *bytes, size_t size) {
    char path[PATH], fresh[PATH + 8];
    const char *at = bytes, *end = at + size;
    int fd, done;

    if (!join_path(path, folder, name))
        return 0;
    snprintf(fresh, sizeof fresh, "%s.new", path);
    if (unlink(fresh) && errno != ENOENT)
        return report_errno(fresh);
    fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return report_errno(fresh);
    while (at < end) {
        ssize_t put = write(fd, at, (size_t)(end - at));

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            break;
        at += put;
    }
    done = at == end && !fsync(fd);
    done = !close(fd) && done;
    if (done && !rename(fresh, path))
        return 1;
    report_errno(path);
    unlink(fresh);
    return 0;
}

/* --- packs of updates ------------------------------------------------------------------------ */

static void update_name(char out[PATH], const struct settings *s, uint32_t configured) {
    snprintf(out, PATH, "%s-%08" PRIx32 ".pack", s->interface, configured);
}

struct pack *store_read(const struct settings *s, uint32_t *configured) {
    struct pack *p = pack_read(s->pack), *update;
    char name[PATH], path[PATH];

    if (!p)
        return NULL;
    *configured = p->sum;
    update_name(name, s, p->sum);
    if (!join_path(path, s->updates, name) || access(path, F_OK))
        return p;
    update = pack_read(path);
    if (!update) {
        log_message("%s cannot be used: %s is loaded in its place", path, s->pack);
        return p;
    }
    pack_free(p);
    return update;
}

int store_write_update(const struct settings *s, uint32_t configured, const struct pack *p) {
    char name[PATH];

    if (mkdir(s->updates, 0700) && errno != EEXIST)
        return report_errno(s->updates);
    update_name(name, s, configured);
    return write_file(s->updates, name, p->read, p->size);
}

void store_remove_updates(const struct settings *s, uint32_t configured) {
    size_t before = strlen(s->interface);
    DIR *open = opendir(s->updates);
    char name[PATH], path[PATH];
    struct dirent *entry;

    if (!open)
        return;
    update_name(name, s, configured);
    while ((entry = readdir(open))) {
        const char *status = entry->d_name;

        if (strlen(status) == strlen(name) && !strncmp(status, name, before + 1) &&
            !strcmp(status + before + 9, ".pack") && strcmp(status, name) &&
            join_path(path, s->updates, status) && unlink(path))
            report_errno(path);
    }
    closedir(open);
}

/* --- records --------------------------------------------------------------------------------- */

static int record_folder(char out[PATH], const struct settings *s) {
    struct stat namespace;
    int made;

    if (stat("/proc/self/ns/net", &namespace))
        return report_errno("/proc/self/ns/net");
    made =
        snprintf(out, PATH, "%s/%s-%" PRIu64, s->records, s->interface, (uint64_t)namespace.st_ino);
    return made >= 0 && made < PATH;
}

static int program_folder(char out[PATH], const char *folder, const struct kernel *k) {
    struct bpf_prog_info info = {0};
    uint32_t size = sizeof info;
    char name[16];

    if (bpf_obj_get_info_by_fd(k->program, &info, &size))
        return report_errno("the program");
    snprintf(name, sizeof name, "%" PRIu32, info.id);
    return join_path(out, folder, name);
}

/* Removes a folder and its folders down to a depth, except the one that stays. */
static void remove_tree(const char *folder, const char *stays, int deep) {
    DIR *open = opendir(folder);
    struct dirent *entry;
    char path[PATH];

    if (!open)
        return;
    while ((entry = readdir(open))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
            !join_path(path, folder, entry->d_name) || (stays && !strcmp(path, stays)))
            continue;
        if (unlink(path) && errno == EISDIR && deep)
            remove_tree(path, NULL, deep - 1);
    }
    closedir(open);
    rmdir(folder);
}

int record_pack(const struct settings *s, const struct kernel *k, const struct pack *p) {
    char folder[PATH], place[PATH];

    return record_folder(folder, s) && program_folder(place, folder, k) &&
           write_file(place, "n3icd.pack", p->read, p->size);
}

static int write_record(const struct settings *s, const struct kernel *k, const struct pack *p) {
    const struct {
        const char *name, *value;
    } texts[] = {{"mode", kernel_mode(k)},
                 {"pack", s->pack},
                 {"pins", k->pins},
                 {"socket", s->socket},
                 {"control", s->control}};
    char bytes[8192], folder[PATH], place[PATH];
    struct text t = {.bytes = bytes, .room = sizeof bytes};

    if (!record_folder(folder, s) || !program_folder(place, folder, k))
        return 0;
    remove_tree(folder, place, 1);
    if ((mkdir(folder, 0700) && errno != EEXIST) || (mkdir(place, 0700) && errno != EEXIST))
        return report_errno(place);
    text_format(&t, "{\"version\": %d, \"frags\": %s", N3ICD_RECORD,
                k->state.frags ? "true" : "false");
    if (k->state.dispatched)
        text_format(&t, ", \"priority\": %" PRIu32, k->state.priority);
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
        text_format(&t, ", \"%s\": ", texts[i].name);
        text_json(&t, texts[i].value);
    }
    text_format(&t, "}\n");
    if (t.cut)
        return 0;
    return record_pack(s, k, p) && write_file(place, "n3icd.json", bytes, t.used);
}

int record_write(const struct settings *s, const struct kernel *k, const struct pack *p) {
    char parent[SETTING], *slash;

    snprintf(parent, sizeof parent, "%s", s->records);
    slash = strrchr(parent, '/');
    if (slash && slash != parent) {
        *slash = 0;
        mkdir(parent, 0755);
    }
    if (mkdir(s->records, 0700) && errno != EEXIST)
        return report_errno(s->records);
    return write_record(s, k, p);
}

void record_remove(const struct settings *s) {
    char folder[PATH];

    if (record_folder(folder, s))
        remove_tree(folder, NULL, 1);
}
