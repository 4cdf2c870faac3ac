// SPDX-License-Identifier: Apache-2.0
#include "list_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verdict_maps.h"

struct list {
    struct prefix *prefix; /* sorted, each once */
    uint32_t count, room;
};

static int report_memory(const char *path) {
    log_message("%s: no memory for its entries", path);
    return 0;
}

static int add_prefix(struct list *l, const struct prefix *x, const char *path) {
    if (l->count == l->room) {
        uint32_t room = l->room ? 2 * l->room : 1024;
        struct prefix *more =
            room > l->room ? reallocarray(l->prefix, room, sizeof *l->prefix) : NULL;

        if (!more)
            return report_memory(path);
        l->prefix = more;
        l->room = room;
    }
    l->prefix[l->count++] = *x;
    return 1;
}

/* Adds what a line holds, if it is more than a comment. */
static int read_line(struct list *l, char *line, const char *path, unsigned number) {
    char *word = line + strspn(line, " \t\r\n");
    struct target t;

    if (number == 1 && !strncmp(word, "\xef\xbb\xbf", 3)) /* of an editor */
        word += 3;
    word[strcspn(word, "#;\r\n")] = 0;
    for (size_t size = strlen(word); size && strchr(" \t", word[size - 1]); size--)
        word[size - 1] = 0;
    if (!*word)
        return 1;
    if (target_read(&t, word) && !t.flow)
        return add_prefix(l, &t.prefix, path);
    log_message("%s:%u: expected an address or a prefix; nothing of this file is taken", path,
                number);
    return 0;
}

static void sort_prefixes(struct list *l) {
    uint32_t kept = 0;

    if (l->count)
        qsort(l->prefix, l->count, sizeof *l->prefix, prefix_compare);
    for (uint32_t i = 0; i < l->count; i++)
        if (!kept || prefix_compare(&l->prefix[kept - 1], &l->prefix[i]))
            l->prefix[kept++] = l->prefix[i];
    l->count = kept;
}

/* An empty path is an empty list. The caller frees the prefixes in any case. */
static int read_list(struct list *l, const char *path) {
    FILE *file;
    char *line = NULL;
    size_t room = 0;
    int good = 1;

    *l = (struct list){0};
    if (!*path)
        return 1;
    file = fopen(path, "re");
    if (!file) {
        log_message("%s: %s", path, strerror(errno));
        return 0;
    }
    for (unsigned number = 1; good && getline(&line, &room, file) >= 0; number++)
        good = read_line(l, line, path, number);
    if (good && ferror(file)) {
        log_message("%s: %s", path, strerror(errno));
        good = 0;
    }
    free(line);
    fclose(file);
    if (good)
        sort_prefixes(l);
    return good;
}

static int check_list(const char *path) {
    struct list l;
    int good = read_list(&l, path);

    free(l.prefix);
    return good;
}

static int apply_list(const struct kernel *k, const char *path, uint32_t action) {
    struct list l;
    int good = read_list(&l, path) && verdict_put_list(k, action, l.prefix, l.count, path);

    free(l.prefix);
    if (good && *path)
        log_message("%s: %s: %u entries are %s", k->interface, path, l.count,
                    action == ACT_ALLOW ? "allowed" : "blocked");
    return good;
}

int list_files_check(const struct settings *s) {
    return check_list(s->allow_file) && check_list(s->block_file);
}

int list_files_apply(const struct settings *s, const struct kernel *k) {
    int allowed = apply_list(k, s->allow_file, ACT_ALLOW);

    return apply_list(k, s->block_file, ACT_DROP) && allowed;
}
