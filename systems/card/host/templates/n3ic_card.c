// SPDX-License-Identifier: Apache-2.0
#define _POSIX_C_SOURCE 200809L
#include "n3ic_card.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bnn.h"
#include "card_task.h"
#include "card_turns.h"

#define SECOND 1000000000ull

/* A network in use, or one that admitted frames still need. */
struct model {
    struct bnn *net;
    uint32_t id;
    uint64_t users;
};

enum state { WAITING, RUNNING, DONE };

struct job {
    enum state state;
    uint64_t cookie, arrived_ns;
    uint32_t size; /* of the frame, bytes */
    const struct card_graph *graph;
    struct model *models[CARD_BRANCHES];
    int denied; /* by a packet task of the first branch */
    uint8_t field[CARD_FIELD];
    struct card_answer answer;
    int32_t scores[CARD_SCORES];
};

/* Frames are numbered. Those below `next` run or are done; those below `first` are answered. */
struct tenant {
    struct job jobs[CARD_QUEUE];
    uint64_t first, next, end;
    struct card_share share;
    struct card_counters count;
};

struct card {
    pthread_mutex_t lock;
    pthread_cond_t work; /* a frame is admitted, or the card closes */
    pthread_cond_t idle; /* nothing waits or runs */
    uint64_t busy;       /* frames that wait or run */
    int closing, started;
    uint64_t now_ns;
    struct card_counters wire;
    uint64_t asked[CARD_GRAPHS];
    struct model *models[CARD_NETWORKS];
    void *tasks[CARD_TASKS + 1]; /* states of the packet tasks */
    struct tenant tenants[CARD_TENANTS];
    uint32_t threads;
    pthread_t thread[];
};

const char *card_strerror(int status) {
    static const char *const texts[] = {
        "no error",
        "the frame asks for no graph",
        "no graph has the frame's UID",
        "the graph or network belongs to another tenant",
        "the frame is too short",
        "the tenant's queue is full",
        "a network of the graph is removed",
        "no answer is ready",
        "the weights do not have the network's inputs and classes",
        "out of memory",
        "the rate or the bucket is out of bounds",
        "the packet task has no table",
    };
    int is_known = status >= 0 && (size_t)status < sizeof texts / sizeof *texts;
    return is_known ? texts[status] : "unknown status";
}

/* --- networks -------------------------------------------------------------------------- */

static void free_model(struct model *model) {
    if (model != NULL) {
        bnn_free(model->net);
        free(model);
    }
}

/* Drops a reference, under the lock; returns the network if it was the last one. */
static struct model *release_model(struct model *model) {
    return model != NULL && --model->users == 0 ? model : NULL;
}

static int fits_place(const struct bnn *net, const struct card_network *place) {
    if (bnn_inputs(net) != place->inputs || bnn_classes(net) != place->classes)
        return 0;
    if (place->features == 0)
        return 1;
    if (bnn_features(net) != place->features)
        return 0;
    for (uint32_t i = 0; i < place->features; i++)
        if (strcmp(bnn_feature_name(net, i), place->feature_names[i]) != 0)
            return 0;
    return 1;
}

static uint32_t model_id(const struct bnn *net) {
    char digits[9] = {0};
    memcpy(digits, bnn_model(net), 8);
    return (uint32_t)strtoul(digits, NULL, 16);
}

static int open_model(struct model **out, const struct card_network *place, const void *weights,
                      size_t size) {
    struct bnn *net = NULL;
    int status = bnn_load_blob(&net, weights, size);
    if (status != BNN_OK)
        return status == BNN_NO_MEMORY ? CARD_NO_MEMORY : CARD_BAD_MODEL;
    struct model *model = fits_place(net, place) ? malloc(sizeof *model) : NULL;
    if (model == NULL) {
        int bad = !fits_place(net, place);
        bnn_free(net);
        return bad ? CARD_BAD_MODEL : CARD_NO_MEMORY;
    }
    *model = (struct model){net, model_id(net), 1};
    *out = model;
    return CARD_OK;
}

int card_load(struct card *card, uint32_t caller, uint32_t network, const void *weights,
              size_t size) {
    if (network >= CARD_NETWORKS || (caller != CARD_WIRE && caller != card_networks[network].owner))
        return CARD_FOREIGN;
    struct model *model = NULL;
    int status =
        weights == NULL ? CARD_OK : open_model(&model, &card_networks[network], weights, size);
    if (status != CARD_OK)
        return status;
    pthread_mutex_lock(&card->lock);
    struct model *old = release_model(card->models[network]);
    card->models[network] = model;
    pthread_mutex_unlock(&card->lock);
    free_model(old);
    return CARD_OK;
}

/* --- packet tasks ---------------------------------------------------------------------- */

int card_table(struct card *card, uint32_t caller, uint32_t task, const uint32_t *writes,
               size_t count) {
    if (task >= card_task_count || (caller != CARD_WIRE && caller != card_tasks[task].owner))
        return CARD_FOREIGN;
    if (card_tasks[task].kind->write == NULL)
        return count ? CARD_NO_TABLE : CARD_OK;
    pthread_mutex_lock(&card->lock);
    for (size_t i = 0; i < count; i++)
        card_tasks[task].kind->write(card->tasks[task], writes[2 * i], writes[2 * i + 1]);
    pthread_mutex_unlock(&card->lock);
    return CARD_OK;
}

uint32_t card_task_read(struct card *card, uint32_t task, uint32_t address) {
    if (task >= card_task_count || card_tasks[task].kind->read == NULL)
        return 0;
    pthread_mutex_lock(&card->lock);
    uint32_t word = card_tasks[task].kind->read(card->tasks[task], address);
    pthread_mutex_unlock(&card->lock);
    return word;
}

static int open_tasks(struct card *card) {
    for (uint32_t t = 0; t < card_task_count; t++) {
        const struct card_task *task = &card_tasks[t];
        card->tasks[t] = calloc(1, task->kind->size);
        if (card->tasks[t] == NULL)
            return CARD_NO_MEMORY;
        card_table(card, CARD_WIRE, t, task->writes, task->count);
    }
    return CARD_OK;
}

/* Runs the packet tasks of an admitted frame, under the lock and so in the order of admission. */
static void run_tasks(struct card *card, struct job *job, const uint8_t *frame) {
    const struct card_graph *graph = job->graph;
    uint8_t *head = job->answer.head, copy[CARD_HEAD + 1];
    const size_t own = CARD_HEAD - CARD_HEADERS;
    memcpy(head, frame, CARD_HEADERS);
    memcpy(head + CARD_HEADERS, frame + CARD_OFFSET - own, own);
    memcpy(copy, head, CARD_HEAD);
    for (uint32_t i = 0; i < graph->steps; i++) {
        const struct card_step *step = &graph->step[i];
        if (step->branch != 0) /* there, tasks only read */
            card_tasks[step->task].kind->run(card->tasks[step->task], copy);
        else if (!job->denied)
            job->denied =
                card_tasks[step->task].kind->run(card->tasks[step->task], head) == CARD_DENIED;
    }
}

/* --- ingress --------------------------------------------------------------------------- */

static uint32_t read_u16(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 8 | bytes[1];
}

/* The UID that a frame names, or UINT32_MAX. */
static uint32_t uid_of(const uint8_t *frame, size_t size) {
    switch (CARD_CARRIER) {
    case 0:
        return size >= 20 && read_u16(frame + 12) == 0x2323 ? read_u16(frame + 18) : UINT32_MAX;
    case 1:
        return size >= 18 && read_u16(frame + 12) == 0x8100 && read_u16(frame + 16) == 0x2323
                   ? read_u16(frame + 14) & 0xfff
                   : UINT32_MAX;
    default: /* IPv4 without options, whole, UDP */
        return size >= 38 && read_u16(frame + 12) == 0x0800 && frame[14] == 0x45 &&
                       (read_u16(frame + 20) & 0xbfff) == 0 && frame[23] == 17
                   ? read_u16(frame + 36)
                   : UINT32_MAX;
    }
}

static const struct card_graph *find_graph(uint32_t uid) {
    size_t low = 0, high = CARD_GRAPHS;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (card_graphs[middle].uid < uid)
            low = middle + 1;
        else
            high = middle;
    }
    return low < CARD_GRAPHS && card_graphs[low].uid == uid ? &card_graphs[low] : NULL;
}

/* Weighs a tenant's next frame. */
static void weigh_next(struct tenant *tenant) {
    const struct job *job = &tenant->jobs[tenant->next % CARD_QUEUE];
    card_share_weigh(&tenant->share, SECOND, job->arrived_ns, job->size);
}

/* Sets the time, under the lock; buckets are full at the first call. */
static void set_time(struct card *card, uint64_t now_ns) {
    if (!card->started || (int64_t)(now_ns - card->now_ns) > 0)
        card->now_ns = now_ns;
    for (uint32_t t = 0; !card->started && t < CARD_TENANTS; t++)
        card->tenants[t].share.paid.tick = now_ns;
    card->started = 1;
}

int card_rate(struct card *card, uint32_t caller, uint32_t tenant, uint64_t rate, uint64_t burst,
              uint64_t now_ns) {
    if (caller != CARD_WIRE || tenant >= CARD_TENANTS)
        return CARD_FOREIGN;
    if (rate == 0 || rate > CARD_FASTEST || burst > CARD_DEEPEST)
        return CARD_BAD_RATE;
    struct tenant *mine = &card->tenants[tenant];
    pthread_mutex_lock(&card->lock);
    set_time(card, now_ns);
    card_share_change(&mine->share, rate, burst, SECOND, card->now_ns);
    if (mine->next != mine->end)
        weigh_next(mine);
    pthread_mutex_unlock(&card->lock);
    return CARD_OK;
}

static int admit_frame(struct card *card, const struct card_graph *graph, const uint8_t *frame,
                       size_t size, uint64_t cookie) {
    struct tenant *tenant = &card->tenants[graph->tenant];
    struct card_counters *count = &tenant->count;
    if (size < CARD_OFFSET + graph->input_bytes) {
        count->malformed++;
        return CARD_MALFORMED;
    }
    for (uint32_t b = 0; b < graph->branches; b++)
        if (card->models[graph->networks[b]] == NULL) {
            count->absent++;
            return CARD_ABSENT;
        }
    if (tenant->end - tenant->first == CARD_QUEUE) {
        count->full++;
        return CARD_FULL;
    }
    struct job *job = &tenant->jobs[tenant->end++ % CARD_QUEUE];
    job->state = WAITING;
    job->cookie = cookie;
    job->arrived_ns = card->now_ns;
    job->size = size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
    job->graph = graph;
    /* Each frame keeps its networks alive, so a network can be replaced while frames wait. */
    for (uint32_t b = 0; b < graph->branches; b++) {
        job->models[b] = card->models[graph->networks[b]];
        job->models[b]->users++;
    }
    memcpy(job->field, frame + CARD_OFFSET, graph->input_bytes);
    job->denied = 0;
    if (CARD_HEAD > 0)
        run_tasks(card, job, frame);
    if (tenant->next + 1 == tenant->end)
        weigh_next(tenant);
    count->admitted++;
    card->busy++;
    pthread_cond_signal(&card->work);
    return CARD_OK;
}

int card_submit(struct card *card, uint32_t source, const uint8_t *frame, size_t size,
                uint64_t now_ns, uint64_t cookie) {
    uint32_t uid = uid_of(frame, size);
    const struct card_graph *graph = uid == UINT32_MAX ? NULL : find_graph(uid);
    int own = source < CARD_TENANTS, status;
    pthread_mutex_lock(&card->lock);
    set_time(card, now_ns);
    struct card_counters *count = own ? &card->tenants[source].count : &card->wire;
    if (graph != NULL && (source == CARD_WIRE || source == graph->tenant)) {
        card->asked[graph - card_graphs]++;
        status = admit_frame(card, graph, frame, size, cookie);
    } else if (graph != NULL) {
        count->foreign++;
        status = CARD_FOREIGN;
    } else if (uid == UINT32_MAX) {
        count->other++;
        status = CARD_OTHER;
    } else {
        count->unknown++;
        status = CARD_UNKNOWN;
    }
    pthread_mutex_unlock(&card->lock);
    return status;
}

/* --- a frame --------------------------------------------------------------------------- */

/* Reads the field of a frame as packed input bits, and clears those above the last bit. */
static void read_input(const struct job *job, const struct card_network *place,
                       const struct bnn *net, uint32_t words[CARD_WORDS]) {
    const uint8_t *field = job->field;
    uint32_t size = job->graph->input_bytes;
    if (place->features) {
        uint32_t features[CARD_FIELD / 4 + 1];
        for (uint32_t i = 0; i < place->features; i++)
            features[i] = read_u16(field + 4 * i) << 16 | read_u16(field + 4 * i + 2);
        bnn_encode(net, features, words);
        return;
    }
    uint32_t n_words = bnn_words(net);
    memset(words, 0, n_words * sizeof *words);
    for (uint32_t i = 0; i < size; i++)
        words[i / 4] |= (uint32_t)field[size - 1 - i] << 8 * (i % 4);
    if (place->inputs % 32)
        words[n_words - 1] &= (1u << place->inputs % 32) - 1;
}

/* The class of most branches; ties go to the lowest class. */
static struct card_result majority_result(const struct card_result *results, uint32_t count) {
    uint32_t most = 0, second = 0;
    const struct card_result *winner = NULL;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t votes = 0, earlier = 0;
        for (uint32_t k = 0; k < count; k++) {
            int same = results[k].verdict == results[i].verdict;
            votes += same;
            earlier += same && k < i;
        }
        if (earlier)
            continue;
        if (winner == NULL || votes > most ||
            (votes == most && results[i].verdict < winner->verdict)) {
            second = winner == NULL ? 0 : most;
            most = votes;
            winner = &results[i];
        } else if (votes > second) {
            second = votes;
        }
    }
    return (struct card_result){winner->model, winner->verdict, (int32_t)(most - second)};
}

static void join_results(const struct card_graph *graph, struct card_answer *answer) {
    struct card_result *r = answer->result;
    answer->results = graph->join == 0 ? graph->branches : 1;
    if (graph->join == 1)
        r[0] = graph->branches > 1 ? majority_result(r, graph->branches) : r[0];
    if (graph->join == 2)
        for (uint32_t b = 1; b < graph->branches; b++)
            if (r[b].margin > r[0].margin)
                r[0] = r[b];
}

static int rule_matches(const struct card_rule *rule, const struct card_result *result) {
    if (result->margin < rule->margin ||
        (rule->below != INT32_MAX && result->margin >= rule->below))
        return 0;
    for (uint32_t i = 0; i < rule->n_classes; i++)
        if (rule->classes[i] == result->verdict)
            return 1;
    return rule->n_classes == 0;
}

static void compute_job(struct job *job) {
    const struct card_graph *graph = job->graph;
    struct card_answer *answer = &job->answer;
    int32_t *scores = job->scores;
    memset(scores, 0, sizeof job->scores);
    for (uint32_t b = 0; b < graph->branches; b++) {
        const struct model *model = job->models[b];
        const struct card_network *place = &card_networks[graph->networks[b]];
        uint32_t words[CARD_WORDS], verdict;
        int32_t margin;
        if (b == 0 && job->denied) {
            answer->result[b] = (struct card_result){0, CARD_DENIED, 0};
            scores += place->classes;
            continue;
        }
        read_input(job, place, model->net, words);
        bnn_infer_batch(model->net, words, 1, &verdict, &margin, scores);
        scores += place->classes;
        if (verdict == BNN_SHUNT)
            verdict = CARD_HOST;
        answer->result[b] = (struct card_result){model->id, verdict, margin};
    }
    answer->cookie = job->cookie;
    answer->graph = (uint32_t)(graph - card_graphs);
    answer->action = CARD_FORWARD;
    answer->value = 0;
    join_results(graph, answer);
    for (uint32_t i = 0; i < graph->rules; i++)
        if (rule_matches(&graph->rule[i], &answer->result[0])) {
            answer->action = graph->rule[i].action;
            answer->value = graph->rule[i].value;
            break;
        }
}

/* --- turns ----------------------------------------------------------------------------- */

/* The tenant whose turn is due first among those with a waiting frame of a colour. */
static struct tenant *first_tenant(struct card *card, enum card_colour colour) {
    struct tenant *best = NULL;
    for (uint32_t t = 0; t < CARD_TENANTS; t++) {
        struct tenant *tenant = &card->tenants[t];
        if (tenant->next == tenant->end ||
            card_share_pays(&tenant->share, SECOND, card->now_ns) != (colour == CARD_WITHIN))
            continue;
        if (best == NULL || tenant->share.lead[colour] < best->share.lead[colour])
            best = tenant;
    }
    return best;
}

/* The tenant to serve: what is idle is given away only while no frame within a guarantee waits. */
static struct tenant *next_tenant(struct card *card, enum card_colour *colour) {
    *colour = CARD_WITHIN;
    struct tenant *tenant = first_tenant(card, CARD_WITHIN);
    if (tenant == NULL) {
        *colour = CARD_BEYOND;
        tenant = first_tenant(card, CARD_BEYOND);
    }
    return tenant;
}

/* Computes one frame; the lock is held before and after, but not meanwhile. */
static void run_job(struct card *card, struct tenant *tenant, enum card_colour colour) {
    struct job *job = &tenant->jobs[tenant->next++ % CARD_QUEUE];
    const struct card_graph *graph = job->graph;
    struct card_share *share = &tenant->share;
    for (uint32_t t = 0; t < CARD_TENANTS; t++)
        if (&card->tenants[t] != tenant)
            card_share_pass(&card->tenants[t].share, colour, share->lead[colour]);
    /* Fixed point with 24 fraction bits: the cost is below 2^33, so the product fits 64 bits. */
    share->lead[colour] = (graph->cost << 24) / card_tenants[graph->tenant].weight;
    if (colour == CARD_WITHIN)
        share->paid = share->owed;
    else
        tenant->count.beyond++;
    if (tenant->next != tenant->end)
        weigh_next(tenant);
    job->state = RUNNING;
    pthread_mutex_unlock(&card->lock);
    compute_job(job);
    struct model *unused[CARD_BRANCHES] = {NULL};
    pthread_mutex_lock(&card->lock);
    for (uint32_t b = 0; b < graph->branches; b++)
        unused[b] = release_model(job->models[b]);
    job->state = DONE;
    if (--card->busy == 0)
        pthread_cond_broadcast(&card->idle);
    pthread_mutex_unlock(&card->lock);
    for (uint32_t b = 0; b < graph->branches; b++)
        free_model(unused[b]);
    pthread_mutex_lock(&card->lock);
}

size_t card_work(struct card *card, size_t most) {
    size_t done = 0;
    enum card_colour colour;
    pthread_mutex_lock(&card->lock);
    for (struct tenant *t; done < most && (t = next_tenant(card, &colour)) != NULL; done++)
        run_job(card, t, colour);
    pthread_mutex_unlock(&card->lock);
    return done;
}

static void *work(void *argument) {
    struct card *card = argument;
    pthread_mutex_lock(&card->lock);
    while (!card->closing) {
        enum card_colour colour;
        struct tenant *tenant = next_tenant(card, &colour);
        if (tenant == NULL)
            pthread_cond_wait(&card->work, &card->lock);
        else
            run_job(card, tenant, colour);
    }
    pthread_mutex_unlock(&card->lock);
    return NULL;
}

void card_wait(struct card *card) {
    if (card->threads == 0)
        card_work(card, SIZE_MAX);
    pthread_mutex_lock(&card->lock);
    while (card->busy)
        pthread_cond_wait(&card->idle, &card->lock);
    pthread_mutex_unlock(&card->lock);
}

int card_next(struct card *card, uint32_t tenant, struct card_answer *out, int32_t *scores) {
    if (tenant >= CARD_TENANTS)
        return CARD_EMPTY;
    struct tenant *mine = &card->tenants[tenant];
    int status = CARD_EMPTY;
    pthread_mutex_lock(&card->lock);
    struct job *job = &mine->jobs[mine->first % CARD_QUEUE];
    if (mine->first != mine->end && job->state == DONE) {
        *out = job->answer;
        if (scores != NULL)
            memcpy(scores, job->scores, sizeof job->scores);
        mine->first++;
        mine->count.answered++;
        status = CARD_OK;
    }
    pthread_mutex_unlock(&card->lock);
    return status;
}

/* Writes the low `bytes` bytes of a value, the highest first. */
static void write_big_endian(uint8_t *at, uint32_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
}

void card_write(const struct card_answer *answer, uint8_t *frame) {
    const size_t own = CARD_HEAD - CARD_HEADERS;
    if (CARD_HEAD > 0) {
        memcpy(frame, answer->head, CARD_HEADERS);
        memcpy(frame + CARD_OFFSET - own, answer->head + CARD_HEADERS, own);
    }
    memset(frame + CARD_RESULT_AT, 0, CARD_OFFSET - own - CARD_RESULT_AT);
    for (uint32_t i = 0; i < answer->results; i++) {
        uint8_t *at = frame + CARD_RESULT_AT + 10 * i;
        write_big_endian(at, answer->result[i].model, 4);
        write_big_endian(at + 4, answer->result[i].verdict, 2);
        write_big_endian(at + 6, (uint32_t)answer->result[i].margin, 4);
    }
    if (CARD_CARRIER == 2)
        write_big_endian(frame + 40, 0, 2); /* UDP without a checksum */
    if (answer->action == CARD_MARK && read_u16(frame + 12) == 0x0800) {
        /* RFC 1624: subtract the old word from the header's checksum, and add the new one. */
        uint32_t old = read_u16(frame + 14), sum = ~read_u16(frame + 24) & 0xffff;
        frame[15] = (uint8_t)(answer->value << 2 | (frame[15] & 3));
        sum += (~old & 0xffff) + read_u16(frame + 14);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        write_big_endian(frame + 24, ~sum & 0xffff, 2);
    }
}

void card_count(struct card *card, uint32_t tenant, struct card_counters *out) {
    pthread_mutex_lock(&card->lock);
    *out = tenant < CARD_TENANTS ? card->tenants[tenant].count : card->wire;
    pthread_mutex_unlock(&card->lock);
}

uint64_t card_asked(struct card *card, uint32_t graph) {
    pthread_mutex_lock(&card->lock);
    uint64_t asked = graph < CARD_GRAPHS ? card->asked[graph] : 0;
    pthread_mutex_unlock(&card->lock);
    return asked;
}

/* --- the card -------------------------------------------------------------------------- */

int card_open(struct card **out, uint32_t threads) {
    if (threads > 1024)
        threads = 1024;
    struct card *card = calloc(1, sizeof *card + threads * sizeof *card->thread);
    if (card == NULL)
        return CARD_NO_MEMORY;
    pthread_mutex_init(&card->lock, NULL);
    pthread_cond_init(&card->work, NULL);
    pthread_cond_init(&card->idle, NULL);
    for (uint32_t t = 0; t < CARD_TENANTS; t++) {
        card->tenants[t].share.rate = card_tenants[t].rate;
        card->tenants[t].share.burst = card_tenants[t].burst;
    }
    int status = open_tasks(card);
    if (status != CARD_OK) {
        card_close(card);
        return status;
    }
    for (uint32_t n = 0; n < CARD_NETWORKS; n++) {
        const struct card_network *place = &card_networks[n];
        status = open_model(&card->models[n], place, place->weights, place->size);
        if (status != CARD_OK) {
            card_close(card);
            return status;
        }
    }
    while (card->threads < threads) {
        if (pthread_create(&card->thread[card->threads], NULL, work, card) != 0) {
            card_close(card);
            return CARD_NO_MEMORY;
        }
        card->threads++;
    }
    *out = card;
    return CARD_OK;
}

void card_close(struct card *card) {
    if (card == NULL)
        return;
    pthread_mutex_lock(&card->lock);
    card->closing = 1;
    pthread_cond_broadcast(&card->work);
    pthread_mutex_unlock(&card->lock);
    for (uint32_t i = 0; i < card->threads; i++)
        pthread_join(card->thread[i], NULL);
    for (uint32_t t = 0; t < CARD_TENANTS; t++) {
        struct tenant *tenant = &card->tenants[t];
        for (; tenant->next != tenant->end; tenant->next++) {
            struct job *job = &tenant->jobs[tenant->next % CARD_QUEUE];
            for (uint32_t b = 0; b < job->graph->branches; b++)
                free_model(release_model(job->models[b]));
        }
    }
    for (uint32_t n = 0; n < CARD_NETWORKS; n++)
        free_model(release_model(card->models[n]));
    for (uint32_t t = 0; t < card_task_count; t++)
        free(card->tasks[t]);
    pthread_cond_destroy(&card->idle);
    pthread_cond_destroy(&card->work);
    pthread_mutex_destroy(&card->lock);
    free(card);
}
