// SPDX-License-Identifier: Apache-2.0
#include "verdict_maps.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TYPED 160
#define TRIES 8                                     /* at words that the program changes, too */
#define MARGIN (60 * 1000000000ull / METER_TICK_NS) /* a minute */

static const struct {
    const char *name;
    uint8_t number;
} protocols[] = {{"icmp", 1}, {"tcp", 6}, {"udp", 17}, {"icmp6", 58}, {"sctp", 132}};
#define PROTOCOLS (sizeof protocols / sizeof *protocols)

/* --- as typed -------------------------------------------------------------------------------- */

static int refuse_target(const char *typed, const char *why) {
    log_message("%s: %s: expected an address (192.0.2.1), a prefix (192.0.2.0/24) or a flow "
                "(192.0.2.1:1234-198.51.100.2:80/tcp, addresses of IPv6 in brackets)",
                typed, why);
    return 0;
}

/* A decimal number; -1 if it is not one, or too large. */
static long parse_number(const char *word, unsigned most) {
    size_t size = strspn(word, "0123456789");
    long value = size && size < 7 && !word[size] ? strtol(word, NULL, 10) : -1;

    return value > (long)most ? -1 : value;
}

/* The bytes of an address; their number, or 0 if it is not one. */
static uint32_t parse_address(uint8_t out[16], const char *word) {
    memset(out, 0, 16);
    if (inet_pton(AF_INET, word, out) == 1)
        return 4;
    return inet_pton(AF_INET6, word, out) == 1 ? 16 : 0;
}

static int parse_prefix(struct target *t, const char *typed, char *word) {
    char *slash = strchr(word, '/');
    struct prefix *x = &t->prefix;
    uint32_t bytes, bits;

    if (slash)
        *slash++ = 0;
    bytes = parse_address(x->address, word);
    if (!bytes)
        return refuse_target(typed, "this is no address");
    if (slash && parse_number(slash, 8 * bytes) < 0)
        return refuse_target(typed, "the length of the prefix is wrong");
    bits = slash ? (uint32_t)parse_number(slash, 8 * bytes) : 8 * bytes;
    if (!bits) {
        log_message("%s: this prefix is every address: give a longer one", typed);
        return 0;
    }
    for (uint32_t i = bits; i < 8 * bytes; i++)
        if (x->address[i / 8] & 128 >> i % 8)
            return refuse_target(typed, "bits after the prefix are set");
    x->bits = PREFIX_FAMILY + bits;
    x->family = (uint8_t)bytes;
    t->bits = bits;
    return 1;
}

/* An end of a flow: an address, and a port behind its last colon. */
static uint32_t parse_endpoint(uint8_t address[16], uint16_t *port, char *word) {
    char *colon = strrchr(word, ':');
    size_t size;
    long value;

    if (!colon)
        return 0;
    *colon = 0;
    value = parse_number(colon + 1, 65535);
    size = strlen(word);
    if (*word == '[' && size > 1 && word[size - 1] == ']') {
        word[size - 1] = 0;
        word++;
    }
    *port = (uint16_t)value;
    return value < 0 ? 0 : parse_address(address, word);
}

/* The order of canonical_key in meter.c: addresses as words, then ports. */
static int is_reversed(const struct key *k) {
    uint64_t a[2], b[2];

    memcpy(a, k->source, sizeof a);
    memcpy(b, k->destination, sizeof b);
    return a[0] != b[0]   ? a[0] > b[0]
           : a[1] != b[1] ? a[1] > b[1]
                          : k->source_port > k->destination_port;
}

static int parse_flow(struct target *t, const char *typed, char *word) {
    char *slash = strrchr(word, '/'), *dash = strchr(word, '-');
    struct key k = {0};
    uint32_t bytes;
    long protocol = -1;

    *slash++ = *dash++ = 0;
    bytes = parse_endpoint(k.source, &k.source_port, word);
    if (!bytes || bytes != parse_endpoint(k.destination, &k.destination_port, dash))
        return refuse_target(typed, "the two endpoints of a flow are wrong");
    for (unsigned i = 0; i < PROTOCOLS; i++)
        if (!strcasecmp(slash, protocols[i].name))
            protocol = protocols[i].number;
    protocol = protocol < 0 ? parse_number(slash, 255) : protocol;
    if (protocol < 0)
        return refuse_target(typed, "the protocol is unknown");
    k.protocol = (uint8_t)protocol;
    k.address_bytes = (uint8_t)bytes;
#ifdef METER_KEY_SOURCE_HOST
    log_message("%s: this meter's flows are sources; name the address alone", typed);
    return 0;
#endif
#ifndef METER_KEY_FIVE_TUPLE
    k.source_port = k.destination_port = k.protocol = 0;
#endif
    t->key = k;
    if (is_reversed(&k)) {
        memcpy(t->key.source, k.destination, 16);
        memcpy(t->key.destination, k.source, 16);
        t->key.source_port = k.destination_port;
        t->key.destination_port = k.source_port;
    }
    t->flow = 1;
    return 1;
}

int target_read(struct target *out, const char *typed) {
    char word[TYPED];
    const char *dash = strchr(typed, '-');

    memset(out, 0, sizeof *out);
    if (strlen(typed) >= sizeof word)
        return refuse_target(typed, "it is too long");
    strcpy(word, typed);
    return dash && strchr(dash, '/') ? parse_flow(out, typed, word)
                                     : parse_prefix(out, typed, word);
}

void target_write(struct text *out, const struct target *t) {
    int four = t->flow ? t->key.address_bytes == 4 : t->prefix.family == 4;
    char text[2][INET6_ADDRSTRLEN] = {"?", "?"};
    int family = four ? AF_INET : AF_INET6;
    uint32_t whole = four ? 32 : 128;

    if (!t->flow) {
        inet_ntop(family, t->prefix.address, text[0], sizeof text[0]);
        text_format(out, "%s", text[0]);
        if (t->bits < whole)
            text_format(out, "/%u", t->bits);
        return;
    }
    inet_ntop(family, t->key.source, text[0], sizeof text[0]);
    inet_ntop(family, t->key.destination, text[1], sizeof text[1]);
    text_format(out, four ? "%s:%u-%s:%u/" : "[%s]:%u-[%s]:%u/", text[0], t->key.source_port,
                text[1], t->key.destination_port);
    for (unsigned i = 0; i < PROTOCOLS; i++)
        if (protocols[i].number == t->key.protocol) {
            text_format(out, "%s", protocols[i].name);
            return;
        }
    text_format(out, "%u", t->key.protocol);
}

/* --- maps ------------------------------------------------------------------------------------ */

/* A key of any of the maps. */
union any_key {
    struct key flow;
    struct prefix prefix;
    struct subject subject;
};

static const enum map with_verdicts[] = {MAP_TUPLES, MAP_ALLOWED, MAP_LISTED, MAP_HOSTS};

/* The number of entries that a map has room for; 0 if the kernel does not tell. */
static uint32_t map_room(const struct kernel *k, enum map m) {
    struct bpf_map_info info = {0};
    uint32_t size = sizeof info;

    return bpf_obj_get_info_by_fd(k->map[m], &info, &size) ? 0 : info.max_entries;
}

/* Calls a function for each entry of a map; the work is bounded, as the map may change. */
static void for_each_entry(const struct kernel *k, enum map m, void *context,
                           void (*visit)(void *, enum map, const union any_key *,
                                         const struct verdict *)) {
    uint64_t most = 2 * (uint64_t)map_room(k, m);
    union any_key key, next;
    struct verdict v;

    for (uint64_t i = 0; i < most; i++) {
        if (bpf_map_get_next_key(k->map[m], i ? &key : NULL, &next))
            return;
        key = next;
        if (!bpf_map_lookup_elem(k->map[m], &key, &v))
            visit(context, m, &key, &v);
    }
}

static void raise_latest(void *context, enum map m, const union any_key *key,
                         const struct verdict *v) {
    uint64_t *latest = context;
    enum use which = m == MAP_TUPLES                                       ? USE_TUPLES
                     : m == MAP_ALLOWED                                    ? USE_ALLOWED
                     : m == MAP_LISTED                                     ? USE_LISTED
                     : key->subject.bits == 8 * key->subject.address_bytes ? USE_HOSTS
                                                                           : USE_PREFIXES;

    if (v->until > latest[which])
        latest[which] = v->until;
    if (v->until > latest[USE_ANY])
        latest[USE_ANY] = v->until;
}

static void read_latest(const struct kernel *k, uint64_t latest[USES]) {
    memset(latest, 0, USES * sizeof *latest);
    for (unsigned i = 0; i < sizeof with_verdicts / sizeof *with_verdicts; i++)
        for_each_entry(k, with_verdicts[i], latest, raise_latest);
}

/*
 * Writes until when each map may hold a verdict, computed from its entries. The program raises
 * these times after it has stored a verdict, so a written time may be too early: the maps are read
 * again until no entry holds for longer. If decisions store verdicts all the time, the last try
 * adds a margin.
 */
static int write_uses(const struct kernel *k) {
    uint64_t latest[USES], again[USES];
    int settled = 0;

    read_latest(k, latest);
    for (int try = 1; try <= TRIES && !settled; try++) {
        /* USE_ANY comes last: the others count only where it does. */
        for (uint32_t i = USES; i-- > 0;) {
            if (try == TRIES && latest[i] && latest[i] < FOR_EVER - MARGIN)
                latest[i] += MARGIN;
            if (bpf_map_update_elem(k->map[MAP_USES], &i, &latest[i], BPF_ANY)) {
                log_message("the map of uses cannot be written: %s", strerror(errno));
                return 0;
            }
        }
        read_latest(k, again);
        settled = 1;
        for (int i = 0; i < USES; i++)
            settled = settled && again[i] <= latest[i];
        memcpy(latest, again, sizeof latest);
    }
    return 1;
}

struct forgetting {
    const struct kernel *k;
    uint64_t now;
    union any_key *key;
    uint32_t keys, room;
};

static void collect_expired(void *context, enum map m, const union any_key *key,
                            const struct verdict *v) {
    struct forgetting *f = context;

    (void)m;
    if (v->until <= f->now && f->keys < f->room)
        f->key[f->keys++] = *key;
}

/* Deletes expired verdicts, after the walk, so that it does not change the map it walks. */
static void delete_expired(const struct kernel *k, enum map m) {
    struct forgetting f = {.k = k, .now = kernel_now(k), .room = 4096};

    f.key = calloc(f.room, sizeof *f.key);
    if (!f.key)
        return;
    for_each_entry(k, m, &f, collect_expired);
    for (uint32_t i = 0; i < f.keys; i++)
        bpf_map_delete_elem(k->map[m], &f.key[i]);
    free(f.key);
}

/* Stores an entry; 0, or the number of the error. A full map first loses what has expired. */
static int store_entry(const struct kernel *k, enum map m, const void *key,
                       const struct verdict *v) {
    if (!bpf_map_update_elem(k->map[m], key, v, BPF_ANY))
        return 0;
    if (errno != ENOSPC)
        return errno;
    delete_expired(k, m);
    return bpf_map_update_elem(k->map[m], key, v, BPF_ANY) ? errno : 0;
}

static void report_refusal(const struct kernel *k, enum map m, int error) {
    if (error == ENOSPC)
        log_message("the list of what is %s is full: it has room for %u entries: remove some with "
                    "%s, or name a shorter prefix in place of several entries",
                    m == MAP_ALLOWED ? "allowed" : "blocked", map_room(k, m),
                    m == MAP_ALLOWED ? "allow --remove" : "unblock");
    else
        log_message("the verdict cannot be stored: %s", strerror(error));
}

int verdict_put(const struct kernel *k, const struct target *t, uint32_t action, uint32_t argument,
                uint64_t until) {
    int allows = action == ACT_ALLOW || action == ACT_SHARED;
    enum map m = t->flow ? MAP_TUPLES : allows ? MAP_ALLOWED : MAP_LISTED;
    const void *key = t->flow ? (const void *)&t->key : (const void *)&t->prefix;
    struct verdict v = {.until = until,
                        .since = kernel_now(k),
                        .action = action,
                        .argument = argument,
                        .by = BY_OPERATOR,
                        .bits = t->bits};
    int error = store_entry(k, m, key, &v);

    if (error) {
        report_refusal(k, m, error);
        return 0;
    }
    return write_uses(k);
}

/* --- many verdicts ------------------------------------------------------------------------------
 */

static int compare_wishes(const void *a, const void *b) {
    return memcmp(&((const struct wish *)a)->prefix, &((const struct wish *)b)->prefix,
                  sizeof(struct prefix));
}

/* A list of the program beside verdicts that the operator wants there. */
struct wishing {
    struct wish *wish;
    struct verdict *held; /* of each of them; action ACT_PASS: there is no such verdict */
    uint64_t now;
    uint32_t count, action, argument, others;
};

static void compare_wish(void *context, enum map m, const union any_key *key,
                         const struct verdict *v) {
    struct wishing *w = context;
    struct wish wanted = {.prefix = key->prefix}, *same;

    (void)m;
    same = bsearch(&wanted, w->wish, w->count, sizeof wanted, compare_wishes);
    if (!same)
        w->others += v->until > w->now;
    else if (v->until > w->now && v->action == w->action && v->argument == w->argument &&
             v->by == BY_OPERATOR)
        w->held[same - w->wish] = *v;
}

/* Stores what differs; 0, or the number of the error. */
static int grant_wishes(const struct kernel *k, enum map m, const struct wishing *w,
                        uint32_t *fresh) {
    for (uint32_t i = 0; i < w->count; i++) {
        struct verdict v = w->held[i];
        int error, is_held = v.action != ACT_PASS;

        if (is_held && v.until == w->wish[i].until)
            continue;
        if (!is_held)
            v = (struct verdict){.since = w->now,
                                 .action = w->action,
                                 .argument = w->argument,
                                 .by = BY_OPERATOR,
                                 .bits = w->wish[i].prefix.bits - PREFIX_FAMILY};
        v.until = w->wish[i].until;
        error = store_entry(k, m, &w->wish[i].prefix, &v);
        if (error)
            return error;
        *fresh += !is_held;
    }
    return 0;
}

int verdict_put_many(const struct kernel *k, uint32_t action, uint32_t argument, struct wish *wish,
                     uint32_t count, uint32_t *fresh) {
    enum map m = action == ACT_ALLOW || action == ACT_SHARED ? MAP_ALLOWED : MAP_LISTED;
    struct wishing w = {wish, NULL, kernel_now(k), count, action, argument, 0};
    int error = ENOMEM;

    *fresh = 0;
    w.held = calloc(count + 1, sizeof *w.held);
    if (w.held) {
        qsort(wish, count, sizeof *wish, compare_wishes);
        for_each_entry(k, m, &w, compare_wish);
        error =
            (uint64_t)w.others + count > map_room(k, m) ? ENOSPC : grant_wishes(k, m, &w, fresh);
    }
    free(w.held);
    if (error)
        report_refusal(k, m, error);
    return write_uses(k) && !error;
}

/* --- lists of files -------------------------------------------------------------------------- */

int prefix_compare(const void *a, const void *b) {
    return memcmp(a, b, sizeof(struct prefix));
}

/* A list of the program beside the list of a file. */
struct comparison {
    const struct prefix *prefix; /* of the file */
    uint8_t *is_held;            /* of each of them: whether it has a verdict that holds */
    struct prefix *gone;         /* entries to delete */
    uint64_t now;
    uint32_t count, gone_count, room, others, changes;
};

static void compare_entry(void *context, enum map m, const union any_key *key,
                          const struct verdict *v) {
    struct comparison *c = context;
    const struct prefix *same =
        c->count ? bsearch(&key->prefix, c->prefix, c->count, sizeof *c->prefix, prefix_compare)
                 : NULL;
    int holds = v->until > c->now;

    (void)m;
    if (same)
        c->is_held[same - c->prefix] = (uint8_t)holds;
    else if (holds && v->by != BY_FILE)
        c->others++;
    else if (c->gone_count < c->room)
        c->gone[c->gone_count++] = key->prefix;
}

/* Deletes and stores what differs; 0, or the number of the error. */
static int write_list(const struct kernel *k, enum map m, uint32_t action, struct comparison *c) {
    struct verdict v = {.until = FOR_EVER, .since = c->now, .action = action, .by = BY_FILE};

    for (uint32_t i = 0; i < c->gone_count; i++, c->changes++)
        if (bpf_map_delete_elem(k->map[m], &c->gone[i]) && errno != ENOENT)
            return errno;
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->is_held[i])
            continue;
        v.bits = c->prefix[i].bits - PREFIX_FAMILY;
        if (bpf_map_update_elem(k->map[m], &c->prefix[i], &v, BPF_ANY))
            return errno;
        c->changes++;
    }
    return 0;
}

int verdict_put_list(const struct kernel *k, uint32_t action, const struct prefix *prefix,
                     uint32_t count, const char *path) {
    enum map m = action == ACT_ALLOW ? MAP_ALLOWED : MAP_LISTED;
    uint32_t room = map_room(k, m);
    struct comparison c = {.prefix = prefix, .count = count, .room = room, .now = kernel_now(k)};
    int error = ENOMEM;

    c.is_held = calloc(count + 1, sizeof *c.is_held);
    c.gone = calloc(room + 1, sizeof *c.gone);
    if (c.is_held && c.gone) {
        for_each_entry(k, m, &c, compare_entry);
        error = (uint64_t)c.others + count > room ? ENOSPC : write_list(k, m, action, &c);
    }
    free(c.is_held);
    free(c.gone);
    if (error) {
        log_message("%s: its %u entries are not all taken:", path, count);
        report_refusal(k, m, error);
    }
    return (!c.changes || write_uses(k)) && !error;
}

static int delete_entry(const struct kernel *k, enum map m, const void *key) {
    if (!bpf_map_delete_elem(k->map[m], key))
        return 1;
    return errno == ENOENT ? 0 : -1;
}

int verdict_remove(const struct kernel *k, const struct target *t, int allowed) {
    struct verdict v;
    int gone = 0;

    if (t->flow) {
        if (!bpf_map_lookup_elem(k->map[MAP_TUPLES], &t->key, &v) &&
            (v.action == ACT_ALLOW) == allowed)
            gone = delete_entry(k, MAP_TUPLES, &t->key);
    } else {
        struct subject x = {.bits = t->bits, .address_bytes = t->prefix.family};

        memcpy(x.address, t->prefix.address, sizeof x.address);
        gone = delete_entry(k, allowed ? MAP_ALLOWED : MAP_LISTED, &t->prefix);
        if (gone >= 0 && !allowed) { /* decisions may have blocked it, too */
            int more = delete_entry(k, MAP_HOSTS, &x);

            gone = more < 0 ? more : gone + more;
        }
    }
    if (gone < 0)
        log_message("the verdict cannot be removed: %s", strerror(errno));
    return gone < 0 || !write_uses(k) ? -1 : gone;
}

#define DUMP_END 128 /* bytes of the line behind the entries */

struct dump {
    struct text *out;
    uint32_t entries[MAPS];
};

static void copy_entry(void *context, enum map m, const union any_key *key,
                       const struct verdict *v) {
    static const size_t size_of_key[MAPS] = {[MAP_TUPLES] = sizeof(struct key),
                                             [MAP_HOSTS] = sizeof(struct subject),
                                             [MAP_ALLOWED] = sizeof(struct prefix),
                                             [MAP_LISTED] = sizeof(struct prefix)};
    struct dump *d = context;
    struct text *out = d->out;

    d->entries[m]++;
    if (out->room - out->used < sizeof *key + sizeof *v + DUMP_END) {
        char *more = realloc(out->bytes, 2 * out->room);

        if (!more) {
            out->cut = 1;
            return;
        }
        out->bytes = more;
        out->room *= 2;
    }
    text_bytes(out, key, size_of_key[m]);
    text_bytes(out, v, sizeof *v);
}

int verdict_dump(const struct kernel *k, struct text *out) {
    struct dump d = {.out = out};

    for (unsigned i = 0; i < sizeof with_verdicts / sizeof *with_verdicts; i++)
        for_each_entry(k, with_verdicts[i], &d, copy_entry);
    text_format(out, "\ntuples %u allowed %u listed %u hosts %u\n", d.entries[MAP_TUPLES],
                d.entries[MAP_ALLOWED], d.entries[MAP_LISTED], d.entries[MAP_HOSTS]);
    if (out->cut)
        log_message("no memory for the list");
    return !out->cut;
}

struct showing {
    verdict_visitor *visit;
    void *context;
    uint64_t now;
};

static void show_verdict(void *context, enum map m, const union any_key *key,
                         const struct verdict *v) {
    struct showing *s = context;
    struct target t = {.flow = m == MAP_TUPLES, .bits = v->bits};

    if (v->until <= s->now)
        return;
    if (m == MAP_TUPLES) {
        t.key = key->flow;
    } else if (m == MAP_HOSTS) {
        t.prefix.family = (uint8_t)key->subject.address_bytes;
        memcpy(t.prefix.address, key->subject.address, 16);
    } else {
        t.prefix = key->prefix;
    }
    s->visit(s->context, &t, v);
}

void verdict_each(const struct kernel *k, verdict_visitor *visit, void *context) {
    struct showing s = {visit, context, kernel_now(k)};
    static const enum map order[] = {MAP_ALLOWED, MAP_LISTED, MAP_TUPLES, MAP_HOSTS};

    for (unsigned i = 0; i < sizeof order / sizeof *order; i++)
        for_each_entry(k, order[i], &s, show_verdict);
}
