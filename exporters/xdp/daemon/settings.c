// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dispatcher.h"
#include "text.h"

#define LINE 1024

/* The destination of a value: a text, or a number within bounds. */
struct key {
    const char *name;
    char *text;
    size_t room;
    uint32_t *number, least, most;
};

static int refuse_line(const char *path, unsigned line, const char *why, const char *what) {
    log_message("%s:%u: %s: %s", path, line, what, why);
    return 0;
}

static char *trim(char *text) {
    char *end;

    while (*text == ' ' || *text == '\t')
        text++;
    end = text + strlen(text);
    while (end > text && strchr(" \t\r\n", end[-1]))
        *--end = 0;
    return text;
}

static int set_value(const struct key *keys, char *name, char *value, const char *path,
                     unsigned line) {
    const struct key *k = keys;
    char *rest;
    unsigned long number;

    while (k->name && strcmp(k->name, name))
        k++;
    if (!k->name)
        return refuse_line(path, line, "unknown key", name);
    if (k->text) {
        if (strlen(value) >= k->room)
            return refuse_line(path, line, "the value is too long", name);
        strcpy(k->text, value);
        return 1;
    }
    errno = 0;
    number = strtoul(value, &rest, 10);
    if (*value < '0' || *value > '9' || errno || *rest || number < k->least || number > k->most) {
        log_message("%s:%u: %s: expected a number from %u to %u", path, line, name, k->least,
                    k->most);
        return 0;
    }
    *k->number = (uint32_t)number;
    return 1;
}

/* Replaces each %i with the interface's name. */
static int insert_interface(char *value, const char *interface, const char *what) {
    char out[SETTING];
    struct text t = {.bytes = out, .room = sizeof out};

    for (const char *c = value; *c; c++) {
        if (c[0] == '%' && c[1] == 'i') {
            text_bytes(&t, interface, strlen(interface));
            c++;
        } else {
            text_bytes(&t, c, 1);
        }
    }
    text_bytes(&t, "", 1);
    if (t.cut) {
        log_message("%s: the value is too long with the interface's name in it: at most %d bytes",
                    what, SETTING - 1);
        return 0;
    }
    memcpy(value, out, t.used);
    return 1;
}

/* Makes a relative path start in the folder of the configuration. */
static int resolve_path(char *value, const char *path, const char *what) {
    const char *slash = strrchr(path, '/');
    char out[SETTING];
    int made;

    if (*value == '/' || !slash)
        return 1;
    made = snprintf(out, sizeof out, "%.*s/%s", (int)(slash - path), path, value);
    if (made < 0 || made >= (int)sizeof out) {
        log_message("%s: the path is too long: at most %d bytes", what, SETTING - 1);
        return 0;
    }
    strcpy(value, out);
    return 1;
}

static int check_settings(const struct settings *s, const char *path) {
    const char *mode = s->mode, *end = s->on_exit;

    if (strcmp(mode, "auto") && strcmp(mode, "native") && strcmp(mode, "generic") &&
        strcmp(mode, "tcx"))
        log_message("%s: mode = %s: expected auto, native, generic or tcx", path, mode);
    else if (!strcmp(mode, "tcx") && s->priority != NO_PRIORITY)
        log_message("%s: priority: tcx runs several programs by itself: leave it out", path);
    else if (strcmp(end, "keep") && strcmp(end, "detach"))
        log_message("%s: on-exit = %s: expected keep or detach", path, end);
    else if (!*s->interface || strchr(s->interface, '/') || *s->interface == '.')
        log_message(
            "%s: no interface is named: run n3icd CONFIGURATION INTERFACE, or set interface = NAME",
            path);
    else
        return 1;
    return 0;
}

/* The name of a section, [NAME]; NULL if the line begins none. */
static char *section_name(char *line) {
    size_t size = strlen(line);

    if (*line != '[' || line[size - 1] != ']')
        return NULL;
    line[size - 1] = 0;
    return trim(line + 1);
}

int settings_read(struct settings *s, const char *path, const char *interface) {
    char line[LINE], *name;
    struct settings others; /* those of before a section of another interface */
    FILE *file;
    unsigned number = 0;
    int good = 1, is_foreign = 0;

    *s = (struct settings){
        .object = "meter.o",
        .idle = "idle.o",
        .pack = "n3icd.pack",
        .pins = "/sys/fs/bpf/n3ic",
        .mode = "auto",
        .on_exit = "keep",
        .socket = "/run/n3ic/n3icd-%i.sock",
        .control = "/run/n3ic/n3icd-%i.control",
        .updates = "/var/lib/n3icd",
        .records = "/run/n3ic/xdp",
        .queue = 1 << 20,
        .enterprise = 32473,
        .templates_s = 60,
        .json_mib = 100,
        .json_old = 4,
        .sflow_rate = 1000,
        .priority = NO_PRIORITY,
    };
    const struct key keys[] = {
        {"interface", s->interface, sizeof s->interface, NULL, 0, 0},
        {"object", s->object, SETTING, NULL, 0, 0},
        {"idle-object", s->idle, SETTING, NULL, 0, 0},
        {"pack", s->pack, SETTING, NULL, 0, 0},
        {"allow-file", s->allow_file, SETTING, NULL, 0, 0},
        {"block-file", s->block_file, SETTING, NULL, 0, 0},
        {"pins", s->pins, SETTING, NULL, 0, 0},
        {"mode", s->mode, SETTING, NULL, 0, 0},
        {"on-exit", s->on_exit, SETTING, NULL, 0, 0},
        {"socket", s->socket, SETTING, NULL, 0, 0},
        {"control", s->control, SETTING, NULL, 0, 0},
        {"updates", s->updates, SETTING, NULL, 0, 0},
        {"records", s->records, SETTING, NULL, 0, 0},
        {"json", s->json, SETTING, NULL, 0, 0},
        {"syslog", s->syslog, SETTING, NULL, 0, 0},
        {"prometheus", s->prometheus, SETTING, NULL, 0, 0},
        {"ipfix", s->ipfix, SETTING, NULL, 0, 0},
        {"sflow", s->sflow, SETTING, NULL, 0, 0},
        {"priority", NULL, 0, &s->priority, 0, INT32_MAX},
        {"queue", NULL, 0, &s->queue, 1 << 16, 1 << 28},
        {"json-megabytes", NULL, 0, &s->json_mib, 1, 1 << 20},
        {"json-old", NULL, 0, &s->json_old, 0, 1000},
        {"sflow-rate", NULL, 0, &s->sflow_rate, 1, 1 << 24},
        {"ipfix-domain", NULL, 0, &s->domain, 0, UINT32_MAX},
        {"ipfix-templates", NULL, 0, &s->templates_s, 1, 86400},
        {"enterprise", NULL, 0, &s->enterprise, 1, UINT32_MAX},
        {0},
    };

    file = fopen(path, "re");
    if (!file) {
        log_message("%s: %s", path, strerror(errno));
        return 0;
    }
    while (good && fgets(line, sizeof line, file)) {
        char *at = trim(line), *equals = strchr(at, '=');

        number++;
        if (strlen(line) == sizeof line - 1) {
            good = refuse_line(path, number, "it is too long", "this line");
        } else if ((name = section_name(at))) {
            if (is_foreign)
                *s = others;
            is_foreign = strcmp(name, interface ? interface : s->interface) != 0;
            if (is_foreign)
                others = *s;
        } else if (*at && *at != '#') {
            if (equals)
                *equals++ = 0;
            good = equals ? set_value(keys, trim(at), trim(equals), path, number)
                          : refuse_line(path, number, "expected key = value", at);
        }
    }
    if (good && ferror(file)) {
        log_message("%s: %s", path, strerror(errno));
        good = 0;
    }
    fclose(file);
    if (!good)
        return 0;
    if (is_foreign)
        *s = others;
    if (interface) {
        if (strlen(interface) >= sizeof s->interface) {
            log_message("%s: the name is too long for an interface: at most %zu bytes", interface,
                        sizeof s->interface - 1);
            return 0;
        }
        strcpy(s->interface, interface);
    }
    if (!check_settings(s, path))
        return 0;
    for (const struct key *k = keys + 1; k->name; k++)
        if (k->text && !insert_interface(k->text, s->interface, k->name))
            return 0;
    return resolve_path(s->object, path, "object") && resolve_path(s->idle, path, "idle-object") &&
           resolve_path(s->pack, path, "pack") &&
           (!*s->allow_file || resolve_path(s->allow_file, path, "allow-file")) &&
           (!*s->block_file || resolve_path(s->block_file, path, "block-file"));
}
