// SPDX-License-Identifier: Apache-2.0
#include "ipfix.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "udp.h"

#define VERSION 10
#define HEADER 16
#define SET_TEMPLATE 2
#define SET_OPTIONS 3
#define TEMPLATE_4 256
#define TEMPLATE_6 257
#define TEMPLATE_NAMES 258
#define MTU 1432   /* bytes of a message of several records */
#define MOST 65000 /* of any message */
#define NAME 255   /* bytes of a name at most: its length takes one byte */
#define VARIABLE 65535
#define FEATURES_FROM 256

enum { E_CLASS = 1, E_VERDICT, E_MARGIN, E_MODEL, E_SCORES };

struct element {
    uint16_t id, size;
};

/* Elements of IANA; addresses stand first, and of another size for IPv6. */
static const struct element common[] = {
    {7, 2},   {11, 2},  {4, 1},  {10, 4},  {58, 2}, /* ports, protocol, interface, VLAN */
    {152, 8}, {153, 8}, {86, 8}, {136, 1},          /* first, last, packets in all, reason */
    {2, 8},   {1, 8},                               /* packets and octets since the last record */
    {258, 8},                                       /* when it was decided: collectionTime */
};

static const struct element own[] = {
    {E_CLASS, VARIABLE},
    {E_VERDICT, 4},
    {E_MARGIN, 4},
    {E_MODEL, 8},
    {E_SCORES, 4 * NETWORK_CLASSES},
};

#define COUNT(x) (sizeof(x) / sizeof *(x))
#define RECORD                                                                                     \
    (32 + 2 + 2 + 1 + 4 + 2 + 8 + 8 + 8 + 1 + 8 + 8 + 8 + 1 + NAME + 4 + 4 + 8 +                   \
     4 * NETWORK_CLASSES + 4 * METER_VALUES)
_Static_assert(HEADER + 4 + RECORD < MOST, "a record fits a message");
_Static_assert(HEADER + 64 + 8 * (20 + METER_VALUES) < MOST, "templates fit a message");

static void append_uint(struct ipfix *x, uint64_t value, unsigned bytes) {
    while (bytes--)
        x->message[x->used++] = (uint8_t)(value >> 8 * bytes);
}

static void append_bytes(struct ipfix *x, const void *bytes, size_t count) {
    memcpy(x->message + x->used, bytes, count);
    x->used += (uint32_t)count;
}

/* A string: its length, then as much of it as a name may have, cut between characters. */
static void append_name(struct ipfix *x, const char *name) {
    size_t size = strlen(name);

    if (size > NAME - 1)
        for (size = NAME - 1; ((unsigned char)name[size] & 0xc0) == 0x80; size--)
            ;
    append_uint(x, size, 1);
    append_bytes(x, name, size);
}

static void overwrite_u16(struct ipfix *x, uint32_t at, uint16_t value) {
    x->message[at] = (uint8_t)(value >> 8);
    x->message[at + 1] = (uint8_t)value;
}

static void begin_set(struct ipfix *x, uint16_t id) {
    x->set = x->used;
    x->of = id;
    append_uint(x, id, 2);
    append_uint(x, 0, 2);
}

static void end_set(struct ipfix *x) {
    if (x->set)
        overwrite_u16(x, x->set + 2, (uint16_t)(x->used - x->set));
    x->set = 0;
}

static void begin_message(struct ipfix *x) {
    x->used = HEADER;
    x->records = x->set = 0;
}

static void send_message(struct ipfix *x) {
    uint32_t size = x->used;

    end_set(x);
    x->used = 0;
    append_uint(x, VERSION, 2);
    append_uint(x, size, 2);
    append_uint(x, (uint64_t)time(NULL), 4);
    append_uint(x, x->sequence, 4);
    append_uint(x, x->domain, 4);
    /* Failures count, too, so that a collector sees what was lost. */
    x->sequence += x->records;
    if (send(x->fd, x->message, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        x->lost += x->records;
    else
        x->sent += x->records;
    begin_message(x);
}

int ipfix_open(struct ipfix *x, const char *where, uint32_t domain, uint32_t enterprise,
               uint32_t every_s) {
    *x = (struct ipfix){.domain = domain, .enterprise = enterprise, .every_s = every_s};
    x->fd = udp_open("ipfix", where);
    if (x->fd < 0)
        return 0;
    x->message = malloc(MOST);
    if (!x->message) {
        log_message("ipfix = %s: %s", where, strerror(errno));
        ipfix_close(x);
        return 0;
    }
    begin_message(x);
    return 1;
}

void ipfix_close(struct ipfix *x) {
    udp_close(&x->fd, &x->message);
}

static void append_element(struct ipfix *x, struct element e, uint32_t enterprise) {
    append_uint(x, e.id | (enterprise ? 0x8000u : 0), 2);
    append_uint(x, e.size, 2);
    if (enterprise)
        append_uint(x, enterprise, 4);
}

static void append_template(struct ipfix *x, uint16_t id) {
    int six = id == TEMPLATE_6;

    append_uint(x, id, 2);
    append_uint(x, 2 + COUNT(common) + COUNT(own) + METER_VALUES, 2);
    append_element(x, (struct element){six ? 27 : 8, six ? 16 : 4}, 0);
    append_element(x, (struct element){six ? 28 : 12, six ? 16 : 4}, 0);
    for (size_t i = 0; i < COUNT(common); i++)
        append_element(x, common[i], 0);
    for (size_t i = 0; i < COUNT(own); i++)
        append_element(x, own[i], x->enterprise);
    for (uint16_t i = 0; i < METER_VALUES; i++)
        append_element(x, (struct element){(uint16_t)(FEATURES_FROM + i), 4}, x->enterprise);
}

/* Begins a record of at most `size` bytes, in a new set or message if it needs one. */
static void begin_record(struct ipfix *x, uint16_t id, uint32_t size) {
    if (x->used > HEADER && x->used + 4 + size > MTU)
        send_message(x);
    if (x->of != id || !x->set) {
        end_set(x);
        begin_set(x, id);
    }
    x->records++;
}

/* The name and type of an element of the enterprise: RFC 5610. */
static void append_type(struct ipfix *x, uint16_t id, uint8_t type, uint8_t semantics,
                        const char *name) {
    begin_record(x, TEMPLATE_NAMES, 4 + 2 + 1 + 1 + 1 + NAME);
    append_uint(x, x->enterprise, 4);
    append_uint(x, id, 2);
    append_uint(x, type, 1);
    append_uint(x, semantics, 1);
    append_name(x, name);
}

void ipfix_templates(struct ipfix *x, const struct pack *p, uint64_t now_s) {
    static const struct element names[] = {{346, 4}, {303, 2}, {339, 1}, {344, 1}, {341, VARIABLE}};

    if (x->fd < 0 || (x->templates_sent_s && now_s < x->templates_sent_s + x->every_s))
        return;
    x->templates_sent_s = now_s;
    ipfix_flush(x);
    for (uint16_t id = TEMPLATE_4; id <= TEMPLATE_6; id++) {
        begin_set(x, SET_TEMPLATE);
        append_template(x, id);
        send_message(x);
    }
    begin_set(x, SET_OPTIONS);
    append_uint(x, TEMPLATE_NAMES, 2);
    append_uint(x, COUNT(names), 2);
    append_uint(x, 2, 2); /* elements of the scope: they come first */
    for (size_t i = 0; i < COUNT(names); i++)
        append_element(x, names[i], 0);
    end_set(x);
    /* Types of RFC 5610: 13 string, 7 signed32, 3 unsigned32, 0 octetArray. */
    append_type(x, E_CLASS, 13, 0, "n3icClass");
    append_type(x, E_VERDICT, 7, 4, "n3icVerdict");
    append_type(x, E_MARGIN, 3, 1, "n3icMargin");
    append_type(x, E_MODEL, 0, 4, "n3icModel");
    append_type(x, E_SCORES, 0, 0, "n3icScores");
    for (uint16_t i = 0; i < METER_VALUES; i++)
        append_type(x, (uint16_t)(FEATURES_FROM + i), 3, 1, p->feature[i]);
    send_message(x);
}

/* flowEndReason of RFC 5102. */
static uint8_t flow_end_reason(uint32_t why) {
    switch (why) {
    case BY_IDLE:
        return 1;
    case BY_PACKETS:
    case BY_AFTER:
    case BY_ACTIVE:
        return 2;
    case BY_FIN:
    case BY_RST:
        return 3;
    case BY_EVICTION:
        return 5;
    default:
        return 4;
    }
}

void ipfix_add(struct ipfix *x, const struct flow_report *t) {
    const struct event *e = t->event;
    unsigned bytes = e->key.address_bytes;

    if (x->fd < 0)
        return;
    begin_record(x, bytes == 4 ? TEMPLATE_4 : TEMPLATE_6, RECORD);
    append_bytes(x, e->key.source, bytes);
    append_bytes(x, e->key.destination, bytes);
    append_uint(x, e->key.source_port, 2);
    append_uint(x, e->key.destination_port, 2);
    append_uint(x, e->key.protocol, 1);
    append_uint(x, e->interface, 4);
    append_uint(x, e->vlan == UNTAGGED ? 0 : e->vlan, 2);
    append_uint(x, t->first_ns / 1000000, 8);
    append_uint(x, t->last_ns / 1000000, 8);
    append_uint(x, e->packets, 8);
    append_uint(x, flow_end_reason(e->why), 1);
    append_uint(x, e->new_packets, 8); /* collectors add up these */
    append_uint(x, e->new_octets, 8);
    append_uint(x, t->decided_ns / 1000000, 8);
    append_name(x, t->verdict);
    append_uint(x, (uint32_t)e->verdict, 4);
    append_uint(x, e->margin, 4);
    append_bytes(x, e->model, 8);
    for (int i = 0; i < NETWORK_CLASSES; i++)
        append_uint(x, (uint32_t)e->score[i], 4);
    for (int i = 0; i < METER_VALUES; i++)
        append_uint(x, e->features[i], 4);
}

void ipfix_flush(struct ipfix *x) {
    if (x->fd >= 0 && x->used > HEADER)
        send_message(x);
}
