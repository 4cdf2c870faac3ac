// SPDX-License-Identifier: Apache-2.0
/* See ports.h. */
#include "ports.h"

#include "meter.h"

#include <rte_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 64, CACHE = 256 };

/* --- distribution ---------------------------------------------------------------------- */

/*
 * What a device must hash so that all packets of a flow meet. Later fragments have no ports: where
 * the meter joins them to their flow, ports may not count. Of tunnels the device sees the outside.
 */
static uint64_t required_hash_types(void) {
    const uint64_t addresses = RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_FRAG_IPV4 |
                               RTE_ETH_RSS_NONFRAG_IPV4_OTHER | RTE_ETH_RSS_IPV6 |
                               RTE_ETH_RSS_FRAG_IPV6 | RTE_ETH_RSS_NONFRAG_IPV6_OTHER;
#if defined(METER_KEY_FIVE_TUPLE)
    if (METER_FRAGMENTS_ASIDE) {
        return addresses | RTE_ETH_RSS_NONFRAG_IPV4_TCP | RTE_ETH_RSS_NONFRAG_IPV4_UDP |
               RTE_ETH_RSS_NONFRAG_IPV6_TCP | RTE_ETH_RSS_NONFRAG_IPV6_UDP;
    }
#elif defined(METER_KEY_SOURCE_HOST)
    return addresses | RTE_ETH_RSS_L3_SRC_ONLY;
#endif
    return addresses;
}

/* Whether every port can hash so, by tables of one size, to so many queues. */
static int devices_support_hash(const struct ports *p, unsigned workers) {
    uint16_t table = 0;
    for (unsigned i = 0; i < p->n; i++) {
        struct rte_eth_dev_info info;
        if (rte_eth_dev_info_get(p->port[i].number, &info) ||
            (info.flow_type_rss_offloads & required_hash_types()) != required_hash_types() ||
            METER_TUNNELS || info.max_rx_queues < workers || info.hash_key_size > KEY_BYTES ||
            (table && table != info.reta_size)) {
            return 0;
        }
        table = info.reta_size;
    }
    return 1;
}

/* Both directions of a flow have one hash by a key that repeats every 16 bits. */
static void fill_symmetric_key(uint8_t *key) {
    for (unsigned i = 0; i < KEY_BYTES; i++) {
        key[i] = i % 2 ? 0x5a : 0x6d;
    }
}

/* The device may have kept a key or a hash of its own. */
static int device_kept_key(uint16_t port, uint8_t bytes) {
    uint8_t expected_key[KEY_BYTES], device_key[KEY_BYTES] = {0};
    struct rte_eth_rss_conf conf = {.rss_key = device_key, .rss_key_len = bytes};
    fill_symmetric_key(expected_key);
    return rte_eth_dev_rss_hash_conf_get(port, &conf) == 0 &&
           memcmp(expected_key, device_key, bytes) == 0 &&
           (conf.rss_hf & required_hash_types()) == required_hash_types();
}

const char *ports_distribution(const struct ports *p) {
    switch (p->distribution) {
    case BY_DEVICE:
        return "the device's RSS, a queue for each worker";
    case BY_SOFTWARE:
        return "software: one lcore receives and hashes addresses, because a port has no RSS that "
               "keeps this meter's flows together";
    default:
        return "one worker";
    }
}

/* --- ports ----------------------------------------------------------------------------- */

static void require_success(const struct port *p, const char *what, int status) {
    if (status) {
        fail(EXIT_FAILED, "port %s: cannot %s: %s", p->name, what, rte_strerror(-status));
    }
}

static void start_port(struct ports *all, struct port *p, const struct settings *s,
                       uint16_t receivers) {
    struct rte_eth_dev_info info;
    uint8_t key[KEY_BYTES];
    struct rte_eth_conf conf = {0};
    uint16_t rx = (uint16_t)s->descriptors, tx = rx;
    require_success(p, "read its description", rte_eth_dev_info_get(p->number, &info));
    rte_eth_dev_get_name_by_port(p->number, p->name);
    if (all->distribution == BY_DEVICE) {
        fill_symmetric_key(key);
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf = (struct rte_eth_rss_conf){
            .rss_key = info.hash_key_size ? key : NULL,
            .rss_key_len = info.hash_key_size,
            .rss_hf = required_hash_types(),
        };
    }
    conf.rxmode.offloads = info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER;
    conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
    p->rx_queues = receivers;
    p->tx_queues = (uint16_t)RTE_MIN(all->workers + 1, info.max_tx_queues);
    rte_spinlock_init(&p->lock);
    require_success(p, "configure its queues",
                    rte_eth_dev_configure(p->number, p->rx_queues, p->tx_queues, &conf));
    require_success(p, "adjust its descriptors",
                    rte_eth_dev_adjust_nb_rx_tx_desc(p->number, &rx, &tx));
    for (uint16_t q = 0; q < p->rx_queues; q++) {
        require_success(p, "set up a receive queue",
                        rte_eth_rx_queue_setup(p->number, q, rx, SOCKET_ID_ANY, NULL, all->pool));
    }
    for (uint16_t q = 0; q < p->tx_queues; q++) {
        require_success(p, "set up a transmit queue",
                        rte_eth_tx_queue_setup(p->number, q, tx, SOCKET_ID_ANY, NULL));
    }
    require_success(p, "read its statistics", losses_begin(&p->losses, p->number));
    if (!has_ethernet(&p->losses)) {
        fail(EXIT_USAGE,
             "port %s: packets of %s have no Ethernet header, which the meter needs (tun, PPP, GRE "
             "and WireGuard have none)",
             p->name, p->losses.interface);
    }
    require_success(p, "start", rte_eth_dev_start(p->number));
    if (all->distribution == BY_DEVICE && !device_kept_key(p->number, info.hash_key_size)) {
        fail(EXIT_FAILED,
             "port %s: the device did not keep the RSS key that sends both directions of a flow to "
             "one queue: run on two lcores, or on four or more with --no-rss",
             p->name);
    }
    const int promiscuous = rte_eth_promiscuous_enable(p->number);
    if (promiscuous && promiscuous != -ENOTSUP) {
        require_success(p, "enter promiscuous mode", promiscuous);
    }
    /* net_pcap stamps packets with microseconds since 1970; units of other drivers are theirs. */
    p->stamped = strcmp(p->losses.driver, "net_pcap") == 0;
    p->is_capture = p->stamped && !info.if_index;
}

void ports_open(struct ports *p, const struct settings *s, unsigned lcores) {
    uint16_t number;
    *p = (struct ports){.n = rte_eth_dev_count_avail(), .workers = lcores};
    if (!p->n) {
        fail(EXIT_USAGE,
             "DPDK has no port: name a device (--vdev=net_pcap0,rx_pcap=FILE), or bind a NIC "
             "to vfio-pci");
    }
    p->port = calloc(p->n, sizeof *p->port);
    p->pool = rte_pktmbuf_pool_create("packets", s->mbufs, CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
                                      SOCKET_ID_ANY);
    if (!p->port || !p->pool) {
        fail(EXIT_FAILED, "no memory for %u packet buffers: %s", s->mbufs, rte_strerror(rte_errno));
    }
    unsigned i = 0;
    RTE_ETH_FOREACH_DEV(number) {
        p->by_number[number] = &p->port[i];
        p->port[i++].number = number;
    }
    if (lcores > 1 && !s->no_rss && devices_support_hash(p, lcores)) {
        p->distribution = BY_DEVICE;
    } else if (lcores > 2) {
        p->distribution = BY_SOFTWARE;
        p->workers = lcores - 1;
    } else { /* two lcores: handing over would only cost */
        p->workers = 1;
    }
    for (i = 0; i < p->n; i++) {
        const int all = p->distribution == BY_DEVICE;
        start_port(p, &p->port[i], s, (uint16_t)(all ? p->workers : 1));
    }
}

void ports_close(struct ports *p) {
    for (unsigned i = 0; i < p->n; i++) {
        rte_eth_dev_stop(p->port[i].number);
        rte_eth_dev_close(p->port[i].number);
    }
    rte_mempool_free(p->pool);
    free(p->port);
}

uint16_t port_send(struct port *p, unsigned lcores, unsigned own, struct rte_mbuf **packets,
                   uint16_t n) {
    const uint16_t last = (uint16_t)(p->tx_queues - 1), queue = (uint16_t)RTE_MIN(own, last);
    const int shared = queue == last && p->tx_queues < lcores;
    if (shared) {
        rte_spinlock_lock(&p->lock);
    }
    n = rte_eth_tx_burst(p->number, queue, packets, n);
    if (shared) {
        rte_spinlock_unlock(&p->lock);
    }
    return n;
}
