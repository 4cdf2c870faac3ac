// SPDX-License-Identifier: Apache-2.0
/*
 * A metering process (RFC 7011): frames in, flow records out. See docs/reference/meter.md.
 *
 * Memory is that of the flow cache, and of the records until they are fetched. A meter is used by
 * one thread at a time.
 */
#ifndef N3IC_METER_H
#define N3IC_METER_H

#include <stddef.h>

#include "flow.h"
#include "key.h"

/* Why a flow was decided; the order is that of ENDS in compiled.py. */
enum end { BY_PACKETS, BY_AFTER, BY_FIN, BY_RST, BY_IDLE, BY_ACTIVE, BY_EVICTION, BY_CAPTURE };

/* What meter_counters() tells: packets put aside stand behind the others, by reason. */
enum {
    COUNT_PACKETS,
    COUNT_LATE,
    COUNT_EVICTED,
    COUNT_FAILED,
    COUNT_BACK,      /* stamped earlier than a packet before them */
    COUNT_AHEAD,     /* stamped more than an hour later than all before them, and than the next */
    COUNT_STEPS,     /* times that the clock went back */
    COUNT_TUNNELLED, /* of tunnels that the specification does not open */
    COUNT_FORGOTTEN, /* sources that made room for others */
    COUNT_ASIDE
};
enum { METER_COUNTERS = COUNT_ASIDE + ASIDE_REASONS };

/* A flow when it was decided; times in units of METER_TICK_NS. */
struct record {
    struct key key; /* in the direction of the first packet */
    uint32_t why;
    uint64_t number, first, last, packets;
    uint64_t registers[METER_REGISTERS ? METER_REGISTERS : 1];
    uint32_t features[METER_VALUES]; /* those of windows, then of sources last */
};

struct meter;

/*
 * Units of METER_TICK_NS since 1970. What is earlier is 0, what does not fit 63 bits of
 * nanoseconds (the year 2262) is the last that does.
 */
static inline uint64_t meter_time(int64_t seconds, int64_t nanoseconds) {
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
        return INT64_MAX / METER_TICK_NS;
    ns = (uint64_t)(seconds * second) + (uint64_t)nanoseconds;
    return (ns > INT64_MAX ? INT64_MAX : ns) / METER_TICK_NS;
}

/*
 * A meter with an empty cache, for frames of that link type (LINKTYPE_ numbers). `secret` of its
 * hash tables: of no influence on the records; whoever knows it can send packets that make them
 * slow. NULL where there is no memory.
 */
struct meter *meter_open(uint32_t link, const uint64_t secret[SECRET_WORDS]);
void meter_close(struct meter *m);

/*
 * Keys the hashes of the table of sources, before the first packet. Without it they are open: the
 * same packets give the same records, and a sender can choose addresses that share a place.
 */
void meter_hide_sources(struct meter *m, const uint64_t secret[SECRET_WORDS]);

/* Frames that follow have that link type. */
void meter_link(struct meter *m, uint32_t link);

/*
 * Counts a frame of `captured` bytes that had `length` on the wire; where its time lies more than
 * an hour from those before, it is counted when the next one's time is known.
 */
void meter_frame(struct meter *m, const uint8_t *frame, uint32_t captured, uint32_t length,
                 uint64_t time);

/* Counts frames: frame i is at data + offset[i]. */
void meter_count(struct meter *m, size_t frames, const uint8_t *data, const uint64_t *offset,
                 const uint32_t *captured, const uint32_t *length, const uint64_t *time);

enum { METER_BURST = 64 };

/* What meter_burst() says of a frame's flow, but for the caller's own marks, which lie between. */
static const uint32_t MARK_UNDECIDED = 0;
static const uint32_t MARK_RECORD = 0x80000000; /* record r decided it last: MARK_RECORD + r */
static const uint32_t MARK_ASIDE = 0xffffffff;  /* there is none, or it is counted later */

struct burst_frame { /* as meter_frame() takes one */
    const uint8_t *data;
    uint32_t captured, length;
    uint64_t time;
};

/*
 * Counts n frames, METER_BURST at most, one by one as meter_frame() does, but fetches what their
 * flows take in memory ahead. marks[i] is that of frame i's flow when the frame was counted.
 */
void meter_burst(struct meter *m, size_t n, const struct burst_frame *frames, uint32_t *marks);

/*
 * Marks the flow of a record that meter_records() gave last, for the frames that follow. Nothing
 * happens where the flow has ended or another record decided it since.
 */
void meter_mark(struct meter *m, size_t record, uint32_t mark);

/* The mark that the flow of such a record had before it; MARK_RECORD + r is of an earlier one. */
uint32_t meter_earlier_mark(const struct meter *m, size_t record);

/*
 * Ends flows that have been idle for too long at `time`, though no packet came. It makes no
 * difference to the records where no packet comes that was seen before it.
 */
void meter_expire(struct meter *m, uint64_t time);

/*
 * Counts the packet that still waits, and ends so many of the flows that are left, seen longest ago
 * first. Gives whether there are more, so that records need not take memory all at once.
 */
int meter_finish(struct meter *m, size_t most);

/* The records since the last call, *n of them; they are the caller's to read until the next. */
const struct record *meter_records(struct meter *m, size_t *n);

/* Writes METER_COUNTERS counters. COUNT_FAILED: records were lost, for want of memory. */
void meter_counters(const struct meter *m, uint64_t *out);

/*
 * All that a meter knows but the records since meter_records(), as bytes: a meter of the same code
 * goes on from there. What is restored is not checked: it must be what was saved.
 */
size_t meter_state_bytes(struct meter *m);
void meter_save(struct meter *m, uint8_t *state);
void meter_restore(struct meter *m, uint8_t *state);

/* An end, or why a packet was put aside, in words. */
const char *meter_end_name(uint32_t end);
const char *meter_aside_name(uint32_t reason);

#endif
