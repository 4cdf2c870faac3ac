// SPDX-License-Identifier: Apache-2.0
#include "pack.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "build.h"
#include "text.h"

#define MOST_BYTES PACK_BYTES
#define MOST_DRIFTS (SLOTS * METER_VALUES)
#define ROWS (sizeof((struct tally *)0)->row / sizeof(uint64_t))
#define MOST_ENTRIES (1u << 27)
#define WORDS 6

/* Sizes of each map of a pack, in the order of enum pack_map. */
static const struct {
    const char *name;
    uint32_t size, entries;
    int inner;
} maps[] = {
    {"policies", sizeof(struct policy), POLICIES, 0}, {"config", sizeof(struct config), 1, 0},
    {"interfaces", sizeof(uint32_t), 64, 0},          {"cpus", sizeof(uint32_t), 64, 0},
    {"dispatch", sizeof(struct rules), 1, 1},         {"models", sizeof(struct network), SLOTS, 1},
};
#define MAPS (sizeof maps / sizeof *maps)

static const char *const entries[PACK_ENTRIES] = {"flows", "tuples", "hosts"};

struct line {
    const char *path;
    unsigned number;
    char *word[WORDS];
    unsigned words;
    int about, files;
};

static int refuse_line(const struct line *l, const char *why) {
    log_message("%s:%u: %s: make the pack again (n3ic xdp pack)", l->path, l->number, why);
    return 0;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes hexadecimal digits in place; the number of bytes, or -1. */
static long decode_hex(char *word) {
    uint8_t *out = (uint8_t *)word;
    size_t size = strlen(word);

    if (size % 2)
        return -1;
    for (size_t i = 0; i < size / 2; i++) {
        int high = hex_digit(word[2 * i]), low = hex_digit(word[2 * i + 1]);

        if (high < 0 || low < 0)
            return -1;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return (long)(size / 2);
}

/* Whether bytes are UTF-8, as RFC 3629 has it. */
static int is_utf8(const unsigned char *c) {
    while (*c) {
        unsigned more = *c < 0x80       ? 0
                        : *c >> 5 == 6  ? 1
                        : *c >> 4 == 14 ? 2
                        : *c >> 3 == 30 ? 3
                                        : 4;
        uint32_t point = more ? *c & (0x3f >> more) : *c;

        if (more == 4)
            return 0;
        c++;
        for (unsigned i = 0; i < more; i++, c++) {
            if (*c >> 6 != 2)
                return 0;
            point = point << 6 | (*c & 0x3f);
        }
        if (point > 0x10ffff || point >> 11 == 0x1b || (more == 1 && point < 0x80) ||
            (more == 2 && point < 0x800) || (more == 3 && point < 0x10000))
            return 0;
    }
    return 1;
}

/* Decodes an escaped name in place; NULL if it is not one. */
static const char *decode_name(char *word) {
    char *out = word;

    for (const char *c = word; *c; c++) {
        if (*c == '%') {
            int high = hex_digit(c[1]), low = high < 0 ? -1 : hex_digit(c[2]);

            if (low < 0 || !(high | low))
                return NULL;
            *out++ = (char)(high << 4 | low);
            c += 2;
        } else {
            *out++ = *c;
        }
    }
    *out = 0;
    return is_utf8((const unsigned char *)word) ? word : NULL;
}

/* A decimal number below a limit; -1 if it is not one. */
static long parse_number(const char *word, uint32_t end) {
    char *rest;
    unsigned long value;

    if (*word < '0' || *word > '9')
        return -1;
    errno = 0;
    value = strtoul(word, &rest, 10);
    return errno || *rest || value >= end ? -1 : (long)value;
}

static int map_of(const char *name) {
    for (unsigned i = 0; i < MAPS; i++)
        if (!strcmp(name, maps[i].name))
            return (int)i;
    return -1;
}

static int read_value(struct pack *p, struct line *l, int inner) {
    int map = map_of(l->word[1]);
    long index = map < 0 ? -1 : parse_number(l->word[2], maps[map].entries), size;
    struct pack_value *v = &p->value[p->values];

    if (index < 0 || maps[map].inner != inner)
        return refuse_line(l, "unknown map, or no such place in it");
    size = decode_hex(l->word[3]);
    if (size != (long)maps[map].size)
        return refuse_line(l, "the value has another size than the map's");
    if (p->values == PACK_VALUES || pack_value(p, (enum pack_map)map, (uint32_t)index))
        return refuse_line(l, "one place has two values");
    *v = (struct pack_value){(enum pack_map)map, (uint32_t)index, (uint32_t)size, NULL};
    v->bytes = aligned_alloc(64, ((size_t)size + 63) / 64 * 64);
    if (!v->bytes)
        return refuse_line(l, "no memory");
    memcpy(v->bytes, l->word[3], (size_t)size);
    p->values++;
    return 1;
}

static int read_interface(struct pack *p, struct line *l) {
    int map = map_of(l->word[1]);
    long index = map < 0 ? -1 : parse_number(l->word[2], maps[map].entries);
    long at = map < 0 ? -1 : parse_number(l->word[3], maps[map].size - 3);
    const char *name = decode_name(l->word[4]);

    if (index < 0 || at < 0 || !name || !*name || strlen(name) >= IF_NAMESIZE)
        return refuse_line(l, "expected the place of an interface's index, and its name");
    if (p->interfaces == PACK_INTERFACES)
        return refuse_line(l, "too many interfaces");
    p->interface[p->interfaces++] =
        (struct pack_interface){(enum pack_map)map, (uint32_t)index, (uint32_t)at, name};
    return 1;
}

/* A name that must not be there yet. */
static int read_name(struct line *l, const char **place, char *word) {
    if (*place)
        return refuse_line(l, "one thing has two names");
    *place = decode_name(word);
    return *place ? 1 : refuse_line(l, "the name is damaged");
}

static int read_entries(struct pack *p, struct line *l) {
    long count = parse_number(l->word[2], MOST_ENTRIES);

    for (unsigned i = 0; i < PACK_ENTRIES; i++) {
        if (strcmp(l->word[1], entries[i]))
            continue;
        if (count < 1 || p->entries[i])
            return refuse_line(l, "the map's size is not a number from 1 on, or stands twice");
        p->entries[i] = (uint32_t)count;
        return 1;
    }
    return refuse_line(l, "unknown map");
}

static int read_options(struct pack *p, struct line *l) {
    if (decode_hex(l->word[1]) != sizeof p->options)
        return refuse_line(l, "the options have another size");
    memcpy(&p->options, l->word[1], sizeof p->options);
    if (p->options.clock > 1 || !p->options.events || !p->options.locked)
        return refuse_line(l, "a live program cannot have these options");
    return 1;
}

/* Whether all groups, cuts and ranges of what drift compares are there, and name rows. */
static int is_drift(const struct pack_drift *d) {
    uint32_t at = 0;

    while (at < d->words) {
        uint32_t cuts = pack_word(d, at++);

        for (uint32_t i = 0; i < cuts; i++) {
            uint32_t ranges;

            if (d->words - at < 2 || pack_word(d, at) > RATE_UNIT)
                return 0;
            ranges = pack_word(d, at + 1);
            at += 2;
            if (ranges > (d->words - at) / 2)
                return 0;
            for (; ranges; ranges--, at += 2)
                if (pack_word(d, at) > pack_word(d, at + 1) || pack_word(d, at + 1) > ROWS)
                    return 0;
        }
        if (!cuts)
            return 0;
    }
    return 1;
}

static int read_drift(struct pack *p, struct line *l, uint32_t slot) {
    struct pack_drift *d;
    long size;

    if (p->drifts == MOST_DRIFTS)
        return refuse_line(l, "too many features");
    if (!p->drift && !(p->drift = calloc(MOST_DRIFTS, sizeof *p->drift)))
        return refuse_line(l, "no memory");
    d = &p->drift[p->drifts];
    size = decode_hex(l->word[3]);
    *d = (struct pack_drift){slot, 0, decode_name(l->word[2]), (const uint8_t *)l->word[3]};
    if (size < 0 || size % 4 || !d->feature)
        return refuse_line(l, "the name or the words are damaged");
    d->words = (uint32_t)size / 4;
    if (!is_drift(d))
        return refuse_line(l, "no network has these rows");
    p->drifts++;
    return 1;
}

static int read_line(struct pack *p, struct line *l) {
    const char *kind = l->word[0];
    long n = l->words > 1 ? parse_number(l->word[1], 1u << 16) : -1;

    if (!strcmp(kind, "layout") && l->words == 2)
        return !strcmp(l->word[1], N3ICD_LAYOUT) ||
               refuse_line(l, "the pack was made for another program than this n3icd's");
    if (!strcmp(kind, "options") && l->words == 2)
        return read_options(p, l);
    if (!strcmp(kind, "entries") && l->words == 3)
        return read_entries(p, l);
    if (!strcmp(kind, "value") && l->words == 4)
        return read_value(p, l, 0);
    if (!strcmp(kind, "inner") && l->words == 4)
        return read_value(p, l, 1);
    if (!strcmp(kind, "interface") && l->words == 5)
        return read_interface(p, l);
    if (!strcmp(kind, "model") && l->words == 3 && n >= 0 && n < SLOTS)
        return read_name(l, &p->model[n], l->word[2]);
    if (!strcmp(kind, "class") && l->words == 4 && n >= 0 && n < SLOTS) {
        long class = parse_number(l->word[2], NETWORK_CLASSES);

        return class < 0 ? refuse_line(l, "unknown class")
                         : read_name(l, &p->class[n][class], l->word[3]);
    }
    if (!strcmp(kind, "feature") && l->words == 3 && n >= 0 && n < METER_VALUES)
        return read_name(l, &p->feature[n], l->word[2]);
    if (!strcmp(kind, "register") && l->words == 3 && n >= 0 && n < METER_REGISTERS)
        return read_name(l, &p->register_name[n], l->word[2]);
    if (!strcmp(kind, "drift") && l->words == 4 && n >= 0 && n < SLOTS)
        return read_drift(p, l, (uint32_t)n);
    if (!strcmp(kind, "about") && l->words == 2 && !l->about++)
        return 1;
    if (!strcmp(kind, "file") && l->words == 2 && l->files++ <= SLOTS)
        return 1;
    return refuse_line(l, "this is not a line of a pack");
}

/* Whether the pack has all that a program needs. */
static int is_complete(const struct pack *p, const struct line *l) {
    const char *missing = l->about ? l->files ? NULL : "file" : "about";

    for (unsigned i = 0; i < PACK_ENTRIES; i++)
        missing = p->entries[i] ? missing : entries[i];
    for (uint32_t i = 0; i < POLICIES; i++)
        missing = pack_value(p, PACK_POLICIES, i) ? missing : "policies";
    for (uint32_t i = 0; i < METER_VALUES; i++)
        missing = p->feature[i] ? missing : "feature";
    for (uint32_t i = 0; i < METER_REGISTERS; i++)
        missing = p->register_name[i] ? missing : "register";
    for (uint32_t i = 0; i < SLOTS; i++)
        if (pack_network(p, i) && (!p->model[i] || !p->class[i][0]))
            missing = "model and class";
    if (!pack_value(p, PACK_CONFIG, 0))
        missing = "config";
    if (!pack_value(p, PACK_DISPATCH, 0))
        missing = "dispatch";
    if (p->options.buckets != p->entries[ENTRIES_FLOWS])
        missing = "options";
    for (uint32_t i = 0; i < p->interfaces; i++)
        if (!pack_value(p, p->interface[i].map, p->interface[i].index))
            missing = "value of an interface";
    if (missing)
        log_message("%s: %s is missing: make the pack again (n3ic xdp pack)", l->path, missing);
    return !missing;
}

static int check_frame(struct pack *p, const char *path, size_t size) {
    struct line l = {.path = path};
    char *at = p->text, *end;

    if (memchr(p->text, 0, size))
        return refuse_line(&l, "the pack has a zero byte");
    for (; *at; at = end + 1) {
        size_t before = (size_t)(at - p->text);

        l.number++;
        end = strchr(at, '\n');
        if (!end)
            return refuse_line(&l, "the pack is cut off");
        *end = 0;
        if (l.number == 1) {
            if (strcmp(at, "n3ic-pack 2"))
                return refuse_line(&l, "this is not a pack, or a pack of another version");
            *end = '\n';
            continue;
        }
        if (!strncmp(at, "end ", 4)) {
            unsigned long sum = crc32(0, (const unsigned char *)p->text, (unsigned)before);
            char *after;

            if (strlen(at) != 12 || strtoul(at + 4, &after, 16) != sum || *after)
                return refuse_line(&l, "the pack is damaged: its checksum differs");
            p->sum = (uint32_t)sum;
            return end + 1 == p->text + size ? 1
                                             : refuse_line(&l, "bytes follow the end of the pack");
        }
        *end = '\n';
    }
    return refuse_line(&l, "the pack is cut off");
}

/* Reads the lines between the first and the last, which check_frame checked. */
static int read_lines(struct pack *p, const char *path) {
    struct line l = {.path = path, .number = 1};
    char *at = strchr(p->text, '\n') + 1, *end;

    for (; strncmp(at, "end ", 4); at = end + 1) {
        char *word = at;

        l.number++;
        end = strchr(at, '\n');
        *end = 0;
        for (l.words = 0; word; l.words++) {
            char *space = strchr(word, ' ');

            if (l.words == WORDS)
                return refuse_line(&l, "this is not a line of a pack");
            l.word[l.words] = word;
            if (space)
                *space++ = 0;
            word = space;
        }
        if (l.number == 2 && strcmp(l.word[0], "layout"))
            return refuse_line(&l, "expected the layout");
        if (!read_line(p, &l))
            return 0;
    }
    return is_complete(p, &l);
}

/* The bytes of a regular file, with a zero behind them; NULL where it cannot be read. */
static char *read_file(const char *path, size_t *size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    char *out = NULL;
    size_t used = 0;

    if (fd < 0 || fstat(fd, &status)) {
        log_message("%s: %s", path, strerror(errno));
    } else if (!S_ISREG(status.st_mode) || status.st_size > MOST_BYTES) {
        log_message("%s: expected a regular file of at most %d bytes", path, MOST_BYTES);
    } else if ((out = malloc((size_t)status.st_size + 1))) {
        while (used < (size_t)status.st_size) {
            ssize_t got = read(fd, out + used, (size_t)status.st_size - used);

            if (got < 0 && errno == EINTR)
                continue;
            if (got <= 0)
                break;
            used += (size_t)got;
        }
        out[used] = 0;
        *size = used;
    }
    if (fd >= 0)
        close(fd);
    return out;
}

struct pack *pack_parse(char *text, size_t size, const char *path) {
    struct pack *p = calloc(1, sizeof *p);

    if (!p) {
        free(text);
        return NULL;
    }
    p->text = text;
    p->size = size;
    if ((p->read = malloc(size + 1))) {
        memcpy(p->read, text, size);
        if (check_frame(p, path, size) && read_lines(p, path))
            return p;
    }
    pack_free(p);
    return NULL;
}

struct pack *pack_read(const char *path) {
    size_t size = 0;
    char *text = read_file(path, &size);

    return text ? pack_parse(text, size, path) : NULL;
}

void pack_free(struct pack *p) {
    if (!p)
        return;
    for (uint32_t i = 0; i < p->values; i++)
        free(p->value[i].bytes);
    free(p->drift);
    free(p->read);
    free(p->text);
    free(p);
}

const struct pack_value *pack_value(const struct pack *p, enum pack_map map, uint32_t index) {
    for (uint32_t i = 0; i < p->values; i++)
        if (p->value[i].map == map && p->value[i].index == index)
            return &p->value[i];
    return NULL;
}

int pack_resolve(struct pack *p) {
    for (uint32_t i = 0; i < p->interfaces; i++) {
        const struct pack_interface *x = &p->interface[i];
        const struct pack_value *v = pack_value(p, x->map, x->index);
        uint32_t index = if_nametoindex(x->name);

        if (!index || !v) {
            log_message("the pack names the interface %s, which is not there", x->name);
            return 0;
        }
        memcpy(v->bytes + x->at, &index, sizeof index);
    }
    return 1;
}
