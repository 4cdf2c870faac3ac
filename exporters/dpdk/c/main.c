// SPDX-License-Identifier: Apache-2.0
/*
 * n3ic-dpdk: the packets of DPDK's ports are metered, flows are classified when they are decided,
 * and their packets are passed, dropped, marked, forwarded or put into a ring by the verdict.
 *
 * The first lcore controls: it writes decisions and statistics, and ends the others.
 */
#include "flow_names.h"
#include "statistics.h"

#include <errno.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mbuf_dyn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { REST_US = 200 };

struct ring_output { /* a ring whose packets this program sends itself */
    struct rte_ring *ring;
    struct port *port;
    uint64_t lost;
};

static volatile sig_atomic_t is_interrupted;

static void on_signal(int number) {
    (void)number;
    is_interrupted = 1;
}

/* --- what the lcores share -------------------------------------------------------------- */

static uint32_t *feature_columns(const struct bnn *net) {
    const uint32_t n = bnn_features(net);
    uint32_t *column = calloc(n ? n : 1, sizeof *column);
    for (uint32_t i = 0; column && i < n; i++) {
        const char *name = bnn_feature_name(net, i);
        while (column[i] < METER_VALUES && strcmp(feature_names[column[i]], name) != 0) {
            column[i]++;
        }
        if (column[i] == METER_VALUES) {
            fail(EXIT_FAILED, "the network reads a feature that the meter does not compute");
        }
    }
    return column;
}

static void read_clocks(struct shared *all) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    all->base_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    all->base_cycles = rte_rdtsc();
    all->hz = rte_get_tsc_hz();
}

static void find_timestamp_field(struct shared *all) {
    const int flag = rte_mbuf_dynflag_lookup(RTE_MBUF_DYNFLAG_RX_TIMESTAMP_NAME, NULL);
    all->stamp_at = rte_mbuf_dynfield_lookup(RTE_MBUF_DYNFIELD_TIMESTAMP_NAME, NULL);
    all->stamp_flag = flag < 0 || all->stamp_at < 0 ? 0 : RTE_BIT64(flag);
}

/* --- rings that this program empties ---------------------------------------------------- */

static struct ring_output parse_ring_output(struct ports *ports, const char *typed) {
    char name[RTE_RING_NAMESIZE];
    const char *equals = strchr(typed, '=');
    struct ring_output ring_output = {0};
    if (equals && (size_t)(equals - typed) < sizeof name) {
        memcpy(name, typed, (size_t)(equals - typed));
        name[equals - typed] = '\0';
        ring_output.ring = rte_ring_lookup(name);
    }
    if (!ring_output.ring) {
        fail(EXIT_USAGE, "--take %s: expected RING=PORT, with a ring that a policy names", typed);
    }
    ring_output.port = ports->by_number[find_port(equals + 1)];
    return ring_output;
}

static int send_ring_packets(struct ring_output *t, unsigned workers) {
    struct rte_mbuf *packets[BURST];
    const uint16_t n = (uint16_t)rte_ring_sc_dequeue_burst(t->ring, (void **)packets, BURST, NULL);
    const uint16_t sent = n ? port_send(t->port, workers + 1, workers, packets, n) : 0;
    t->lost += n - sent;
    rte_pktmbuf_free_bulk(packets + sent, n - sent);
    return n != 0;
}

/* --- control ---------------------------------------------------------------------------- */

struct control {
    struct shared *all;
    struct lines lines;
    uint64_t row, started, reported;
    struct ring_output ring_outputs[MAX_RING_OUTPUTS];
};

static double seconds_since(uint64_t cycles) {
    return (double)(rte_rdtsc() - cycles) / (double)rte_get_tsc_hz();
}

static void write_statistics(struct control *c, FILE *to) {
    const struct settings *s = c->all->settings;
    const double seconds = seconds_since(c->started);
    if (s->statistics) {
        write_json(c->all, s->statistics, seconds);
    }
    if (to) {
        write_text(c->all, to, seconds);
    }
}

/* Moves what waits in rings; gives whether there was something. */
static int drain_rings(struct control *c) {
    const struct settings *s = c->all->settings;
    int moved = 0;
    for (unsigned i = 0; s->decisions && i < c->all->ports->workers; i++) {
        moved |= decisions_write(&c->all->workers[i].decisions, &c->lines, &c->row);
    }
    for (unsigned i = 0; i < s->n_ring_outputs; i++) {
        moved |= send_ring_packets(&c->ring_outputs[i], c->all->ports->workers);
    }
    return moved;
}

static int is_finished(const struct control *c, unsigned receivers) {
    const struct shared *all = c->all;
    const struct settings *s = all->settings;
    return is_interrupted || __atomic_load_n(&all->ended, __ATOMIC_ACQUIRE) == receivers ||
           (s->packets && packets_received(all) >= s->packets) ||
           (s->seconds && seconds_since(c->started) >= (double)s->seconds);
}

static void run_control(struct control *c, unsigned lcores) {
    struct shared *all = c->all;
    const unsigned receivers = all->ports->distribution == BY_DEVICE ? all->ports->workers : 1;
    while (__atomic_load_n(&all->done, __ATOMIC_ACQUIRE) < lcores) {
        if (!all->stopping && is_finished(c, receivers)) {
            __atomic_store_n(&all->stopping, 1, __ATOMIC_RELEASE);
        }
        if (!drain_rings(c)) {
            usleep(REST_US);
        }
        if (seconds_since(c->reported) >= (double)all->settings->interval) {
            c->reported = rte_rdtsc();
            write_statistics(c, NULL);
        }
    }
    while (drain_rings(c)) {
    }
}

static FILE *open_decisions(const char *path) {
    FILE *to = fopen(path, "w");
    if (!to) {
        fail(EXIT_FAILED, "%s: %s", path, strerror(errno));
    }
    return to;
}

static void run_lcores(struct shared *all, const struct settings *s, unsigned lcores) {
    struct control c = {.all = all, .lines = {.net = all->net, .registers = 1, .features = 1}};
    unsigned lcore, index = 0;
    c.lines.bits = 1;
    for (unsigned i = 0; i < s->n_ring_outputs; i++) {
        c.ring_outputs[i] = parse_ring_output(all->ports, s->ring_outputs[i]);
    }
    if (s->decisions) {
        c.lines.to = open_decisions(s->decisions);
        lines_header(&c.lines);
    }
    c.started = c.reported = rte_rdtsc();
    RTE_LCORE_FOREACH_WORKER(lcore) {
        if (index < lcores) {
            struct worker *w = &all->workers[index++];
            w->lcore = lcore;
            rte_eal_remote_launch(w->index == all->ports->workers ? distributor_run : worker_run, w,
                                  lcore);
        }
    }
    run_control(&c, lcores);
    rte_eal_mp_wait_lcore();
    for (unsigned i = 0; i < s->n_ring_outputs; i++) {
        if (c.ring_outputs[i].lost) {
            fprintf(stderr, "n3ic-dpdk: port %s could not send %" PRIu64 " packets of its ring\n",
                    c.ring_outputs[i].port->name, c.ring_outputs[i].lost);
        }
    }
    if (c.lines.to && (ferror(c.lines.to) | fclose(c.lines.to))) {
        fail(EXIT_FAILED, "%s: %s", s->decisions, strerror(errno));
    }
    write_statistics(&c, stderr);
}

int main(int argc, char **argv) {
    struct settings s;
    struct ports ports;
    struct policy policy;
    struct bnn *net = NULL;
    const int used = rte_eal_init(argc, argv);
    if (used < 0) {
        fail(EXIT_USAGE, "EAL: %s", rte_strerror(rte_errno));
    }
    if (!settings_read(&s, argc - used, argv + used)) {
        return 0;
    }
    const unsigned lcores_besides_first = rte_lcore_count() - 1;
    if (!lcores_besides_first) {
        fail(EXIT_USAGE,
             "expected two lcores or more, the first to control and the others to work: give EAL "
             "-l 0,1");
    }
    const int status = bnn_init(&net);
    if (status != BNN_OK) {
        fail(EXIT_FAILED, "the weights cannot be loaded: %s", bnn_strerror(status));
    }
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    policy_open(&policy, net, s.policies, s.n_policies);
    ports_open(&ports, &s, lcores_besides_first);
    struct shared all = {.settings = &s, .ports = &ports, .policy = &policy, .net = net};
    /* Keys the hashes, so that a sender cannot aim at one chain, or at one worker. */
    if (getentropy(all.secret, sizeof all.secret)) {
        fail(EXIT_FAILED, "cannot read random numbers from the kernel: %s", strerror(errno));
    }
    read_clocks(&all);
    find_timestamp_field(&all);
    uint32_t *column = feature_columns(net);
    const unsigned lcores = ports.workers + (ports.distribution == BY_SOFTWARE);
    all.column = column;
    all.workers = aligned_alloc(RTE_CACHE_LINE_SIZE, lcores * sizeof *all.workers);
    if (!column || !all.workers) {
        fail(EXIT_FAILED, "no memory for %u workers", lcores);
    }
    memset(all.workers, 0, lcores * sizeof *all.workers);
    for (unsigned i = 0; i < lcores; i++) {
        worker_open(&all.workers[i], &all, i);
    }
    fprintf(stderr, "n3ic-dpdk: %u ports; %u lcores: %s\n", ports.n, lcores,
            ports_distribution(&ports));
    run_lcores(&all, &s, lcores);
    for (unsigned i = 0; i < lcores; i++) {
        worker_close(&all.workers[i]);
    }
    free(all.workers);
    free(column);
    policy_close(&policy);
    ports_close(&ports);
    bnn_free(net);
    rte_eal_cleanup();
    return 0;
}
