// SPDX-License-Identifier: Apache-2.0
#include "operator.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "control.h"
#include "metrics.h"
#include "store.h"
#include "verdict_maps.h"

#define CONFIGURATION "/etc/n3icd/n3icd.conf"
#define SECOND 1000000000ull
#define MOST_SECONDS 1e9

static const char *const commands[] = {"block",  "allow",  "unblock", "list",
                                       "status", "update", "unload"};
static const char *const actions[] = {"pass", "drop",       "interface", "socket", "cpu",
                                      "mark", "rate-limit", "allow",     "mirror", "shared"};

struct command_line {
    const char *command, *what, *configuration, *interface, *seconds, *action;
    int remove, shared;
};

int operator_has(const char *word) {
    for (unsigned i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(word, commands[i]))
            return 1;
    return 0;
}

static int is_command(const struct command_line *t, const char *command) {
    return !strcmp(t->command, command);
}

static int usage(void) {
    fputs("expected:\n" OPERATOR_USAGE, stderr);
    return 2;
}

/* Parses the words of a command; 0 if the command does not take them. */
static int parse_words(struct command_line *t, int words, char **word) {
    *t = (struct command_line){.command = word[0]};
    for (int i = 1; i < words; i++) {
        int block = is_command(t, "block"), allow = is_command(t, "allow");
        const char **to = !strcmp(word[i], "-c")                            ? &t->configuration
                          : !strcmp(word[i], "-i")                          ? &t->interface
                          : (block || allow) && !strcmp(word[i], "--for")   ? &t->seconds
                          : block && !strcmp(word[i], "--action")           ? &t->action
                                                                            : NULL;

        if (to) {
            if (*to || ++i == words)
                return 0;
            *to = word[i];
        } else if (allow && !strcmp(word[i], "--remove")) {
            t->remove = 1;
        } else if (allow && !strcmp(word[i], "--shared")) {
            t->shared = 1;
        } else if (*word[i] == '-' || t->what) {
            return 0;
        } else {
            t->what = word[i];
        }
    }
    return (is_command(t, "list") || is_command(t, "status") || is_command(t, "unload")) ==
           !t->what;
}

/* The interface of the pins, if there is only one. */
static int only_interface(char out[IF_NAMESIZE], const char *pins) {
    DIR *open = opendir(pins);
    struct dirent *entry;
    int interfaces = 0;

    if (!open) {
        log_message("%s: %s", pins, strerror(errno));
        return 0;
    }
    while ((entry = readdir(open))) {
        char *to = out;

        if (*entry->d_name == '.' || !strncmp(entry->d_name, "~n", 2))
            continue;
        for (const char *c = entry->d_name; *c && to < out + IF_NAMESIZE - 1; c++) {
            *to++ = *c != '~' ? *c : c[1] == 'd' ? '.' : '~';
            c += *c == '~' && c[1];
        }
        *to = 0;
        interfaces++;
    }
    closedir(open);
    if (interfaces != 1)
        log_message("%s holds the programs of %d interfaces: name one (-i INTERFACE)", pins,
                    interfaces);
    return interfaces == 1;
}

static int read_settings(struct settings *s, const struct command_line *t) {
    const char *path = t->configuration ? t->configuration : CONFIGURATION;
    char name[IF_NAMESIZE];

    if (!t->configuration && access(path, F_OK)) {
        log_message("%s: %s: name the configuration (-c CONFIGURATION)", path, strerror(errno));
        return 0;
    }
    if (t->interface)
        return settings_read(s, path, t->interface);
    /* The folder of the pins does not depend on the interface. */
    return settings_read(s, path, "%i") && only_interface(name, s->pins) &&
           settings_read(s, path, name);
}

/* --- block, allow, unblock ------------------------------------------------------------------- */

/* A number with digits alone, from 1 to a limit; 0 if it is not one. */
static uint32_t parse_number(const char *word, uint32_t most) {
    size_t size = strspn(word, "0123456789");
    uint64_t value = size && size < 11 && !word[size] ? strtoull(word, NULL, 10) : 0;

    return value > most ? 0 : (uint32_t)value;
}

static int parse_action(const char *word, uint32_t *action, uint32_t *argument) {
    uint32_t value;

    *argument = 0;
    *action = ACT_DROP;
    if (!word || !strcmp(word, "drop"))
        return 1;
    if (!strncmp(word, "rate-limit:", 11) && (value = parse_number(word + 11, (uint32_t)SECOND))) {
        *action = ACT_LIMIT;
        *argument = (uint32_t)(SECOND / value);
        return 1;
    }
    if (!strncmp(word, "mark:", 5) &&
        ((value = parse_number(word + 5, UINT32_MAX)) || !strcmp(word + 5, "0"))) {
        *action = ACT_MARK;
        *argument = value;
        return 1;
    }
    log_message("--action %s: expected drop, rate-limit:N (packets a second) or mark:N", word);
    return 0;
}

static int parse_until(const struct kernel *k, const char *word, uint64_t *until) {
    char *rest;
    double seconds;

    *until = FOR_EVER;
    if (!word)
        return 1;
    seconds = strtod(word, &rest);
    if (*word < '0' || *word > '9' || *rest || !(seconds > 0 && seconds <= MOST_SECONDS)) {
        log_message("--for %s: expected a number of seconds, more than 0 and at most 1e9", word);
        return 0;
    }
    *until = kernel_now(k) + (uint64_t)(seconds * (double)SECOND) / METER_TICK_NS;
    return 1;
}

static int change_verdict(const struct kernel *k, const struct command_line *t) {
    char bytes[256];
    struct text shown = {.bytes = bytes, .room = sizeof bytes};
    uint32_t action = t->shared ? ACT_SHARED : ACT_ALLOW, argument = 0;
    struct target target;
    uint64_t until;
    int gone;

    if (!target_read(&target, t->what))
        return 1;
    target_write(&shown, &target);
    if (t->shared && target.flow) {
        log_message("%s: expected an address or a prefix with --shared, not a flow", bytes);
        return 1;
    }
    if (is_command(t, "unblock") || t->remove) {
        gone = verdict_remove(k, &target, t->remove);
        if (gone > 0)
            printf("%s: %s: %s\n", k->interface, bytes,
                   t->remove ? "allowed no more" : "unblocked");
        else if (!gone)
            log_message("%s: there is no verdict on %s: n3icd list shows all", k->interface, bytes);
        return gone <= 0;
    }
    if ((is_command(t, "block") && !parse_action(t->action, &action, &argument)) ||
        !parse_until(k, t->seconds, &until) || !verdict_put(k, &target, action, argument, until))
        return 1;
    printf("%s: %s: %s", k->interface, bytes,
           t->shared                ? "shared by many users"
           : is_command(t, "allow") ? "allowed"
           : t->action              ? t->action
                                    : "drop");
    printf(t->seconds ? " for %s s\n" : "\n", t->seconds);
    return 0;
}

/* --- list and status ------------------------------------------------------------------------- */

struct listing {
    const struct kernel *k;
    const struct pack *p;
    int count;
};

/* The local time at which a verdict was made. */
static void write_since(char *out, size_t size, const struct kernel *k, const struct verdict *v) {
    uint64_t ago_ns = (kernel_now(k) - v->since) * METER_TICK_NS;
    time_t second = time(NULL) - (time_t)(ago_ns / SECOND);
    struct tm local;

    if (!localtime_r(&second, &local) || !strftime(out, size, "%F %T", &local))
        snprintf(out, size, "?");
}

static void list_verdict(void *context, const struct target *t, const struct verdict *v) {
    struct listing *l = context;
    const struct pack_value *rules = l->p ? pack_value(l->p, PACK_DISPATCH, 0) : NULL;
    uint32_t slot = rules ? ((const struct rules *)(const void *)rules->bytes)->otherwise : 0;
    const char *by = v->by == BY_OPERATOR ? "operator"
                     : v->by == BY_FILE   ? "file"
                     : v->by == SHUNTED   ? "shunt"
                                          : NULL;
    char bytes[256], number[16], left[32] = "ever", since[32];
    struct text shown = {.bytes = bytes, .room = sizeof bytes};

    target_write(&shown, t);
    if (!by && l->p && slot < SLOTS && v->by >= 0 && v->by < NETWORK_CLASSES)
        by = l->p->class[slot][v->by];
    if (!by) {
        snprintf(number, sizeof number, "%" PRId32, v->by);
        by = number;
    }
    if (v->until != FOR_EVER)
        snprintf(left, sizeof left, "%.0f s",
                 (double)(v->until - kernel_now(l->k)) * METER_TICK_NS / (double)SECOND);
    printf("%-45s %s", bytes,
           v->action < sizeof actions / sizeof *actions ? actions[v->action] : "?");
    if (v->action == ACT_LIMIT && v->argument)
        printf(":%" PRIu64, (uint64_t)(SECOND / v->argument));
    else if (v->argument)
        printf(":%" PRIu32, v->argument);
    printf("\tby %s", by);
    if (v->by != BY_OPERATOR && v->by != BY_FILE)
        printf(" (margin %" PRIu32 " at packet %" PRIu64 ")", v->margin, v->flow_packets);
    write_since(since, sizeof since, l->k, v);
    printf(", since %s, for %s, %" PRIu64 " packets\n", since, left, v->packets);
    l->count++;
}

static int list_verdicts(const struct kernel *k, const struct pack *p) {
    struct listing l = {k, p, 0};

    verdict_each(k, list_verdict, &l);
    if (!l.count)
        printf("%s: nothing is allowed or blocked\n", k->interface);
    return 0;
}

static int write_status(struct kernel *k, const struct pack *p) {
    struct text out;
    int done;

    if (!text_make(&out, METRICS_ROOM)) {
        log_message("no memory");
        return 1;
    }
    done = metrics_write_summary(&out, k, p);
    if (done)
        fwrite(out.bytes, 1, out.used, stdout);
    free(out.bytes);
    return !done;
}

/* --- requests -------------------------------------------------------------------------------- */

static int update_pack(const struct settings *s, const char *path) {
    struct pack *p = pack_read(path);
    char line[64];
    int failed;

    if (!p)
        return 1;
    snprintf(line, sizeof line, "update - %zu\n", p->size);
    failed = control_ask(s->control, line, p->read, p->size);
    pack_free(p);
    if (!failed)
        printf("%s: %s is loaded, and holds over restarts\n", s->interface, path);
    return failed;
}

static int unload_program(const struct settings *s) {
    if (access(s->control, F_OK)) { /* no n3icd runs */
        record_remove(s);
        if (!kernel_remove(s->interface, s->pins))
            return 1;
    } else if (control_ask(s->control, "unload\n", NULL, 0)) {
        return 1;
    }
    printf("%s: unloaded\n", s->interface);
    return 0;
}

int operator_run(int words, char **word) {
    static struct settings s;
    static struct kernel k;
    uint32_t configured;
    struct pack *p;
    struct command_line t;
    int failed;

    if (!parse_words(&t, words, word))
        return usage();
    if (!read_settings(&s, &t))
        return 1;
    if (is_command(&t, "update"))
        return update_pack(&s, t.what);
    if (is_command(&t, "unload"))
        return unload_program(&s);
    if (!kernel_view(&k, s.interface, s.pins)) {
        kernel_close(&k);
        return 1;
    }
    if (is_command(&t, "list") || is_command(&t, "status")) {
        p = store_read(&s, &configured); /* for names */
        failed = !p || (is_command(&t, "list") ? list_verdicts(&k, p) : write_status(&k, p));
        pack_free(p);
    } else {
        failed = change_verdict(&k, &t);
    }
    kernel_close(&k);
    return failed;
}
