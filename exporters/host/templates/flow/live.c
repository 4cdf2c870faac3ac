// SPDX-License-Identifier: Apache-2.0
/* See live.h; packet(7) of Linux. */
#define _GNU_SOURCE

#include "live.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef __linux__

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LINK_IS_ETHERNET = 1, LINK_IS_RAW = 101, TAG = 4, ADDRESSES = 12 };
enum { LARGEST = 1 << 18, QUEUE_BYTES = 1 << 25 };

struct live {
    int fd, is_loopback;
    uint32_t link;
    uint8_t data[TAG + LARGEST];
};

static int configure(struct live *l, const char *interface, int promiscuous) {
    const int on = 1, queue = QUEUE_BYTES;
    struct ifreq request = {0};
    if (strlen(interface) >= sizeof request.ifr_name) {
        errno = ENODEV;
        return -1;
    }
    strcpy(request.ifr_name, interface);
    if (ioctl(l->fd, SIOCGIFHWADDR, &request)) {
        return -1;
    }
    const int type = request.ifr_hwaddr.sa_family;
    l->is_loopback = type == ARPHRD_LOOPBACK;
    l->link = type == ARPHRD_ETHER || l->is_loopback ? LINK_IS_ETHERNET : LINK_IS_RAW;
    if (l->link == LINK_IS_RAW && type != ARPHRD_NONE && type != ARPHRD_RAWIP) {
        errno = EPROTONOSUPPORT;
        return -1;
    }
    if (ioctl(l->fd, SIOCGIFINDEX, &request)) {
        return -1;
    }
    struct sockaddr_ll address = {.sll_family = AF_PACKET,
                                  .sll_protocol = htons(ETH_P_ALL),
                                  .sll_ifindex = request.ifr_ifindex};
    struct packet_mreq all = {.mr_ifindex = request.ifr_ifindex, .mr_type = PACKET_MR_PROMISC};
    if (setsockopt(l->fd, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on) ||
        setsockopt(l->fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) ||
        (promiscuous && setsockopt(l->fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all))) {
        return -1;
    }
    /* Forcing needs CAP_NET_ADMIN; without it the system's limit cuts the size. */
    if (setsockopt(l->fd, SOL_SOCKET, SO_RCVBUFFORCE, &queue, sizeof queue)) {
        setsockopt(l->fd, SOL_SOCKET, SO_RCVBUF, &queue, sizeof queue);
    }
    return bind(l->fd, (struct sockaddr *)&address, sizeof address);
}

struct live *live_open(const char *interface, int promiscuous) {
    struct live *l = calloc(1, sizeof *l);
    if (!l) {
        return NULL;
    }
    /* protocol 0: the socket receives nothing until bind() names the interface */
    l->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (l->fd < 0 || configure(l, interface, promiscuous)) {
        const int error = errno;
        live_close(l);
        errno = error;
        return NULL;
    }
    return l;
}

void live_close(struct live *l) {
    if (l->fd >= 0) {
        close(l->fd);
    }
    free(l);
}

uint32_t live_link(const struct live *l) {
    return l->link;
}

/* Puts back the VLAN tag that the kernel took out of the frame: the meter expects it as on the
 * wire. recvmsg() left TAG bytes free before the frame. */
static void restore_tag(struct live *l, struct captured *f, const struct tpacket_auxdata *status) {
    const int named = status->tp_status & TP_STATUS_VLAN_TPID_VALID;
    const uint16_t tag[2] = {htons(named ? status->tp_vlan_tpid : ETH_P_8021Q),
                             htons(status->tp_vlan_tci)};
    if (!(status->tp_status & TP_STATUS_VLAN_VALID) || l->link != LINK_IS_ETHERNET ||
        f->captured < ADDRESSES) {
        return;
    }
    memmove(l->data, l->data + TAG, ADDRESSES);
    memcpy(l->data + ADDRESSES, tag, TAG);
    f->bytes = l->data;
    f->captured += TAG;
    f->length += TAG;
}

int live_next(struct live *l, struct captured *f) {
    union {
        struct cmsghdr align;
        char
            bytes[CMSG_SPACE(sizeof(struct tpacket_auxdata)) + CMSG_SPACE(sizeof(struct timespec))];
    } control;
    struct sockaddr_ll from;
    struct iovec into = {.iov_base = l->data + TAG, .iov_len = LARGEST};
    struct msghdr message;
    ssize_t length;
    do {
        message = (struct msghdr){.msg_name = &from,
                                  .msg_namelen = sizeof from,
                                  .msg_iov = &into,
                                  .msg_iovlen = 1,
                                  .msg_control = &control,
                                  .msg_controllen = sizeof control};
        /* MSG_TRUNC: the length on the wire, also of a frame that is cut */
        length = recvmsg(l->fd, &message, MSG_DONTWAIT | MSG_TRUNC);
        if (length < 0) {
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
        }
        /* the loopback shows each packet twice: as it leaves and as it comes */
    } while (l->is_loopback && from.sll_pkttype == PACKET_OUTGOING);
    f->bytes = l->data + TAG;
    f->length = (uint32_t)length;
    f->captured = f->length < LARGEST ? f->length : LARGEST;
    struct timespec received = {0};
    clock_gettime(CLOCK_REALTIME, &received);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            memcpy(&received, CMSG_DATA(c), sizeof received);
        }
        if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA) {
            struct tpacket_auxdata status;
            memcpy(&status, CMSG_DATA(c), sizeof status);
            restore_tag(l, f, &status);
        }
    }
    f->seconds = received.tv_sec;
    f->nanoseconds = received.tv_nsec;
    return 1;
}

void live_wait(const struct live *l) {
    struct pollfd ready = {.fd = l->fd, .events = POLLIN};
    poll(&ready, 1, 1000);
}

uint64_t live_lost(const struct live *l) {
    struct tpacket_stats status = {0};
    socklen_t size = sizeof status;
    getsockopt(l->fd, SOL_PACKET, PACKET_STATISTICS, &status, &size);
    return status.tp_drops;
}

#else

struct live *live_open(const char *interface, int promiscuous) {
    (void)interface, (void)promiscuous;
    errno = ENOSYS;
    return NULL;
}

void live_close(struct live *l) {
    (void)l;
}

uint32_t live_link(const struct live *l) {
    (void)l;
    return 0;
}

int live_next(struct live *l, struct captured *f) {
    (void)l, (void)f;
    return 0;
}

void live_wait(const struct live *l) {
    (void)l;
}

uint64_t live_lost(const struct live *l) {
    (void)l;
    return 0;
}

#endif
