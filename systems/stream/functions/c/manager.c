// SPDX-License-Identifier: Apache-2.0
/*
 * n3ic-manager: owns DPDK's ports and the packet buffers, and hands packets to functions, which
 * are separate processes. Only it allocates and frees; see docs/how-to/stream-functions.md.
 */
#define _GNU_SOURCE

#include "manager.h"

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf_dyn.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { DESCRIPTORS = 512, POLLS_AT_END = 3, REST_US = 20, IDLE_ROUNDS = 64, PER_SECOND = 1000 };
enum { STARTING = 30 };    /* times longer to the first heartbeat: a function may build its meter */
enum { MOST_LAST = 8192 }; /* packets, more than the queue of a port holds */

static struct manager manager; /* too large for the stack */

/* --- ports ------------------------------------------------------------------------------- */

static void check_step(const char *name, const char *action, int status) {
    if (status) {
        fail(EXIT_FAILED, "port %s: cannot %s: %s", name, action, rte_strerror(-status));
    }
}

/* Whether a kernel interface is promiscuous; drivers switch this on, and do not switch it off. */
static int is_promiscuous(const char *interface) {
    struct ifreq request = {0};
    const int fd = interface[0] ? socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0) {
        return 0;
    }
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    const int failed = ioctl(fd, SIOCGIFFLAGS, &request);
    close(fd);
    return !failed && (request.ifr_flags & IFF_PROMISC);
}

static void open_device(struct manager *m, struct device *d, const char *name) {
    struct rte_eth_conf conf = {0};
    uint16_t rx = DESCRIPTORS, tx = DESCRIPTORS;
    if (rte_eth_dev_get_port_by_name(name, &d->number)) {
        fail(EXIT_USAGE, "port %s: expected a device of EAL, which knows none of this name", name);
    }
    check_step(name, "configure its queues", rte_eth_dev_configure(d->number, 1, 1, &conf));
    check_step(name, "set its number of descriptors",
               rte_eth_dev_adjust_nb_rx_tx_desc(d->number, &rx, &tx));
    check_step(name, "set up its receiving queue",
               rte_eth_rx_queue_setup(d->number, 0, rx, SOCKET_ID_ANY, NULL, m->pool));
    check_step(name, "set up its sending queue",
               rte_eth_tx_queue_setup(d->number, 0, tx, SOCKET_ID_ANY, NULL));
    check_step(name, "read its description", losses_begin(&d->losses, d->number));
    if (!has_ethernet(&d->losses)) {
        fail(EXIT_USAGE,
             "port %s: packets of %s have no Ethernet header, which is expected (tun, PPP, GRE and "
             "WireGuard have none)",
             name, d->losses.interface);
    }
    d->promiscuous = is_promiscuous(d->losses.interface); /* before starting, which changes it */
    check_step(name, "start it", rte_eth_dev_start(d->number));
    const int promiscuous = rte_eth_promiscuous_enable(d->number);
    check_step(name, "switch promiscuous mode on", promiscuous == -ENOTSUP ? 0 : promiscuous);
    /* net_pcap stamps packets in microseconds since 1970; other drivers use units of their own. */
    d->stamped = strcmp(d->losses.driver, "net_pcap") == 0;
}

static void close_devices(struct manager *m) {
    for (unsigned i = 0; i < m->settings.n_ports; i++) {
        struct device *d = &m->devices[i];
        losses_read(&d->losses, d->lost);
        d->closed = 1;
        if (!d->promiscuous) {
            rte_eth_promiscuous_disable(d->number); /* may fail: such a device never was */
        }
        check_step(m->settings.ports[i], "stop it", rte_eth_dev_stop(d->number));
        rte_eth_dev_close(d->number);
    }
}

/* --- packets ----------------------------------------------------------------------------- */

static void open_times(struct manager *m) {
    static const struct rte_mbuf_dynfield field = {
        .name = "n3ic_time", .size = sizeof(uint64_t), .align = sizeof(uint64_t)};
    const int flag = rte_mbuf_dynflag_lookup(RTE_MBUF_DYNFLAG_RX_TIMESTAMP_NAME, NULL);
    m->stamp_at = rte_mbuf_dynfield_lookup(RTE_MBUF_DYNFIELD_TIMESTAMP_NAME, NULL);
    m->stamp_flag = flag < 0 || m->stamp_at < 0 ? 0 : RTE_BIT64(flag);
    m->time_at = rte_mbuf_dynfield_register(&field);
    if (m->time_at < 0) {
        fail(EXIT_FAILED, "no room for a packet's time: %s", rte_strerror(rte_errno));
    }
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void enter_chain(struct manager *m, const struct device *d, struct rte_mbuf *packet,
                        uint64_t now) {
    const int stamped = d->stamped && (packet->ol_flags & m->stamp_flag);
    const unsigned n = m->settings.n_entries;
    if (packet->nb_segs != 1) {
        m->too_long++;
        rte_pktmbuf_free(packet);
        return;
    }
    *RTE_MBUF_DYNFIELD(packet, m->time_at, uint64_t *) =
        stamped ? *RTE_MBUF_DYNFIELD(packet, m->stamp_at, uint64_t *) * 1000 : now;
    if (n > 1) {
        rte_mbuf_refcnt_update(packet, (int16_t)(n - 1));
    }
    m->copies += n;
    /* Read it first: a place may free it. */
    unsigned share[MOST_FUNCTIONS];
    for (unsigned i = 0; i < n; i++) {
        const struct entry *e = &m->settings.entries[i];
        share[i] = e->n == 1 ? 0
                             : flow_share(&m->flows, rte_pktmbuf_mtod(packet, const uint8_t *),
                                          packet->data_len, packet->pkt_len, e->n);
    }
    for (unsigned i = 0; i < n; i++) {
        chain_send(m, packet, m->settings.entries[i].hops[share[i]]);
    }
}

/* Receives from all ports; returns how many packets came. */
static unsigned receive_packets(struct manager *m) {
    const struct settings *s = &m->settings;
    unsigned n = 0, polled = 0;
    for (unsigned i = 0; i < s->n_ports; i++) {
        struct device *d = &m->devices[i];
        struct rte_mbuf *packets[BURST];
        uint64_t most = chain_room(m);
        if (s->packets) {
            most = RTE_MIN(most, s->packets - m->received);
        }
        if (!most) {
            continue;
        }
        const uint16_t got = rte_eth_rx_burst(d->number, 0, packets, (uint16_t)most);
        const uint64_t now = got ? now_ns() : 0;
        polled++;
        n += got;
        d->received += got;
        m->received += got;
        for (uint16_t j = 0; j < got; j++) {
            enter_chain(m, d, packets[j], now);
        }
    }
    /* net_pcap also returns nothing if it gets no buffer, so this is the end only with free ones */
    const int at_end = !n && polled == s->n_ports && rte_mempool_avail_count(m->pool) > 2 * BURST;
    m->empty_polls = at_end ? m->empty_polls + 1 : 0;
    if ((s->until_end && m->empty_polls >= POLLS_AT_END) ||
        (s->packets && m->received == s->packets)) {
        m->phase = DRAINING;
    }
    if (m->ending) {
        m->received_last += n;
        m->phase = !n || m->received_last >= MOST_LAST ? DRAINING : m->phase;
    }
    return n;
}

/* --- functions that hang, and the end ---------------------------------------------------- */

static void kill_function(struct function *f, enum function_end why) {
    f->why = why;
    f->state = KILLED;
    syscall(SYS_pidfd_send_signal, f->process, SIGKILL, NULL, 0);
}

static void check_heartbeat(struct function *f) {
    const uint64_t now = rte_rdtsc(), hang = f->settings->hang_ms * (rte_get_tsc_hz() / PER_SECOND);
    if (f->state != ATTACHED && f->state != STOPPING) {
        return;
    }
    const uint64_t heartbeat = __atomic_load_n(&f->area->heartbeat, __ATOMIC_ACQUIRE);
    const int has_work = function_held(f) || f->state == STOPPING;
    if (heartbeat != f->heartbeat || !has_work) {
        f->heartbeat = heartbeat;
        f->heard = now;
    }
    if (!function_intact(f)) {
        kill_function(f, ENDED_DAMAGED);
    } else if (hang && now - f->heard > (heartbeat ? hang : STARTING * hang)) {
        kill_function(f, ENDED_HUNG);
    }
}

/* Stops functions to which no other can still send; returns whether all have ended. */
static int stop_unfed(struct manager *m) {
    uint32_t fed = 0, present = 0;
    for (unsigned i = 0; i < m->settings.n_functions; i++) {
        if (m->functions[i].state != ABSENT) {
            fed |= m->functions[i].downstream;
            present |= 1u << i;
        }
    }
    for (unsigned i = 0; i < m->settings.n_functions; i++) {
        if (m->functions[i].state == ATTACHED && !(fed >> i & 1)) {
            function_stop(&m->functions[i]);
        }
    }
    return !present;
}

static void find_downstream(struct manager *m) {
    const struct settings *s = &m->settings;
    for (unsigned round = 0; round < s->n_functions; round++) {
        for (unsigned i = 0; i < s->n_functions; i++) {
            const struct function_settings *f = &s->functions[i];
            uint32_t *mask = &m->functions[i].downstream;
            for (unsigned r = 0; r <= f->n_routes; r++) {
                const struct hop h = r < f->n_routes ? f->routes[r] : f->next;
                if (h.kind == TO_FUNCTION) {
                    *mask |= 1u << h.index | m->functions[h.index].downstream;
                }
            }
            if (*mask >> i & 1) {
                fail(EXIT_USAGE, "packets of function %s come back to it", f->name);
            }
        }
    }
}

static void run(struct manager *m) {
    const uint64_t tick = rte_get_tsc_hz() / PER_SECOND;
    uint64_t last = 0;
    unsigned idle = 0;
    while (m->phase != DONE) {
        unsigned n = m->phase == RECEIVING ? receive_packets(m) : 0;
        n += chain_collect(m);
        chain_flush(m);
        idle = n ? 0 : idle + 1;
        if (rte_rdtsc() - last > tick || idle > IDLE_ROUNDS) {
            last = rte_rdtsc();
            control_poll(m);
            for (unsigned i = 0; i < m->settings.n_functions; i++) {
                check_heartbeat(&m->functions[i]);
            }
            if (m->phase == DRAINING && stop_unfed(m)) {
                m->phase = DONE;
            }
        }
        if (idle > IDLE_ROUNDS) {
            usleep(REST_US);
        }
    }
    chain_flush(m);
}

int main(int argc, char **argv) {
    struct manager *m = &manager;
    const int eal = rte_eal_init(argc, argv);
    if (eal < 0) {
        fail(EXIT_FAILED, "DPDK does not start: %s", rte_strerror(rte_errno));
    }
    signal(SIGINT, SIG_IGN); /* Ctrl-C reaches the parent too, which then ends this process */
    settings_read(&m->settings, argc - eal, argv + eal);
    m->flows.by = m->settings.share_by;
    if (!m->settings.until_end && getrandom(m->flows.secret, sizeof m->flows.secret, 0) < 0) {
        fail(EXIT_FAILED, "no random numbers for the flows");
    }
    m->pool = memory_pool(&m->settings, &m->packets);
    for (unsigned i = 0; i < m->settings.n_functions; i++) {
        function_open(&m->functions[i], &m->settings.functions[i], m->settings.memory);
    }
    find_downstream(m);
    for (unsigned i = 0; i < m->settings.n_ports; i++) {
        open_device(m, &m->devices[i], m->settings.ports[i]);
    }
    open_times(m);
    control_open(m);
    puts("ready");
    fflush(stdout);
    run(m);
    control_close(m);
    close_devices(m);
    statistics_write(m, stdout);
    for (unsigned i = 0; i < m->settings.n_functions; i++) {
        function_close(&m->functions[i]);
    }
    rte_mempool_free(m->pool);
    memory_free(&m->packets);
    rte_eal_cleanup();
    return fclose(stdout) ? EXIT_FAILED : 0;
}
