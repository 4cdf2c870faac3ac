// SPDX-License-Identifier: Apache-2.0
/*
 * card-exec: a card of several tenants as a filter of captures.
 *
 * Reads a capture (pcap, Ethernet) from standard input, answers the frames that name a graph, and
 * writes all frames that are not dropped to standard output. Commands change networks: a FIFO's run
 * while frames flow, a file's before them. A line is one command: `load NETWORK FILE`,
 * `remove NETWORK`, `table TASK FILE` (pairs of hexadecimal addresses and words of a packet task),
 * or `tell FILE`, which writes the outcomes of the commands before it into an
 * existing file.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "n3ic_card.h"

enum { LONGEST = 1 << 16, LARGEST_WEIGHTS = 1 << 28, LARGEST_TABLE = 1 << 20 };

/* A frame of a capture: its record's header, and its bytes. */
struct frame {
    uint32_t header[4];
    uint8_t bytes[];
};

struct control {
    struct card *card;
    const char *path;
    char outcomes[8192]; /* of the commands since the last `tell` */
    size_t length;
};

static int report_error(const char *what, const char *why) {
    fprintf(stderr, "card-exec: %s: %s\n", what, why);
    return 1;
}

/* --- control --------------------------------------------------------------------------- */

static void *read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = NULL;
    if (file == NULL)
        return NULL;
    long length = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (length > 0 && length <= LARGEST_WEIGHTS && fseek(file, 0, SEEK_SET) == 0 &&
        (bytes = malloc((size_t)length)) != NULL &&
        fread(bytes, 1, (size_t)length, file) != (size_t)length) {
        free(bytes);
        bytes = NULL;
    }
    *size = (size_t)length;
    fclose(file);
    return bytes;
}

/* Prints the outcome of a command, and stores it for the next `tell`. */
static void record_outcome(struct control *control, const char *verb, const char *name,
                           const char *why) {
    char *at = control->outcomes + control->length;
    size_t room = sizeof control->outcomes - control->length;
    int written = snprintf(at, room, "%s %s: %s\n", verb, name, why);
    if (written > 0 && (size_t)written < room)
        control->length += (size_t)written;
    fprintf(stderr, "card-exec: %s %s: %s\n", verb, name, why);
}

/* Runs `tell`: writes the stored outcomes into an existing file. */
static void write_outcomes(struct control *control, const char *path) {
    int file = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (file < 0 || dprintf(file, "%.*send\n", (int)control->length, control->outcomes) < 0)
        report_error(path, strerror(errno));
    if (file >= 0)
        close(file);
    control->length = 0;
}

/* Runs `table`: writes a file's words into the table of a packet task, all at once. */
static void write_table(struct control *control, const char *name, const char *path) {
    uint32_t task = 0, *writes = NULL;
    while (task < card_task_count && strcmp(card_tasks[task].name, name) != 0)
        task++;
    FILE *file = task < card_task_count ? fopen(path, "r") : NULL;
    size_t count = 0;
    unsigned address, word;
    int got = EOF;
    while (file != NULL && (got = fscanf(file, "%x %x", &address, &word)) == 2 &&
           count < LARGEST_TABLE) {
        uint32_t *more = realloc(writes, (count + 1) * 2 * sizeof *writes);
        if (more == NULL)
            break;
        writes = more;
        writes[2 * count] = address;
        writes[2 * count++ + 1] = word;
    }
    if (file == NULL || got != EOF || count == 0)
        record_outcome(control, "table", name, "no such task, or no file of its words");
    else {
        int status = card_table(control->card, CARD_WIRE, task, writes, count);
        record_outcome(control, "table", name, status ? card_strerror(status) : "done");
    }
    if (file != NULL)
        fclose(file);
    free(writes);
}

static void run_command(struct control *control, char *line) {
    char *rest = NULL, *verb = strtok_r(line, " \n", &rest);
    if (verb == NULL)
        return;
    int is_tell = strcmp(verb, "tell") == 0;
    char *name = strtok_r(NULL, is_tell ? "\n" : " \n", &rest);
    char *path = strtok_r(NULL, "\n", &rest);
    int load = strcmp(verb, "load") == 0 && path != NULL;
    if (strcmp(verb, "table") == 0 && path != NULL) {
        write_table(control, name, path);
        return;
    }
    if (name == NULL || (!load && !is_tell && strcmp(verb, "remove") != 0)) {
        record_outcome(control, verb, "?",
                       "expected 'load NETWORK FILE', 'remove NETWORK', 'table TASK FILE' or "
                       "'tell FILE'");
        return;
    }
    if (is_tell) {
        write_outcomes(control, name);
        return;
    }
    uint32_t network = 0;
    while (network < CARD_NETWORKS && strcmp(card_networks[network].name, name) != 0)
        network++;
    if (network == CARD_NETWORKS) {
        record_outcome(control, verb, name, "no such network");
        return;
    }
    size_t size = 0;
    void *weights = load ? read_file(path, &size) : NULL;
    if (load && weights == NULL) {
        record_outcome(control, verb, name,
                       "the file of weights cannot be read, or its size is not 1 byte to 256 MiB");
        return;
    }
    int status = card_load(control->card, CARD_WIRE, network, weights, size);
    record_outcome(control, verb, name, status ? card_strerror(status) : "done");
    free(weights);
}

static int run_commands(struct control *control) {
    FILE *file = fopen(control->path, "r");
    if (file == NULL)
        return report_error(control->path, strerror(errno));
    char line[4400];
    while (fgets(line, sizeof line, file) != NULL)
        run_command(control, line);
    fclose(file);
    return 0;
}

/* A FIFO ends when its last writer closes it, so it is opened again for the next one. */
static void *watch_commands(void *argument) {
    while (run_commands(argument) == 0)
        ;
    return NULL;
}

/* --- frames ---------------------------------------------------------------------------- */

/* Writes a frame to standard output unless it is dropped, and frees it. */
static void write_frame(struct frame *frame, int dropped) {
    if (!dropped) {
        fwrite(frame->header, sizeof frame->header, 1, stdout);
        fwrite(frame->bytes, 1, frame->header[2], stdout);
    }
    free(frame);
}

/* Writes the answers that are ready, each tenant's in its order. */
static void write_answers(struct card *card) {
    struct card_answer answer;
    for (uint32_t t = 0; t < CARD_TENANTS; t++)
        while (card_next(card, t, &answer, NULL) == CARD_OK) {
            struct frame *frame = (struct frame *)(uintptr_t)answer.cookie;
            card_write(&answer, frame->bytes);
            write_frame(frame, answer.action == CARD_DROP);
        }
}

static int process_capture(struct card *card, uint32_t source) {
    uint32_t head[6], record[4];
    if (fread(head, sizeof head, 1, stdin) != 1 ||
        (head[0] != 0xa1b2c3d4u && head[0] != 0xa1b23c4du) || (head[5] & 0xffff) != 1)
        return report_error("standard input",
                            "expected a pcap capture of Ethernet in this machine's byte order");
    uint64_t unit = head[0] == 0xa1b2c3d4u ? 1000 : 1;
    fwrite(head, sizeof head, 1, stdout);
    while (fread(record, sizeof record, 1, stdin) == 1) {
        struct frame *frame = record[2] <= LONGEST ? malloc(sizeof *frame + record[2]) : NULL;
        if (frame == NULL || fread(frame->bytes, 1, record[2], stdin) != record[2]) {
            free(frame);
            return report_error(
                "standard input",
                "expected whole frames of at most 65536 bytes; the capture is damaged");
        }
        memcpy(frame->header, record, sizeof record);
        uint64_t now_ns = record[0] * 1000000000ull + record[1] * unit;
        int status;
        while ((status = card_submit(card, source, frame->bytes, record[2], now_ns,
                                     (uintptr_t)frame)) == CARD_FULL) {
            write_answers(card); /* a capture can wait, where a card would drop */
            nanosleep(&(struct timespec){0, 20000}, NULL);
        }
        if (status != CARD_OK) /* other traffic passes, refused requests are dropped */
            write_frame(frame, status != CARD_OTHER && status != CARD_UNKNOWN);
        write_answers(card);
    }
    card_wait(card);
    write_answers(card);
    return fflush(stdout) || ferror(stdout) ? report_error("standard output", strerror(errno)) : 0;
}

static void print_counters(struct card *card) {
    fprintf(stderr,
            "tenant,admitted,answered,beyond,other,unknown,foreign,malformed,full,absent\n");
    for (uint32_t t = 0; t <= CARD_TENANTS; t++) {
        struct card_counters c;
        card_count(card, t < CARD_TENANTS ? t : CARD_WIRE, &c);
        fprintf(stderr, "%s", t < CARD_TENANTS ? card_tenants[t].name : "(wire)");
        const uint64_t values[] = {c.admitted, c.answered,  c.beyond, c.other, c.unknown,
                                   c.foreign,  c.malformed, c.full,   c.absent};
        for (size_t i = 0; i < sizeof values / sizeof *values; i++)
            fprintf(stderr, ",%llu", (unsigned long long)values[i]);
        fprintf(stderr, "\n");
    }
}

int main(int argc, char **argv) {
    uint32_t threads = 1, source = CARD_WIRE;
    struct control control = {0};
    for (int option; (option = getopt(argc, argv, "t:s:c:")) != -1;)
        switch (option) {
        case 't':
            threads = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 's':
            for (source = 0; source < CARD_TENANTS; source++)
                if (strcmp(card_tenants[source].name, optarg) == 0)
                    break;
            if (source == CARD_TENANTS)
                return report_error(optarg, "the card has no tenant of this name");
            break;
        case 'c':
            control.path = optarg;
            break;
        default:
            fprintf(
                stderr,
                "usage: card-exec [-t THREADS] [-s TENANT] [-c CONTROL] < IN.pcap > OUT.pcap\n"
                "-s: the tenant whose port the frames come from; without it, they come from the "
                "wire\n"
                "-c: a file or FIFO of commands: load NETWORK FILE, remove NETWORK, table TASK "
                "FILE, tell FILE;\n"
                "    a file's run before the frames, a FIFO's among them\n");
            return 2;
        }
    int status = card_open(&control.card, threads ? threads : 1);
    if (status != CARD_OK)
        return report_error("the card", card_strerror(status));
    struct stat control_file;
    if (control.path != NULL && stat(control.path, &control_file) != 0)
        return report_error(control.path, strerror(errno));
    pthread_t thread;
    if (control.path != NULL && !S_ISFIFO(control_file.st_mode)) {
        if (run_commands(&control) != 0)
            return 1;
    } else if (control.path != NULL &&
               pthread_create(&thread, NULL, watch_commands, &control) != 0) {
        return report_error(control.path, "no thread could be started for its commands");
    }
    int status_of_run = process_capture(control.card, source);
    print_counters(control.card);
    exit(status_of_run); /* the control thread may wait at its FIFO */
}
