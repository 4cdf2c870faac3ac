// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "card_turns.h"

#define MOST_TURN (UINT64_C(1) << 62)
#define TURN_UNIT 65536.0 /* turns of one cycle at the weight 1 */
#define OVERHEAD 20       /* bytes of preamble and gap */

struct server {
    const struct device_task *task;
    uint32_t number, free;
    uint64_t *next_start; /* tasks of one core take turns, so they share it */
};

/* A chain that serves in a region, or did. */
struct instance {
    struct instance *next;
    uint32_t region, owner, length, in_use;
    int open, stuck;
    uint64_t used; /* packets sent to it, for turns among instances */
    uint64_t *tasks;
    uint64_t *slots;
    struct server servers[];
};

struct region {
    uint32_t *chain; /* what it is to serve; what is loaded meanwhile may have been overtaken */
    uint32_t length, owner;
    uint32_t version; /* counts loads */
    int draining;
    uint64_t ready, since;
};

/* A part of a packet under way: the packet, or one of its branches. */
struct leg {
    struct lane *lane;
    struct device_packet *packet;
    struct leg *parent, *next, *previous; /* neighbours in the lane's line */
    struct instance *at;
    uint64_t order; /* of its packet, among those of all graphs */
    uint32_t step, pending, done, reserved;
    int32_t last; /* place of its last task in the chain */
    int lost;
};

/* The packets of a graph. */
struct lane {
    struct card_share share;
    const struct device_graph *graph;
    struct device_counts count;
    uint64_t next_in, next_out; /* packets that come in and leave next */
    uint64_t use_at, head_ready;
    struct leg *first, *last; /* a line that waits to be sent */
    struct leg *unused, *pool;
    uint64_t *uses, *wants; /* tasks of the graph, and those that it wanted last */
    int ready;
};

enum what { ARRIVE, BEGIN, ENTER, DONE, CUT, FINISH, DEPART, FETCH, OPEN };

struct event {
    uint64_t at, number;
    enum what what;
    uint32_t index, version; /* graph or region */
    void *of;
};

struct device {
    struct device_board board;
    const struct device_task *tasks;
    uint32_t n_tasks, n_graphs, n_tenants, n_regions, words;
    uint64_t now, second, next_slot, events_made, orders;
    double egress_free;
    struct lane *lanes;
    struct region *regions;
    struct instance *instances; /* in the order of regions, those of a region as they came */
    uint32_t *running;          /* instances of each task */
    double *region_busy, *tenant_work;
    struct event *heap;
    size_t n_events, room;
    int failed;
};

/* --- events ------------------------------------------------------------------------------ */

static int is_before(const struct event *a, const struct event *b) {
    return a->at != b->at ? a->at < b->at : a->number < b->number;
}

static void put(struct device *d, struct event event) {
    if (d->n_events == d->room) {
        size_t room = d->room ? 2 * d->room : 1024;
        struct event *heap = realloc(d->heap, room * sizeof *heap);
        if (heap == NULL) {
            d->failed = 1;
            return;
        }
        d->heap = heap;
        d->room = room;
    }
    size_t at = d->n_events++;
    for (; at && is_before(&event, &d->heap[(at - 1) / 2]); at = (at - 1) / 2)
        d->heap[at] = d->heap[(at - 1) / 2];
    d->heap[at] = event;
}

static void plan(struct device *d, uint64_t at, enum what what, uint32_t index, void *of) {
    put(d, (struct event){at, d->events_made++, what, index, 0, of});
}

/* Packets arrive last in their cycle, in the order of graphs. */
static void plan_arrival(struct device *d, uint64_t at, uint32_t graph) {
    put(d, (struct event){at, UINT64_MAX - d->n_graphs + graph, ARRIVE, graph, 0, NULL});
}

static struct event take(struct device *d) {
    struct event first = d->heap[0], last = d->heap[--d->n_events];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < d->n_events; at = child) {
        if (child + 1 < d->n_events && is_before(&d->heap[child + 1], &d->heap[child]))
            child++;
        if (!is_before(&d->heap[child], &last))
            break;
        d->heap[at] = d->heap[child];
    }
    d->heap[at] = last;
    return first;
}

/* --- tasks ------------------------------------------------------------------------------- */

static uint32_t graph_of(const struct device *d, const struct lane *lane) {
    return (uint32_t)(lane - d->lanes);
}

static void add_task(uint64_t *tasks, uint32_t task) {
    tasks[task / 64] |= UINT64_C(1) << task % 64;
}

/* Cycles until the next packet may start. */
static uint64_t busy_cycles(const struct device *d, const struct device_task *task,
                            const struct device_packet *packet) {
    if (task->per_inference && !packet->decides)
        return 1;
    double cycles = ceil(packet->bytes * 8.0 * d->board.hz / (task->gbps * 1e9));
    return cycles > task->interval ? (uint64_t)cycles : task->interval;
}

/* The task that a leg needs after `done` others, or -1 if a fork or the end comes first. */
static int32_t task_of(const struct leg *leg, uint32_t done) {
    const struct device_step *step = &leg->lane->graph->steps[leg->step];
    for (uint32_t i = 0; i < done; i++)
        if (step[i].task < 0)
            return -1;
    return step[done].task < 0 ? -1 : step[done].task;
}

static int32_t place_of(const struct instance *instance, uint32_t task) {
    for (uint32_t i = 0; i < instance->length; i++)
        if (instance->servers[i].number == task)
            return (int32_t)i;
    return -1;
}

/* Counts the leading tasks of a leg that an instance runs in one pass, skipping its others. */
static uint32_t part_of(const struct leg *leg, const struct instance *instance) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < instance->length; i++)
        if (task_of(leg, count) == (int32_t)instance->servers[i].number)
            count++;
    return count;
}

static void open_instance(struct device *d, uint32_t region, const uint32_t *chain, uint32_t length,
                          uint32_t owner) {
    struct instance *new = calloc(1, sizeof *new + length * sizeof *new->servers);
    uint64_t *tasks = calloc(d->words, sizeof *tasks);
    uint64_t *slots = calloc(length + 1, sizeof *slots);
    if (new == NULL || tasks == NULL || slots == NULL) {
        free(new);
        free(tasks);
        free(slots);
        d->failed = 1;
        return;
    }
    *new = (struct instance){NULL, region, owner, length, 0, 1, 0, 0, tasks, slots};
    for (uint32_t i = 0; i < length; i++) {
        const struct device_task *task = &d->tasks[chain[i]];
        uint64_t *slot = task->turns ? &slots[length] : &slots[i];
        new->servers[i] = (struct server){task, chain[i], task->credits, slot};
        add_task(tasks, chain[i]);
        d->running[chain[i]]++;
    }
    struct instance **at = &d->instances;
    while (*at != NULL && (*at)->region <= region)
        at = &(*at)->next;
    new->next = *at;
    *at = new;
}

/* Opens what a region is to serve. Tasks that are scheduled one by one share its ports. */
static void open_region(struct device *d, uint32_t number) {
    const struct region *region = &d->regions[number];
    if (d->board.chained)
        open_instance(d, number, region->chain, region->length, region->owner);
    for (uint32_t i = 0; !d->board.chained && i < region->length; i++)
        open_instance(d, number, &region->chain[i], 1, region->owner);
}

static int is_empty(const struct device *d, uint32_t region) {
    for (const struct instance *i = d->instances; i != NULL; i = i->next)
        if (i->region == region && !i->stuck && i->in_use)
            return 0;
    return 1;
}

static void check_drained(struct device *d, uint32_t number) {
    struct region *region = &d->regions[number];
    if (!region->draining || !is_empty(d, number))
        return;
    region->draining = 0;
    /* Loading starts after the last packet has left, so the time of draining adds to it. */
    uint64_t at = region->ready + (d->now - region->since);
    put(d, (struct event){at > d->now ? at : d->now, d->events_made++, OPEN, number,
                          region->version, NULL});
}

static void give_back(struct device *d, struct instance *instance, struct server *server) {
    server->free++;
    instance->in_use--;
    if (!instance->open)
        check_drained(d, instance->region);
}

/* --- turns ------------------------------------------------------------------------------- */

static int are_disjoint(const struct device *d, const uint64_t *a, const uint64_t *b) {
    for (uint32_t i = 0; i < d->words; i++)
        if (a[i] & b[i])
            return 0;
    return 1;
}

static enum card_colour colour_of(const struct device *d, struct lane *lane) {
    const struct device_packet *packet = lane->first->packet;
    if (!d->board.coloured || packet->paid != DEVICE_NEVER)
        return CARD_WITHIN;
    card_share_weigh(&lane->share, d->second, packet->arrived, packet->bytes);
    return card_share_pays(&lane->share, d->second, d->now) ? CARD_WITHIN : CARD_BEYOND;
}

/* How far a packet puts off the turn of its graph: by its time at the task that it takes longest.
 */
static uint64_t turn_of(const struct device *d, const struct leg *leg) {
    const struct device_graph *graph = leg->lane->graph;
    double cost = d->board.by_bytes ? leg->packet->bytes * d->board.wire : 0.0;
    for (uint32_t t = 0; t < d->n_tasks && !d->board.by_bytes; t++) {
        if (!(leg->lane->uses[t / 64] >> t % 64 & 1))
            continue;
        double cycles = (double)busy_cycles(d, &d->tasks[t], leg->packet);
        cycles /= d->running[t] ? d->running[t] : 1;
        cost = cycles > cost ? cycles : cost;
    }
    double turn = cost / graph->weight * TURN_UNIT;
    return turn < (double)MOST_TURN ? (uint64_t)turn : MOST_TURN;
}

/* Lets the bucket pay for a packet, and puts the turn of its graph off. */
static void take_turn(struct device *d, struct leg *leg, enum card_colour colour) {
    struct card_share *share = &leg->lane->share;
    struct device_packet *packet = leg->packet;
    if (d->board.coloured && colour == CARD_WITHIN && packet->paid == DEVICE_NEVER) {
        share->paid = share->owed;
        packet->paid = d->now;
    }
    if (colour == CARD_WITHIN && packet->begun)
        return;
    /* Only who wants the same instance is behind in its turn. */
    for (uint32_t g = 0; g < d->n_graphs; g++)
        if (&d->lanes[g] != leg->lane && !are_disjoint(d, leg->at->tasks, d->lanes[g].wants))
            card_share_pass(&d->lanes[g].share, colour, share->lead[colour]);
    share->lead[colour] = packet->begun ? 0 : turn_of(d, leg);
    packet->beyond |= colour == CARD_BEYOND && !packet->begun;
    packet->begun = 1;
}

/* Grants credits for as many tasks as possible; 0 if the first has none anywhere. */
static int grant(struct device *d, struct leg *leg) {
    struct instance *whole = NULL, *fallback = NULL;
    uint32_t most = 0, longest = 0;
    for (struct instance *i = d->instances; i != NULL; i = i->next) {
        if (!i->open || (i->owner != UINT32_MAX && i->owner != leg->lane->graph->tenant))
            continue;
        uint32_t count = part_of(leg, i), free = 0;
        while (free < count && i->servers[place_of(i, (uint32_t)task_of(leg, free))].free)
            free++;
        /* Among instances with room for as many tasks, the least used comes next. */
        if (count && free == count && (count > most || (count == most && i->used < whole->used))) {
            whole = i;
            most = count;
        }
        if (free && count > longest) {
            fallback = i;
            longest = count;
        }
    }
    struct instance *to = whole != NULL ? whole : fallback;
    if (to == NULL)
        return 0;
    leg->at = to;
    leg->reserved = whole != NULL ? most : 1;
    leg->done = 0;
    leg->last = -1;
    for (uint32_t i = 0; i < leg->reserved; i++)
        to->servers[place_of(to, (uint32_t)task_of(leg, i))].free--;
    to->in_use += leg->reserved;
    to->used++;
    return 1;
}

/* Whether a lane whose turn comes before wants the same tasks, and has no head yet. */
static int is_behind(const struct device *d, const struct lane *lane) {
    for (uint32_t g = 0; g < d->n_graphs; g++) {
        const struct lane *other = &d->lanes[g];
        if (other->first != NULL && other->head_ready > d->now &&
            other->share.lead[CARD_BEYOND] < lane->share.lead[CARD_BEYOND] &&
            !are_disjoint(d, lane->wants, other->wants))
            return 1;
    }
    return 0;
}

/* Fetches the next head of a lane, some cycles later. */
static void fetch(struct device *d, struct lane *lane, enum card_colour colour) {
    int others = 0;
    for (uint32_t g = 0; g < d->n_graphs; g++)
        others |= &d->lanes[g] != lane && d->lanes[g].first != NULL;
    /* Beside others, choosing the first of those beyond takes a cycle more. */
    lane->head_ready = d->now + d->board.head_interval + (colour == CARD_BEYOND && others);
    plan(d, lane->head_ready, FETCH, 0, NULL);
}

/* How far the turn of a lane's head is off; within its guarantee, a packet has one turn for all
 * passes. Beyond it, a later pass ends the turn, as in the card's Verilog. */
static uint64_t lead_of(const struct lane *lane, enum card_colour colour) {
    int has_turn = colour == CARD_WITHIN && lane->first->packet->begun;
    return has_turn ? 0 : lane->share.lead[colour];
}

/* The lane with a head whose turn is first: within its guarantee, then by turn. */
static struct lane *first_lane(struct device *d, enum card_colour *colour) {
    struct lane *best = NULL;
    for (uint32_t g = 0; g < d->n_graphs; g++) {
        struct lane *lane = &d->lanes[g];
        if (!lane->ready)
            continue;
        enum card_colour mine = colour_of(d, lane);
        if (best != NULL &&
            (mine != *colour ? mine > *colour : lead_of(lane, mine) >= lead_of(best, mine)))
            continue;
        best = lane;
        *colour = mine;
    }
    return best;
}

/* Grants credits to waiting packets, until no head can go. Packets of a lane keep their order. */
static void dispatch(struct device *d) {
    for (uint32_t g = 0; g < d->n_graphs; g++)
        d->lanes[g].ready = d->lanes[g].first != NULL && d->lanes[g].head_ready <= d->now;
    enum card_colour colour;
    for (struct lane *lane; (lane = first_lane(d, &colour)) != NULL;) {
        struct leg *leg = lane->first;
        /* A head that cannot go does not hinder others; a credit that comes back dispatches again.
         */
        if ((colour == CARD_BEYOND && is_behind(d, lane)) || !grant(d, leg)) {
            lane->ready = 0;
            continue;
        }
        lane->first = leg->next;
        if (lane->first != NULL)
            lane->first->previous = NULL;
        else
            lane->last = NULL;
        take_turn(d, leg, colour);
        /* The scheduler decides once per interval. */
        uint64_t slot = d->now > d->next_slot ? d->now : d->next_slot;
        d->next_slot = slot + d->board.interval;
        plan(d, slot + d->board.schedule, ENTER, 0, leg);
        lane->ready = lane->first != NULL;
        if (d->board.head_interval > 1) {
            lane->ready = 0;
            fetch(d, lane, colour);
        }
    }
}

/* --- the path of a packet ---------------------------------------------------------------- */

static struct leg *new_leg(struct lane *lane, struct leg *parent, struct device_packet *packet,
                           uint32_t step, uint64_t order) {
    struct leg *leg = lane->unused;
    lane->unused = leg->next;
    *leg = (struct leg){.lane = lane, .packet = packet, .parent = parent};
    leg->order = order;
    leg->step = step;
    return leg;
}

static void end_leg(struct device *d, struct leg *leg);

/* Takes a leg to its next tasks, into its branches, or to its end. */
static void advance(struct device *d, struct leg *leg) {
    struct lane *lane = leg->lane;
    const struct device_graph *graph = lane->graph;
    const struct device_step *step = &graph->steps[leg->step];
    if (step->task == -1) {
        leg->pending = step->branches;
        for (uint32_t b = 0; b < step->branches; b++)
            advance(d, new_leg(lane, leg, leg->packet, graph->starts[step->first + b], leg->order));
        return;
    }
    if (step->task < 0) {
        end_leg(d, leg);
        return;
    }
    /* A packet that returns precedes those that came later. */
    struct leg *before = lane->last;
    while (before != NULL && before->order > leg->order)
        before = before->previous;
    leg->previous = before;
    leg->next = before != NULL ? before->next : lane->first;
    *(leg->next != NULL ? &leg->next->previous : &lane->last) = leg;
    *(before != NULL ? &before->next : &lane->first) = leg;
    memset(lane->wants, 0, d->words * sizeof *lane->wants);
    for (; step->task >= 0; step++)
        add_task(lane->wants, (uint32_t)step->task);
    dispatch(d);
}

static void end_leg(struct device *d, struct leg *leg) {
    struct leg *parent = leg->parent;
    struct lane *lane = leg->lane;
    int lost = leg->lost;
    struct device_packet *packet = leg->packet;
    leg->next = lane->unused;
    lane->unused = leg;
    if (parent == NULL) {
        if (lost)
            packet->fate = DEVICE_CUT_OFF;
        plan(d, d->now + d->board.after, FINISH, graph_of(d, lane), packet);
        return;
    }
    parent->lost |= lost;
    if (--parent->pending)
        return;
    if (parent->lost) {
        end_leg(d, parent);
    } else {
        parent->step++;
        advance(d, parent);
    }
}

/* Takes a leg to its next task of the instance, or out of it. */
static void proceed(struct device *d, struct leg *leg) {
    struct instance *at = leg->at;
    int32_t task = task_of(leg, leg->done);
    int32_t place = task < 0 ? -1 : place_of(at, (uint32_t)task);
    struct server *server = place < 0 ? NULL : &at->servers[place];
    if (server != NULL && leg->done >= leg->reserved) {
        /* A chain passes its tasks in order only; any other order needs a new pass. */
        if (place <= leg->last || !server->free || !d->board.chained) {
            server = NULL;
        } else {
            server->free--;
            at->in_use++;
        }
    }
    if (server == NULL) {
        leg->step += leg->done;
        advance(d, leg);
        return;
    }
    leg->last = place;
    if (at->stuck) {
        plan(d, d->now + d->board.watchdog, CUT, 0, leg);
        return;
    }
    uint64_t busy = busy_cycles(d, server->task, leg->packet);
    uint64_t start = d->now > *server->next_start ? d->now : *server->next_start;
    *server->next_start = start + busy; /* busy for its interval, it holds a packet longer */
    d->region_busy[at->region] += (double)busy * server->task->area;
    d->tenant_work[leg->lane->graph->tenant] += (double)busy * server->task->area;
    plan(d, start + server->task->latency, DONE, 0, leg);
}

static void finish_task(struct device *d, struct leg *leg) {
    struct instance *at = leg->at;
    if (at->stuck) { /* it got stuck while it held the packet */
        plan(d, d->now + d->board.watchdog, CUT, 0, leg);
        return;
    }
    give_back(d, at, &at->servers[leg->last]);
    leg->done++;
    dispatch(d);
    proceed(d, leg);
}

/* Gives back what a leg holds of a stuck instance. */
static void cut_off(struct device *d, struct leg *leg) {
    struct instance *at = leg->at;
    uint32_t end = leg->done < leg->reserved ? leg->reserved : leg->done + 1;
    for (uint32_t i = leg->done; i < end; i++)
        give_back(d, at, &at->servers[place_of(at, (uint32_t)task_of(leg, i))]);
    leg->lost = 1;
    end_leg(d, leg);
}

/* Lets packets in, as the graph's part of the packet store allows. */
static void let_in(struct device *d, struct lane *lane) {
    struct device_counts *count = &lane->count;
    while (count->queued && count->inside < d->board.store) {
        struct device_packet *packet = &lane->graph->packets[lane->next_in++];
        if (packet->fate != DEVICE_QUEUED)
            continue;
        count->queued--;
        count->inside++;
        if (count->inside > count->most_inside)
            count->most_inside = count->inside;
        packet->fate = DEVICE_INSIDE;
        packet->admitted = d->now;
        plan(d, d->now + d->board.before, BEGIN, graph_of(d, lane), packet);
    }
}

static void arrive(struct device *d, struct lane *lane) {
    struct device_counts *count = &lane->count;
    struct device_packet *packet = &lane->graph->packets[count->arrived++];
    if (count->arrived < lane->graph->n_packets)
        plan_arrival(d, packet[1].arrived, graph_of(d, lane));
    packet->fate = DEVICE_DROPPED;
    if (count->queued >= d->board.queue)
        return;
    packet->fate = DEVICE_QUEUED;
    count->queued++;
    if (count->queued > count->most_queued)
        count->most_queued = count->queued;
    let_in(d, lane);
}

static void depart(struct device *d, struct lane *lane, struct device_packet *packet) {
    packet->departed = d->now;
    packet->fate = DEVICE_LEFT;
    lane->count.inside--;
    let_in(d, lane);
}

/* Sends packets whose predecessors have left, so that a graph's packets keep their order. */
static void release(struct device *d, struct lane *lane) {
    struct device_packet *packet;
    for (; lane->next_out < lane->count.arrived; lane->next_out++) {
        packet = &lane->graph->packets[lane->next_out];
        if (packet->fate == DEVICE_DROPPED)
            continue;
        if (!packet->finished)
            return;
        if (packet->fate == DEVICE_CUT_OFF) {
            lane->count.inside--;
            let_in(d, lane);
            continue;
        }
        double start = (double)d->now > d->egress_free ? (double)d->now : d->egress_free;
        d->egress_free = start + (packet->bytes + OVERHEAD) * d->board.wire;
        plan(d, (uint64_t)ceil(start), DEPART, graph_of(d, lane), packet);
    }
}

/* --- the card ---------------------------------------------------------------------------- */

void device_unload(struct device *d, uint32_t region) {
    d->regions[region].version++;
    d->regions[region].draining = 0;
    for (struct instance *i = d->instances; i != NULL; i = i->next) {
        if (i->region != region || !i->open)
            continue;
        i->open = 0;
        for (uint32_t t = 0; t < i->length; t++)
            d->running[i->servers[t].number]--;
    }
}

void device_load(struct device *d, uint32_t region, const uint32_t *chain, uint32_t length,
                 uint32_t owner, uint64_t ready) {
    struct region *to = &d->regions[region];
    uint32_t *copy = calloc(length + 1, sizeof *copy);
    if (copy == NULL) {
        d->failed = 1;
        return;
    }
    memcpy(copy, chain, length * sizeof *copy);
    device_unload(d, region);
    free(to->chain);
    *to = (struct region){copy, length, owner, to->version, 0, ready, d->now};
    if (is_empty(d, region) && ready <= d->now) {
        open_region(d, region);
        dispatch(d);
        return;
    }
    to->draining = 1;
    check_drained(d, region);
}

void device_jam(struct device *d, uint32_t region) {
    for (struct instance *i = d->instances; i != NULL; i = i->next)
        if (i->region == region && i->open)
            i->stuck = 1;
}

void device_rate(struct device *d, uint32_t graph, uint64_t rate) {
    struct card_share *share = &d->lanes[graph].share;
    card_share_change(share, rate, share->burst, d->second, d->now);
}

void device_count(const struct device *d, uint32_t graph, struct device_counts *out) {
    *out = d->lanes[graph].count;
}

void device_busy(const struct device *d, double *regions, double *tenants) {
    memcpy(regions, d->region_busy, d->n_regions * sizeof *regions);
    memcpy(tenants, d->tenant_work, d->n_tenants * sizeof *tenants);
}

enum device_event device_run(struct device *d, uint64_t until, uint64_t *now, uint32_t *which) {
    while (!d->failed && d->n_events && d->heap[0].at < until) {
        struct event event = take(d);
        *now = d->now = event.at;
        struct lane *lane = event.what == OPEN ? NULL : &d->lanes[event.index];
        switch (event.what) {
        case ARRIVE:
            arrive(d, lane);
            break;
        case BEGIN:
            if (lane->use_at <= d->now) {
                lane->use_at = d->now + d->board.monitor;
                put(d, event);
                *which = event.index;
                return DEVICE_USE;
            }
            advance(d, new_leg(lane, NULL, event.of, lane->graph->step, d->orders++));
            break;
        case ENTER:
            proceed(d, event.of);
            break;
        case DONE:
            finish_task(d, event.of);
            break;
        case CUT: {
            const struct instance *at = ((struct leg *)event.of)->at;
            cut_off(d, event.of);
            if (at->open) {
                *which = at->region;
                return DEVICE_STUCK;
            }
            break;
        }
        case FINISH:
            ((struct device_packet *)event.of)->finished = 1;
            release(d, lane);
            break;
        case DEPART:
            depart(d, lane, event.of);
            break;
        case FETCH:
            dispatch(d);
            break;
        case OPEN:
            if (d->regions[event.index].version == event.version) {
                open_region(d, event.index);
                dispatch(d);
            }
            break;
        }
    }
    *now = d->now = until;
    return d->failed ? DEVICE_NO_MEMORY : DEVICE_REACHED;
}

static int open_lane(struct device *d, struct lane *lane, const struct device_graph *graph) {
    uint64_t never = d->board.coloured ? 0 : DEVICE_NEVER;
    uint64_t legs = (uint64_t)d->board.store * (graph->branches + 1);
    lane->graph = graph;
    lane->share.rate = graph->rate;
    lane->share.burst = graph->burst;
    lane->use_at = never;
    lane->uses = calloc(d->words, sizeof *lane->uses);
    lane->wants = calloc(d->words, sizeof *lane->wants);
    lane->pool = calloc(legs, sizeof *lane->pool);
    if (lane->uses == NULL || lane->wants == NULL || lane->pool == NULL)
        return 0;
    for (uint32_t i = 0; i < graph->n_steps; i++)
        if (graph->steps[i].task >= 0)
            add_task(lane->uses, (uint32_t)graph->steps[i].task);
    for (uint64_t i = 0; i < legs; i++) {
        lane->pool[i].next = lane->unused;
        lane->unused = &lane->pool[i];
    }
    if (graph->n_packets)
        plan_arrival(d, graph->packets[0].arrived, graph_of(d, lane));
    return !d->failed;
}

struct device *device_open(const struct device_board *board, const struct device_task *tasks,
                           uint32_t n_tasks, const struct device_graph *graphs, uint32_t n_graphs,
                           uint32_t n_tenants, uint32_t n_regions) {
    struct device *d = calloc(1, sizeof *d);
    if (d == NULL)
        return NULL;
    d->board = *board;
    d->tasks = tasks;
    d->n_tasks = n_tasks;
    d->n_graphs = n_graphs;
    d->n_tenants = n_tenants;
    d->n_regions = n_regions;
    d->words = n_tasks / 64 + 1;
    d->second = (uint64_t)(board->hz + 0.5);
    d->lanes = calloc(n_graphs + 1, sizeof *d->lanes);
    d->regions = calloc(n_regions + 1, sizeof *d->regions);
    d->running = calloc(n_tasks + 1, sizeof *d->running);
    d->region_busy = calloc(n_regions + 1, sizeof *d->region_busy);
    d->tenant_work = calloc(n_tenants + 1, sizeof *d->tenant_work);
    int opened = d->lanes && d->regions && d->running && d->region_busy && d->tenant_work;
    for (uint32_t g = 0; opened && g < n_graphs; g++)
        opened = open_lane(d, &d->lanes[g], &graphs[g]);
    if (!opened) {
        device_close(d);
        return NULL;
    }
    return d;
}

void device_close(struct device *d) {
    if (d == NULL)
        return;
    for (struct instance *i = d->instances, *next; i != NULL; i = next) {
        next = i->next;
        free(i->tasks);
        free(i->slots);
        free(i);
    }
    for (uint32_t g = 0; d->lanes != NULL && g < d->n_graphs; g++) {
        free(d->lanes[g].uses);
        free(d->lanes[g].wants);
        free(d->lanes[g].pool);
    }
    for (uint32_t r = 0; d->regions != NULL && r < d->n_regions; r++)
        free(d->regions[r].chain);
    free(d->lanes);
    free(d->regions);
    free(d->running);
    free(d->region_busy);
    free(d->tenant_work);
    free(d->heap);
    free(d);
}
