// SPDX-License-Identifier: Apache-2.0
/* Copies packets of libpcap to arrays, so that one thread can hand them to another. */
#include <stdint.h>
#include <string.h>

#define LARGEST 262144      /* bytes of a packet that are kept */
#define ROOM (16 * LARGEST) /* bytes of `data` */

struct pcap_header { /* struct pcap_pkthdr of libpcap, opened for nanoseconds */
    long seconds, nanoseconds;
    uint32_t captured, length;
};

struct gather {
    uint8_t *data;
    uint64_t *offset, *time; /* nanoseconds since 1970 */
    uint32_t *captured, *length;
    uint64_t used;    /* bytes of data */
    uint64_t packets; /* entries of the other arrays, all complete for another thread */
};

/* Times before 1970 become 0; times that exceed 63 bits (from the year 2262 on) become the last. */
static uint64_t nanoseconds_of(int64_t seconds, int64_t nanoseconds) {
    const int64_t second = 1000000000, far = INT64_MAX / 2;
    uint64_t ns;

    seconds = seconds > far ? far : seconds < -far ? -far : seconds;
    seconds += nanoseconds / second;
    nanoseconds %= second;
    if (nanoseconds < 0) {
        nanoseconds += second;
        seconds--;
    }
    if (seconds < 0)
        return 0;
    if (seconds > INT64_MAX / second)
        return INT64_MAX;
    ns = (uint64_t)(seconds * second) + (uint64_t)nanoseconds;
    return ns > INT64_MAX ? INT64_MAX : ns;
}

typedef void handler_fn(uint8_t *to, const struct pcap_header *h, const uint8_t *frame);
typedef int dispatch_fn(void *pcap, int most, handler_fn *handler, uint8_t *to); /* of libpcap */

static void gather_packet(uint8_t *to, const struct pcap_header *h, const uint8_t *frame) {
    struct gather *g = (struct gather *)(void *)to;
    const uint32_t captured = h->captured < LARGEST ? h->captured : LARGEST;
    const uint64_t at = g->packets;

    memcpy(g->data + g->used, frame, captured);
    g->offset[at] = g->used;
    g->time[at] = nanoseconds_of(h->seconds, h->nanoseconds);
    g->captured[at] = captured;
    g->length[at] = h->length;
    g->used += captured;
    __atomic_store_n(&g->packets, at + 1, __ATOMIC_RELEASE);
}

/* The number of packets that another thread may read. */
uint64_t gathered_packets(const struct gather *g) {
    return __atomic_load_n(&g->packets, __ATOMIC_ACQUIRE);
}

/*
 * Fills the arrays with up to `most` packets, until there is no room for another or `dispatch` has
 * no more. Never asks for more packets than are sure to fit. Returns the packets that came, or a
 * negative number at an error.
 */
int gather_dispatch(struct gather *g, dispatch_fn *dispatch, void *pcap, uint32_t most) {
    uint32_t came = 0;

    for (;;) {
        const uint64_t room = (ROOM - g->used) / LARGEST;
        const uint32_t step = most - came < room ? most - came : (uint32_t)room;
        const int passed = step ? dispatch(pcap, (int)step, gather_packet, (uint8_t *)g) : 0;

        if (passed < 0)
            return passed;
        if (passed == 0)
            return (int)came;
        came += (uint32_t)passed;
    }
}
