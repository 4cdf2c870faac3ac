// SPDX-License-Identifier: Apache-2.0
/* See worker.h. */
#define _GNU_SOURCE /* RUSAGE_THREAD */

#include "worker.h"

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_mbuf_dyn.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { ROWS = 256, FLOWS_AT_ONCE = 1024, LARGEST = 65535, HANDED_OVER = 4096, POLLS_AT_END = 3 };
enum { SECOND = 1000000000, TICKS_A_SECOND = 1000 };

static const uint64_t grace_ns = SECOND; /* a packet with a stamp is fetched within this time */

/* The owner's own write to a counter that others read. */
static inline void add_to_counter(uint64_t *counter, uint64_t by) {
    __atomic_store_n(counter, *counter + by, __ATOMIC_RELAXED);
}

static int is_stopping(const struct shared *all) {
    return __atomic_load_n(&all->stopping, __ATOMIC_ACQUIRE);
}

/* --- times ----------------------------------------------------------------------------- */

static uint64_t now_ns(const struct shared *all) {
    const uint64_t cycles = rte_rdtsc() - all->base_cycles;
    const uint64_t seconds = cycles / all->hz, rest = cycles % all->hz;
    return all->base_ns + seconds * SECOND + rest * SECOND / all->hz;
}

static uint64_t meter_units(uint64_t ns) {
    return meter_time(0, (int64_t)RTE_MIN(ns, (uint64_t)INT64_MAX));
}

/* When a packet came: as net_pcap says, or now. */
static uint64_t packet_time_of(struct worker *w, const struct rte_mbuf *packet, uint64_t now) {
    const struct shared *all = w->all;
    if (!(packet->ol_flags & all->stamp_flag)) {
        return now;
    }
    const struct port *p = all->ports->by_number[packet->port];
    if (!p->stamped) {
        return now;
    }
    w->packet_time |= p->is_capture;
    const int64_t us = (int64_t)*RTE_MBUF_DYNFIELD(packet, all->stamp_at, uint64_t *);
    return meter_time(us / 1000000, us % 1000000 * 1000);
}

/* --- decisions ------------------------------------------------------------------------- */

static void enqueue_decisions(struct worker *w, const struct record *r, size_t rows) {
    const struct bnn *net = w->all->net;
    bnn_encode_batch(net, w->values, rows, w->words);
    for (size_t i = 0; i < rows; i++) {
        const struct verdict v = {w->classes[i], w->margins[i], w->scores + i * bnn_classes(net),
                                  w->words + i * bnn_words(net)};
        int is_enqueued = decisions_enqueue(&w->decisions, &r[i], &v);
        while (!is_enqueued &&
               w->all->settings->until_end) { /* the file is slower than the capture */
            rte_pause();
            is_enqueued = decisions_enqueue(&w->decisions, &r[i], &v);
        }
        add_to_counter(&w->tally.lost[LOST_DECISION], !is_enqueued);
    }
}

/* The verdict on a packet, from the mark of its flow. */
static uint32_t verdict_of_mark(const struct worker *w, uint32_t mark) {
    const struct policy *policy = w->all->policy;
    if (mark == MARK_UNDECIDED) {
        return verdict_number(policy, UNDECIDED);
    }
    if (mark == MARK_ASIDE) {
        return verdict_number(policy, ASIDE);
    }
    return mark >= MARK_RECORD ? w->verdicts[mark - MARK_RECORD] : mark - 1;
}

/* The verdict in force from a record on: an unsure one leaves what a sure one said before. */
static uint32_t verdict_in_force(const struct worker *w, size_t record, uint32_t verdict) {
    const uint32_t earlier = verdict_of_mark(w, meter_earlier_mark(w->meter, record));
    return verdict >= bnn_classes(w->all->net) && earlier < bnn_classes(w->all->net) ? earlier
                                                                                     : verdict;
}

/* Classifies the flows decided since the last call; verdicts[r] is in force from record r on. */
static void classify_records(struct worker *w) {
    const struct shared *all = w->all;
    const uint32_t n_features = bnn_features(all->net), classes = bnn_classes(all->net);
    size_t n;
    const struct record *r = meter_records(w->meter, &n);
    for (size_t at = 0; at < n; at += ROWS) {
        const size_t rows = RTE_MIN(n - at, (size_t)ROWS);
        for (size_t i = 0; i < rows; i++) {
            for (uint32_t j = 0; j < n_features; j++) {
                w->values[i * n_features + j] = r[at + i].features[all->column[j]];
            }
        }
        bnn_run_batch(all->net, w->values, rows, w->classes, w->margins,
                      all->settings->decisions ? w->scores : NULL);
        for (size_t i = 0; i < rows; i++) {
            const uint32_t class = w->classes[i];
            const uint32_t verdict = class == BNN_SHUNT ? classes + SHUNTED : class;
            w->verdicts[at + i] = verdict_in_force(w, at + i, verdict);
            add_to_counter(&w->tally.decided[verdict], 1);
            meter_mark(w->meter, at + i, w->verdicts[at + i] + 1);
        }
        if (all->settings->decisions) {
            enqueue_decisions(w, r + at, rows);
        }
    }
}

/* --- packets --------------------------------------------------------------------------- */

static void flush_port(struct worker *w, struct port *p) {
    struct out *out = &w->out[p->number];
    if (!out->n) {
        return;
    }
    const unsigned lcores = w->all->ports->workers + 1;
    const uint16_t sent = port_send(p, lcores, w->index, out->packets, out->n);
    if (sent < out->n) {
        add_to_counter(&w->tally.lost[LOST_SENDING], out->n - sent);
        rte_pktmbuf_free_bulk(out->packets + sent, out->n - sent);
    }
    out->n = 0;
}

/* Bytes in a packet's buffers. net_pcap keeps 16 bits of a size, and says more than it holds. */
static uint32_t buffered_bytes(const struct rte_mbuf *packet) {
    uint32_t bytes = 0;
    for (; packet; packet = packet->next) {
        bytes += packet->data_len;
    }
    return bytes;
}

/* Frees and counts a packet whose end the driver lost: sending it would read past its end. */
static int free_if_cut(struct worker *w, struct rte_mbuf *packet) {
    if (packet->nb_segs == 1 || buffered_bytes(packet) >= packet->pkt_len) {
        return 0;
    }
    add_to_counter(&w->tally.lost[LOST_END], 1);
    rte_pktmbuf_free(packet);
    return 1;
}

static void queue_packet(struct worker *w, uint16_t port, struct rte_mbuf *packet) {
    struct out *out = &w->out[port];
    if (free_if_cut(w, packet)) {
        return;
    }
    out->packets[out->n++] = packet;
    if (out->n == BURST) {
        flush_port(w, w->all->ports->by_number[port]);
    }
}

static void set_mark(struct rte_mbuf *packet, uint32_t mark) {
    packet->hash.fdir.hi = mark; /* as rte_flow's action MARK does */
    packet->ol_flags |= RTE_MBUF_F_RX_FDIR | RTE_MBUF_F_RX_FDIR_ID;
}

static void apply_action(struct worker *w, struct rte_mbuf *packet, uint32_t verdict) {
    const struct shared *all = w->all;
    const struct rule *rule = &all->policy->rules[verdict];
    const uint16_t beside = packet->port ^ 1;
    add_to_counter(&w->tally.packets[verdict], 1);
    add_to_counter(&w->tally.actions[rule->action], 1);
    switch (rule->action) {
    case ACTION_DROP:
        rte_pktmbuf_free(packet);
        return;
    case ACTION_INTERFACE:
        queue_packet(w, (uint16_t)rule->argument, packet);
        return;
    case ACTION_RING:
        if (free_if_cut(w, packet)) {
            return;
        }
        set_mark(packet, verdict);
        if (rte_ring_mp_enqueue(rule->ring, packet)) {
            add_to_counter(&w->tally.lost[LOST_RING], 1);
            rte_pktmbuf_free(packet);
        }
        return;
    case ACTION_MARK:
        set_mark(packet, rule->argument);
        break;
    default:
        break;
    }
    if (all->settings->tap) {
        rte_pktmbuf_free(packet);
        return;
    }
    queue_packet(w,
                 beside < RTE_MAX_ETHPORTS && all->ports->by_number[beside] ? beside : packet->port,
                 packet);
}

/* A packet's bytes in one piece. */
static const uint8_t *packet_bytes(struct worker *w, const struct rte_mbuf *packet, uint16_t place,
                                   uint32_t *captured) {
    if (packet->nb_segs == 1) {
        *captured = packet->data_len;
        return rte_pktmbuf_mtod(packet, const uint8_t *);
    }
    *captured = RTE_MIN(RTE_MIN(packet->pkt_len, buffered_bytes(packet)), (uint32_t)LARGEST);
    return rte_pktmbuf_read(packet, 0, *captured, w->flat + (size_t)place * LARGEST);
}

static void process_burst(struct worker *w, struct rte_mbuf **packets, uint16_t n) {
    struct burst_frame frames[BURST] = {0};
    uint32_t marks[BURST];
    uint64_t bytes = 0;
    const uint64_t now = meter_units(now_ns(w->all));
    for (uint16_t i = 0; i < n; i++) {
        rte_prefetch0(rte_pktmbuf_mtod(packets[i], const void *));
    }
    for (uint16_t i = 0; i < n; i++) {
        frames[i].data = packet_bytes(w, packets[i], i, &frames[i].captured);
        frames[i].length = packets[i]->pkt_len;
        frames[i].time = packet_time_of(w, packets[i], now);
        bytes += packets[i]->pkt_len;
    }
    meter_burst(w->meter, n, frames, marks);
    classify_records(w);
    for (uint16_t i = 0; i < n; i++) {
        apply_action(w, packets[i], verdict_of_mark(w, marks[i]));
    }
    add_to_counter(&w->tally.received, n);
    add_to_counter(&w->tally.bytes, bytes);
    for (unsigned i = 0; i < w->all->ports->n; i++) {
        flush_port(w, &w->all->ports->port[i]);
    }
}

/* --- the loops ------------------------------------------------------------------------- */

static void publish_tally(struct worker *w) {
    uint64_t counters[METER_COUNTERS];
    struct rusage used;
    meter_counters(w->meter, counters);
    for (unsigned i = 0; i < METER_COUNTERS; i++) {
        __atomic_store_n(&w->tally.meter[i], counters[i], __ATOMIC_RELAXED);
    }
    getrusage(RUSAGE_THREAD, &used);
    __atomic_store_n(&w->tally.clock_ns,
                     (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * SECOND +
                         (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000,
                     __ATOMIC_RELAXED);
}

/* Each millisecond: ends flows that are idle though nothing comes, and tells the counters. */
static void expire_and_publish(struct worker *w) {
    const uint64_t cycles = rte_rdtsc();
    if (cycles - w->expired < w->all->hz / TICKS_A_SECOND) {
        return;
    }
    w->expired = cycles;
    /* Before the first packet nothing says whether their times are those of a capture. */
    if (w->tally.received && !w->packet_time) {
        const uint64_t now = now_ns(w->all);
        meter_expire(w->meter, meter_units(now - (w->all->stamp_flag ? grace_ns : 0)));
        classify_records(w);
    }
    publish_tally(w);
}

/* Whether a receiver that found nothing has come to the end of its captures. */
static int is_capture_end(const struct shared *all, unsigned *empty) {
    /* net_pcap also gives nothing where it gets no buffer */
    const unsigned free = rte_mempool_avail_count(all->ports->pool);
    *empty = free >= all->settings->mbufs / 2 ? *empty + 1 : 0;
    return *empty == POLLS_AT_END;
}

static void count_capture_end(struct shared *all, unsigned *empty) {
    if (all->settings->until_end && *empty < POLLS_AT_END && is_capture_end(all, empty)) {
        __atomic_fetch_add(&all->ended, 1, __ATOMIC_RELEASE);
    }
}

static void finish_flows(struct worker *w) {
    int more = 1;
    while (more) {
        more = meter_finish(w->meter, FLOWS_AT_ONCE);
        classify_records(w);
    }
    publish_tally(w);
    __atomic_fetch_add(&w->all->done, 1, __ATOMIC_RELEASE);
}

/* Receives from all ports, from a queue of its own. */
static void receive_packets(struct worker *w) {
    const struct ports *ports = w->all->ports;
    const uint16_t queue = (uint16_t)(ports->distribution == BY_DEVICE ? w->index : 0);
    unsigned empty = 0;
    while (!is_stopping(w->all)) {
        unsigned got = 0;
        for (unsigned i = 0; i < ports->n; i++) {
            struct rte_mbuf *packets[BURST];
            const uint16_t n = rte_eth_rx_burst(ports->port[i].number, queue, packets, BURST);
            if (n) {
                process_burst(w, packets, n);
                got += n;
            }
        }
        expire_and_publish(w);
        if (!got) {
            count_capture_end(w->all, &empty);
        }
    }
}

/* Takes what the lcore that distributes has handed over. */
static void dequeue_packets(struct worker *w) {
    struct rte_mbuf *packets[BURST];
    for (;;) {
        const int last = __atomic_load_n(&w->all->distributed, __ATOMIC_ACQUIRE);
        const uint16_t n =
            (uint16_t)rte_ring_sc_dequeue_burst(w->in, (void **)packets, BURST, NULL);
        if (n) {
            process_burst(w, packets, n);
        } else if (last) {
            return;
        }
        expire_and_publish(w);
    }
}

int worker_run(void *worker) {
    struct worker *w = worker;
    if (w->in) {
        dequeue_packets(w);
    } else {
        receive_packets(w);
    }
    finish_flows(w);
    return 0;
}

/* The worker of a packet: both directions of a flow and all its fragments have one. */
static unsigned worker_of_packet(struct worker *w, const struct rte_mbuf *packet) {
    struct packet p;
    struct key k = {0};
    uint32_t captured;
    const uint8_t *bytes = packet_bytes(w, packet, 0, &captured);
    if (parse_frame(LINK_ETHERNET, (struct frame){bytes, captured}, packet->pkt_len, METER_TUNNELS,
                    &p) != PACKET_OK) {
        return 0; /* it belongs to no flow */
    }
    k.address_bytes = p.address_bytes;
    memcpy(k.source, p.source, 16);
#ifndef METER_KEY_SOURCE_HOST
    const int reversed = memcmp(p.source, p.destination, 16) > 0;
    memcpy(k.source, reversed ? p.destination : p.source, 16);
    memcpy(k.destination, reversed ? p.source : p.destination, 16);
#endif
    return (unsigned)(hash_of_key(w->all->secret[1], w->all->secret[0], &k) %
                      w->all->ports->workers);
}

static void enqueue_for_worker(struct worker *w, unsigned to, struct rte_mbuf **packets,
                               unsigned n) {
    struct rte_ring *ring = w->all->workers[to].in;
    unsigned is_enqueued = rte_ring_sp_enqueue_burst(ring, (void **)packets, n, NULL);
    while (is_enqueued < n && w->all->settings->until_end) {
        rte_pause();
        is_enqueued += rte_ring_sp_enqueue_burst(ring, (void **)(packets + is_enqueued),
                                                 n - is_enqueued, NULL);
    }
    add_to_counter(&w->tally.lost[LOST_WORKER], n - is_enqueued);
    rte_pktmbuf_free_bulk(packets + is_enqueued, n - is_enqueued);
}

int distributor_run(void *worker) {
    struct worker *w = worker;
    const struct ports *ports = w->all->ports;
    struct rte_mbuf *packets[BURST], *sorted[BURST];
    unsigned to[BURST], empty = 0;
    while (!is_stopping(w->all)) {
        unsigned got = 0;
        for (unsigned i = 0; i < ports->n; i++) {
            const uint16_t n = rte_eth_rx_burst(ports->port[i].number, 0, packets, BURST);
            got += n;
            for (uint16_t j = 0; j < n; j++) {
                to[j] = worker_of_packet(w, packets[j]);
            }
            for (unsigned k = 0; n && k < ports->workers; k++) {
                unsigned count = 0;
                for (uint16_t j = 0; j < n; j++) {
                    if (to[j] == k) {
                        sorted[count++] = packets[j];
                    }
                }
                if (count) {
                    enqueue_for_worker(w, k, sorted, count);
                }
            }
        }
        if (!got) {
            count_capture_end(w->all, &empty);
        }
    }
    __atomic_store_n(&w->all->distributed, 1, __ATOMIC_RELEASE);
    __atomic_fetch_add(&w->all->done, 1, __ATOMIC_RELEASE);
    return 0;
}

/* --- memory ---------------------------------------------------------------------------- */

static void *allocate(size_t n, size_t bytes) {
    void *memory = rte_zmalloc(NULL, RTE_MAX(n * bytes, (size_t)1), RTE_CACHE_LINE_SIZE);
    if (!memory) {
        fail(EXIT_FAILED, "no memory for a worker: give EAL more (-m MEGABYTES)");
    }
    return memory;
}

void worker_open(struct worker *w, struct shared *all, unsigned index) {
    const struct bnn *net = all->net;
    char name[32];
    w->all = all;
    w->index = index;
    w->tally.packets = allocate(all->policy->verdicts, sizeof *w->tally.packets);
    w->tally.decided = allocate(all->policy->verdicts, sizeof *w->tally.decided);
    w->flat = allocate(BURST, LARGEST);
    if (index == all->ports->workers) { /* it distributes */
        return;
    }
    w->meter = meter_open(LINK_ETHERNET, all->secret);
    if (!w->meter) {
        fail(EXIT_FAILED, "no memory for the flow cache of %u flows", METER_CACHE_FLOWS);
    }
    if (!all->settings->until_end) { /* a capture gives the same records each time */
        meter_hide_sources(w->meter, all->secret);
    }
    w->values = allocate(ROWS, bnn_features(net) * sizeof *w->values);
    w->words = allocate(ROWS, bnn_words(net) * sizeof *w->words);
    w->classes = allocate(ROWS, sizeof *w->classes);
    w->margins = allocate(ROWS, sizeof *w->margins);
    w->scores = allocate(ROWS, bnn_classes(net) * sizeof *w->scores);
    /* A burst ends each flow once at most, and each packet of it may begin one and decide it. */
    w->verdicts = allocate(METER_CACHE_FLOWS + 4 * BURST, sizeof *w->verdicts);
    if (all->settings->decisions) {
        decisions_open(&w->decisions, net, index);
    }
    if (all->ports->distribution == BY_SOFTWARE) {
        snprintf(name, sizeof name, "worker%u", index);
        w->in = rte_ring_create(name, HANDED_OVER, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
        if (!w->in) {
            fail(EXIT_FAILED, "no memory for a worker's ring: %s", rte_strerror(rte_errno));
        }
    }
}

void worker_close(struct worker *w) {
    meter_close(w->meter);
    rte_free(w->tally.packets);
    rte_free(w->tally.decided);
    rte_free(w->flat);
    rte_free(w->values);
    rte_free(w->words);
    rte_free(w->classes);
    rte_free(w->margins);
    rte_free(w->scores);
    rte_free(w->verdicts);
    rte_ring_free(w->in);
    if (w->decisions.ring) {
        decisions_close(&w->decisions);
    }
}
