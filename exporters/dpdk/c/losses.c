// SPDX-License-Identifier: Apache-2.0
/* See losses.h. */
#include "losses.h"

#include <inttypes.h>
#include <linux/if_packet.h>
#include <net/if_arp.h>
#include <rte_ethdev.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_FD = 4096 };

const char *const loss_names[LOSSES] = {"imissed",
                                        "ierrors",
                                        "no_mbuf",
                                        "transmit_errors",
                                        "interface_dropped",
                                        "interface_missed",
                                        "packet_socket_dropped"};

/* A statistic of the kernel's interface; 0 where there is none. */
static uint64_t interface_statistic(const struct loss_counter *c, const char *name) {
    char path[128];
    uint64_t value = 0;
    FILE *file;
    if (!c->interface[0]) {
        return 0;
    }
    snprintf(path, sizeof path, "/sys/class/net/%s/statistics/%s", c->interface, name);
    file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%" SCNu64, &value) != 1) {
            value = 0;
        }
        fclose(file);
    }
    return value;
}

int losses_begin(struct loss_counter *c, uint16_t port) {
    struct rte_eth_dev_info info;
    const int status = rte_eth_dev_info_get(port, &info);
    *c = (struct loss_counter){.port = port};
    if (status) {
        return status;
    }
    snprintf(c->driver, sizeof c->driver, "%s", info.driver_name);
    if (info.if_index) {
        if_indextoname(info.if_index, c->interface);
    }
    c->dropped_before = interface_statistic(c, "rx_dropped");
    c->missed_before = interface_statistic(c, "rx_missed_errors");
    return 0;
}

int has_ethernet(const struct loss_counter *c) {
    struct ifreq request = {0};
    const int fd = c->interface[0] ? socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0) {
        return 1;
    }
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", c->interface);
    const int failed = ioctl(fd, SIOCGIFHWADDR, &request);
    close(fd);
    return failed || request.ifr_hwaddr.sa_family == ARPHRD_ETHER ||
           request.ifr_hwaddr.sa_family == ARPHRD_LOOPBACK;
}

/*
 * What the kernel dropped because the rings of net_af_packet were full. The driver counts none of
 * it, but its sockets are this process's own. Reading resets the kernel's count.
 */
static uint64_t packet_socket_drops(unsigned interface) {
    uint64_t lost = 0;
    for (int fd = 0; fd < MAX_FD; fd++) {
        struct sockaddr_ll address;
        struct tpacket_stats statistics;
        int domain = 0;
        socklen_t size = sizeof domain;
        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) || domain != AF_PACKET) {
            continue;
        }
        size = sizeof address;
        if (getsockname(fd, (struct sockaddr *)&address, &size) ||
            (unsigned)address.sll_ifindex != interface) {
            continue;
        }
        size = sizeof statistics;
        if (getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &statistics, &size) == 0) {
            lost += statistics.tp_drops;
        }
    }
    return lost;
}

void losses_read(struct loss_counter *c, uint64_t out[LOSSES]) {
    struct rte_eth_stats statistics = {0};
    if (rte_eth_stats_get(c->port, &statistics)) {
        statistics = (struct rte_eth_stats){0};
    }
    if (c->interface[0] && strcmp(c->driver, "net_af_packet") == 0) {
        c->socket_lost += packet_socket_drops(if_nametoindex(c->interface));
    }
    const uint64_t request[LOSSES] = {
        statistics.imissed,
        statistics.ierrors,
        statistics.rx_nombuf,
        statistics.oerrors,
        c->interface[0] ? interface_statistic(c, "rx_dropped") - c->dropped_before : 0,
        c->interface[0] ? interface_statistic(c, "rx_missed_errors") - c->missed_before : 0,
        c->socket_lost,
    };
    memcpy(out, request, sizeof request);
}
