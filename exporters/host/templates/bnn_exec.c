// SPDX-License-Identifier: Apache-2.0
/*
 * bnn-exec: classifies flow records from a file or from standard input, in batches.
 *
 * Reads CSV with a header that names the features; other columns are ignored. With -f it reads
 * binary rows of features, with -p binary rows of packed input bits, both in little-endian 32-bit
 * words. Numbers of a CSV table are the integers of a NIC, or are in the data set's source units:
 * the table's first line or --units says which. Writes CSV: class index, class name, margin. A flow
 * whose margin is below the network's threshold has the index -1 and the name shunt.
 */
#define _POSIX_C_SOURCE 200809L

#include "bnn.h"

#include <errno.h>
#include <float.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNITS_KEY "n3ic-units:"
#define BLANKS " \t"
#define NIC_LIMIT 4294967296.0             /* 2^32 */
#define SOURCE_LIMIT 9223372036854775808.0 /* 2^63, as in n3ic predict */

#define MAX_LINE ((size_t)1 << 20)
#define MAX_COLUMNS 65536u
#define MAX_BLOB ((size_t)1 << 28)

enum { EXIT_INPUT = 1, EXIT_USAGE = 2 };
enum form { FORM_CSV, FORM_FEATURES, FORM_PACKED };
enum units { UNITS_UNKNOWN, UNITS_NIC, UNITS_SOURCE };

/* The units by name, as the table and the command line write them. */
static const char *const units_name[] = {"nic or source", "nic", "source"};

static const char *program = "bnn-exec";

static const char usage[] =
    "usage: bnn-exec [options] [FILE]\n"
    "Classify the flow records in FILE, or in standard input where FILE is - or missing.\n"
    "\n"
    "  -f         binary records: one little-endian 32-bit word a feature\n"
    "  -p         binary records: packed input bits, little-endian 32-bit words\n"
    "  -u UNITS   of a CSV table, also --units: nic (the integers that a NIC computes) or\n"
    "             source (as the data set has them)\n"
    "  -w BLOB    weights from this file, not those compiled in\n"
    "  -k NAME    kernel to use (see -l)\n"
    "  -n ROWS    rows in a batch, 1 to 1000000 (default 10000)\n"
    "  -s         write the scores as well\n"
    "  -l         list kernels, the shunting threshold, features and classes, and end\n"
    "  -h         this text\n"
    "\n"
    "Without -f or -p the records are CSV with a header that names the features. A line before\n"
    "the header, # " UNITS_KEY " nic or source, tells the units in place of -u.\n";

/* --- errors ---------------------------------------------------------------------------- */

static void fail_memory(void) {
    fprintf(stderr, "%s: out of memory\n", program);
    exit(EXIT_INPUT);
}

/* A reader that closed the pipe early (head, less) is no error. */
static void fail_write(void) {
    if (errno == EPIPE) {
        _exit(0);
    }
    fprintf(stderr, "%s: cannot write: %s\n", program, strerror(errno));
    exit(EXIT_INPUT);
}

/* Writes a name to a terminal, with a question mark for each control character. */
static void write_name(FILE *to, const char *text) {
    for (; *text; text++) {
        const unsigned char byte = (unsigned char)*text;
        const unsigned char next = (unsigned char)text[1];
        if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {
            text++; /* U+0080 to U+009F in UTF-8 */
            putc('?', to);
        } else {
            putc(byte < 0x20 || byte == 0x7f ? '?' : byte, to);
        }
    }
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) {
        fail_memory();
    }
    return memory;
}

/* --- input ----------------------------------------------------------------------------- */

struct input {
    FILE *stream;
    const char *name;
    char *text; /* the current line */
    size_t capacity;
    uintmax_t line;
};

static void fail_read(const struct input *in) {
    fprintf(stderr, "%s: %s: cannot read: %s\n", program, in->name, strerror(errno));
    exit(EXIT_INPUT);
}

/* Next line without its end, or NULL at the end of the input. *length counts zero bytes too. */
static char *next_line(struct input *in, size_t *length) {
    size_t n = 0;
    in->line++;
    for (;;) {
        const int c = getc_unlocked(in->stream);
        if (c == EOF) {
            if (ferror(in->stream)) {
                fail_read(in);
            }
            if (!n) {
                return NULL;
            }
            break;
        }
        if (c == '\n') {
            break;
        }
        if (n == MAX_LINE) {
            fprintf(stderr, "%s: %s: line %" PRIuMAX ": longer than %zu bytes\n", program, in->name,
                    in->line, MAX_LINE);
            exit(EXIT_INPUT);
        }
        if (n + 1 >= in->capacity) {
            in->capacity = in->capacity ? 2 * in->capacity : 4096;
            char *text = realloc(in->text, in->capacity);
            if (!text) {
                fail_memory();
            }
            in->text = text;
        }
        in->text[n++] = (char)c;
    }
    if (!in->capacity) {
        in->capacity = 4096;
        in->text = allocate(in->capacity, 1);
    }
    if (n && in->text[n - 1] == '\r') {
        n--;
    }
    in->text[n] = '\0';
    *length = n;
    return in->text;
}

/*
 * Next cell of a CSV line, unquoted in place; *at moves past it, to NULL after the last one.
 * Returns NULL for a quote that does not end, or text after one.
 */
static char *next_cell(char **at) {
    char *start = *at;
    if (*start == '"') {
        char *from = start + 1;
        char *to = start;
        for (; *from && (*from != '"' || from[1] == '"'); from++) {
            from += *from == '"';
            *to++ = *from;
        }
        if (*from != '"' || (from[1] && from[1] != ',')) {
            return NULL;
        }
        *at = from[1] ? from + 2 : NULL;
        *to = '\0';
        return start;
    }
    char *end = start + strcspn(start, ",");
    *at = *end ? end + 1 : NULL;
    *end = '\0';
    return start;
}

/* Parses a number. Returns what is wrong with it, or NULL. */
static const char *parse_number(const char *text, uint32_t *value) {
    uint64_t n = 0;
    while (*text == ' ' || *text == '\t') {
        text++;
    }
    if (!*text) {
        return "a number is missing";
    }
    if (*text == '-') {
        return "negative number";
    }
    const char *start = text;
    for (; *text >= '0' && *text <= '9'; text++) {
        n = n * 10 + (uint64_t)(*text - '0');
        if (n > UINT32_MAX) {
            return "larger than 4294967295";
        }
    }
    const int has_digits = text > start;
    while (*text == ' ' || *text == '\t') {
        text++;
    }
    if (*text || !has_digits) {
        return "not an unsigned integer";
    }
    *value = (uint32_t)n;
    return NULL;
}

/* Parses a decimal number. Returns what is wrong with it, or NULL. */
static const char *parse_decimal(const char *text, double *value) {
    text += strspn(text, BLANKS);
    if (!*text) {
        return "a number is missing";
    }
    /* strtod() also knows hexadecimal numbers, infinity and NaN. */
    const size_t length = strspn(text, "0123456789+-.eE");
    char *end = NULL;
    *value = strtod(text, &end);
    if (end != text + length || !length || text[length + strspn(text + length, BLANKS)]) {
        return "not a number";
    }
    return *value >= -DBL_MAX && *value <= DBL_MAX ? NULL : "not a finite number";
}

/* Parses an integer, also one written as 7.0 or 7e0. Returns what is wrong with it, or NULL. */
static const char *parse_whole(const char *text, double limit, uint32_t *value) {
    double decimal = 0;
    if (!parse_number(text, value)) {
        return NULL;
    }
    const char *wrong = parse_decimal(text, &decimal);
    if (wrong) {
        return wrong;
    }
    if (decimal < 0) {
        return "negative number";
    }
    if (decimal >= limit) {
        return limit > NIC_LIMIT ? "2^63 or more" : "larger than 4294967295";
    }
    const uint64_t whole = (uint64_t)decimal;
    *value = whole < UINT32_MAX ? (uint32_t)whole : UINT32_MAX;
    return (double)whole < decimal ? "not an integer" : NULL;
}

static enum units parse_units(const char *text) {
    if (strcmp(text, "nic") == 0) {
        return UNITS_NIC;
    }
    return strcmp(text, "source") == 0 ? UNITS_SOURCE : UNITS_UNKNOWN;
}

/* The feature that each column holds; UINT32_MAX for a column to ignore. */
struct columns {
    uint32_t *feature;
    uint32_t count;
};

static void fail_cell(const struct input *in, uint32_t column, const char *what) {
    fprintf(stderr, "%s: %s: line %" PRIuMAX ", column %" PRIu32 ": %s\n", program, in->name,
            in->line, column + 1, what);
    exit(EXIT_INPUT);
}

static void fail_empty(const struct input *in) {
    fprintf(stderr, "%s: %s: the input is empty; expected a header with the features' names\n",
            program, in->name);
    exit(EXIT_INPUT);
}

/* The units that a line declares, without blanks at its end; NULL for any other line. */
static char *declared_units(char *line) {
    if (*line != '#') {
        return NULL;
    }
    line += 1 + strspn(line + 1, BLANKS);
    if (strncmp(line, UNITS_KEY, strlen(UNITS_KEY)) != 0) {
        return NULL;
    }
    line += strlen(UNITS_KEY);
    line += strspn(line, BLANKS);
    for (char *end = line + strlen(line); end > line && strchr(BLANKS, end[-1]);) {
        *--end = '\0';
    }
    return line;
}

static int is_scaled(const struct bnn *net, uint32_t feature) {
    return bnn_scale(net, feature) < 1 || bnn_scale(net, feature) > 1;
}

static int has_scales(const struct bnn *net) {
    for (uint32_t i = 0; i < bnn_features(net); i++) {
        if (is_scaled(net, i)) {
            return 1;
        }
    }
    return 0;
}

/*
 * Returns the header's line. Sets *units to those that the line above it declares; it is an error
 * if they contradict the option. If no feature has a scale, both units are the same.
 */
static char *read_units(struct input *in, const struct bnn *net, enum units *units) {
    size_t length = 0;
    char *line = next_line(in, &length);
    if (!line) {
        fail_empty(in);
    }
    if (strncmp(line, "\xef\xbb\xbf", 3) == 0) {
        line += 3;
    }
    const char *declaration = declared_units(line);
    if (!declaration) {
        if (*units == UNITS_UNKNOWN && !has_scales(net)) {
            *units = UNITS_SOURCE;
        }
        if (*units == UNITS_UNKNOWN) {
            fprintf(stderr,
                    "%s: %s: the units of this table are not known: run with --units nic (the "
                    "integers that a NIC computes) or --units source (as the data set has them)\n",
                    program, in->name);
            exit(EXIT_INPUT);
        }
        return line;
    }
    const enum units match = parse_units(declaration);
    if (match == UNITS_UNKNOWN || (*units != UNITS_UNKNOWN && *units != match)) {
        fprintf(stderr, "%s: %s: line 1 says %s, expected %s\n", program, in->name,
                match == UNITS_UNKNOWN ? "other units" : units_name[match], units_name[*units]);
        exit(EXIT_INPUT);
    }
    *units = match;
    line = next_line(in, &length);
    if (!line) {
        fail_empty(in);
    }
    return line;
}

static void read_header(struct input *in, const struct bnn *net, struct columns *columns,
                        enum units *units) {
    char *at = read_units(in, net, units);
    const uint32_t n_features = bnn_features(net);
    uint8_t *occurrences = allocate(n_features, 1);
    uint32_t capacity = 0;
    while (at) {
        if (columns->count == MAX_COLUMNS) {
            fail_cell(in, columns->count, "too many columns");
        }
        if (columns->count == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            uint32_t *feature = realloc(columns->feature, capacity * sizeof *feature);
            if (!feature) {
                fail_memory();
            }
            columns->feature = feature;
        }
        const char *cell = next_cell(&at);
        if (!cell) {
            fail_cell(in, columns->count, "a quoted name does not end");
        }
        uint32_t match = UINT32_MAX;
        for (uint32_t i = 0; i < n_features && match == UINT32_MAX; i++) {
            if (strcmp(bnn_feature_name(net, i), cell) == 0) {
                match = i;
            }
        }
        if (match != UINT32_MAX && occurrences[match]++) {
            fail_cell(in, columns->count, "this feature stands in the header twice");
        }
        columns->feature[columns->count++] = match;
    }
    for (uint32_t i = 0; i < n_features; i++) {
        if (!occurrences[i]) {
            fprintf(stderr, "%s: %s: the header has no column named ", program, in->name);
            write_name(stderr, bnn_feature_name(net, i));
            putc('\n', stderr);
            exit(EXIT_INPUT);
        }
    }
    free(occurrences);
}

/* Parses a cell to the feature's integer. Returns what is wrong with it, or NULL. */
static const char *parse_cell(const struct bnn *net, uint32_t feature, enum units units,
                              const char *cell, uint32_t *value) {
    double decimal = 0;
    if (units == UNITS_NIC) {
        return parse_whole(cell, NIC_LIMIT, value);
    }
    if (!is_scaled(net, feature)) {
        return parse_whole(cell, SOURCE_LIMIT, value);
    }
    const char *wrong = parse_decimal(cell, &decimal);
    *value = wrong ? 0 : bnn_integer(net, feature, decimal);
    return wrong;
}

/* Reads at most `limit` rows of features. Returns their number, 0 at the end of the input. */
static size_t read_csv(struct input *in, const struct bnn *net, const struct columns *columns,
                       enum units units, uint32_t *rows, size_t limit) {
    const uint32_t n_features = bnn_features(net);
    size_t n = 0;
    while (n < limit) {
        size_t length = 0;
        char *line = next_line(in, &length);
        if (!line) {
            break;
        }
        if (!length) {
            continue;
        }
        if (memchr(line, 0, length)) {
            fail_cell(in, 0, "a zero byte: this is not CSV");
        }
        char *at = line;
        uint32_t column = 0;
        int extra = 0;
        for (; at; column++) {
            const char *cell = next_cell(&at);
            if (!cell) {
                fail_cell(in, column, "a quoted value does not end");
            }
            if (column >= columns->count) {
                extra = 1;
                break;
            }
            const uint32_t feature = columns->feature[column];
            if (feature != UINT32_MAX) {
                uint32_t *value = &rows[n * n_features + feature];
                const char *wrong = parse_cell(net, feature, units, cell, value);
                if (wrong) {
                    fail_cell(in, column, wrong);
                }
            }
        }
        if (column != columns->count || extra) {
            fprintf(stderr,
                    "%s: %s: line %" PRIuMAX ": %s than the %" PRIu32 " columns of the header\n",
                    program, in->name, in->line, column < columns->count ? "fewer" : "more",
                    columns->count);
            exit(EXIT_INPUT);
        }
        n++;
    }
    return n;
}

/* Reads at most `limit` records of `width` little-endian words. Returns their number, 0 at the end
 * of the input. */
static size_t read_words(struct input *in, uint32_t width, uint32_t *rows, size_t limit) {
    uint8_t *bytes = (uint8_t *)rows;
    const size_t record = (size_t)width * 4;
    const size_t got = fread(bytes, 1, record * limit, in->stream);
    if (got < record * limit && ferror(in->stream)) {
        fail_read(in);
    }
    if (got % record) {
        fprintf(stderr, "%s: %s: record %" PRIuMAX " is cut short: %zu of %zu bytes\n", program,
                in->name, in->line + got / record + 1, got % record, record);
        exit(EXIT_INPUT);
    }
    in->line += got / record;
    /* In place: a word's bytes are all read before the word is written. */
    for (size_t i = 0; i < got / 4; i++) {
        const uint8_t *b = bytes + 4 * i;
        rows[i] = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    }
    return got / record;
}

static void check_padding(const struct input *in, const struct bnn *net, const uint32_t *words,
                          size_t n) {
    const uint32_t used = bnn_inputs(net) % 32;
    const uint32_t width = bnn_words(net);
    for (size_t r = 0; used && r < n; r++) {
        if (words[r * width + width - 1] >> used) {
            fprintf(stderr,
                    "%s: %s: record %" PRIuMAX ": a bit above the %" PRIu32 " input bits is set\n",
                    program, in->name, in->line - n + r + 1, bnn_inputs(net));
            exit(EXIT_INPUT);
        }
    }
}

/* --- output ---------------------------------------------------------------------------- */

/* Writes a cell of CSV, with an apostrophe before text that a spreadsheet would run as a formula.
 */
static void write_cell(const char *text) {
    const char *guard = *text && strchr("=+-@\t\r", *text) ? "'" : "";
    if (!text[strcspn(text, ",\"\r\n")]) {
        printf("%s%s", guard, text);
        return;
    }
    printf("\"%s", guard);
    for (; *text; text++) {
        if (*text == '"') {
            putchar('"');
        }
        putchar(*text);
    }
    putchar('"');
}

static void write_rows(const struct bnn *net, size_t n, const uint32_t *classes,
                       const int32_t *margins, const int32_t *scores) {
    const uint32_t n_classes = bnn_classes(net);
    for (size_t r = 0; r < n; r++) {
        if (classes[r] == BNN_SHUNT) {
            fputs("-1,", stdout);
        } else {
            printf("%" PRIu32 ",", classes[r]);
        }
        write_cell(bnn_class_name(net, classes[r]));
        printf(",%" PRId32, margins[r]);
        for (uint32_t c = 0; scores && c < n_classes; c++) {
            printf(",%" PRId32, scores[r * n_classes + c]);
        }
        putchar('\n');
    }
    if (fflush(stdout) || ferror(stdout)) {
        fail_write();
    }
}

static void write_header(const struct bnn *net, int with_scores) {
    fputs("class,name,margin", stdout);
    for (uint32_t c = 0; with_scores && c < bnn_classes(net); c++) {
        printf(",score_%" PRIu32, c);
    }
    putchar('\n');
}

static void write_model(const struct bnn *net) {
    const char *name;
    for (uint32_t i = 0; (name = bnn_kernel_name(i)); i++) {
        printf("kernel %s%s%s\n", name, bnn_kernel_supported(i) ? "" : " (not on this CPU)",
               strcmp(name, bnn_kernel(net)) == 0 ? " (chosen)" : "");
    }
    printf("model %s\n", bnn_model(net));
    if (bnn_shunt(net)) {
        printf("shunt below margin %" PRIu32 "\n", bnn_shunt(net));
    }
    for (uint32_t i = 0; i < bnn_features(net); i++) {
        printf("feature %" PRIu32 " ", i);
        write_name(stdout, bnn_feature_name(net, i));
        putchar('\n');
    }
    for (uint32_t i = 0; i < bnn_classes(net); i++) {
        printf("class %" PRIu32 " ", i);
        write_name(stdout, bnn_class_name(net, i));
        putchar('\n');
    }
    if (fflush(stdout) || ferror(stdout)) {
        fail_write();
    }
}

/* --- program --------------------------------------------------------------------------- */

static struct bnn *load_network(const char *path) {
    struct bnn *net = NULL;
    if (!path) {
        const int status = bnn_init(&net);
        if (status != BNN_OK) {
            fprintf(stderr, "%s: %s\n", program, bnn_strerror(status));
            exit(EXIT_INPUT);
        }
        return net;
    }
    FILE *stream = fopen(path, "rb");
    size_t size = 0;
    size_t capacity = 1 << 16;
    uint8_t *blob = allocate(capacity, 1);
    while (stream) {
        const size_t got = fread(blob + size, 1, capacity - size, stream);
        size += got;
        /* A longer file is cut here; its checksum then fails. */
        if (size < capacity || capacity > MAX_BLOB) {
            break;
        }
        capacity *= 2;
        uint8_t *larger = realloc(blob, capacity);
        if (!larger) {
            fail_memory();
        }
        blob = larger;
    }
    if (!stream || ferror(stream)) {
        fprintf(stderr, "%s: %s: %s\n", program, path, strerror(errno));
        exit(EXIT_INPUT);
    }
    fclose(stream);
    const int status = bnn_load_blob(&net, blob, size);
    free(blob);
    if (status != BNN_OK) {
        fprintf(stderr, "%s: %s: %s\n", program, path, bnn_strerror(status));
        exit(EXIT_INPUT);
    }
    return net;
}

static void classify_input(const struct bnn *net, struct input *in, enum form form,
                           enum units units, size_t batch, int with_scores) {
    const uint32_t n_features = bnn_features(net);
    const uint32_t n_words = bnn_words(net);
    uint32_t *words = form == FORM_PACKED ? allocate(batch, n_words * sizeof *words) : NULL;
    uint32_t *features = form == FORM_PACKED ? NULL : allocate(batch, n_features * sizeof *words);
    uint32_t *classes = allocate(batch, sizeof *classes);
    int32_t *margins = allocate(batch, sizeof *margins);
    int32_t *scores = with_scores ? allocate(batch, bnn_classes(net) * sizeof *scores) : NULL;
    struct columns columns = {NULL, 0};
    if (form == FORM_CSV) {
        read_header(in, net, &columns, &units);
    }
    write_header(net, with_scores);
    for (;;) {
        size_t n;
        if (form == FORM_PACKED) {
            n = read_words(in, n_words, words, batch);
            check_padding(in, net, words, n);
        } else {
            n = form == FORM_CSV ? read_csv(in, net, &columns, units, features, batch)
                                 : read_words(in, n_features, features, batch);
        }
        if (!n) {
            break;
        }
        if (form == FORM_PACKED) {
            bnn_infer_batch(net, words, n, classes, margins, scores);
        } else {
            bnn_run_batch(net, features, n, classes, margins, scores);
        }
        write_rows(net, n, classes, margins, scores);
    }
    if (fflush(stdout) || ferror(stdout)) {
        fail_write();
    }
    free(words);
    free(features);
    free(classes);
    free(margins);
    free(scores);
    free(columns.feature);
}

int main(int argc, char **argv) {
    static const struct option long_options[] = {{"units", required_argument, NULL, 'u'},
                                                 {NULL, 0, NULL, 0}};
    enum form form = FORM_CSV;
    enum units units = UNITS_UNKNOWN;
    const char *weights = NULL;
    const char *kernel = NULL;
    uint32_t batch = 10000;
    int with_scores = 0;
    int only_list = 0;
    int option;
    signal(SIGPIPE, SIG_IGN);
    while ((option = getopt_long(argc, argv, "fpu:w:k:n:slh", long_options, NULL)) != -1) {
        switch (option) {
        case 'f':
            form = FORM_FEATURES;
            break;
        case 'p':
            form = FORM_PACKED;
            break;
        case 'u':
            units = parse_units(optarg);
            if (units == UNITS_UNKNOWN) {
                fprintf(stderr, "%s: --units %s: expected nic or source\n", program, optarg);
                return EXIT_USAGE;
            }
            break;
        case 'w':
            weights = optarg;
            break;
        case 'k':
            kernel = optarg;
            break;
        case 'n':
            if (parse_number(optarg, &batch) || !batch || batch > 1000000) {
                fprintf(stderr, "%s: -n %s: expected 1 to 1000000 rows\n", program, optarg);
                return EXIT_USAGE;
            }
            break;
        case 's':
            with_scores = 1;
            break;
        case 'l':
            only_list = 1;
            break;
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            fputs(usage, stderr);
            return EXIT_USAGE;
        }
    }
    if (form != FORM_CSV && units == UNITS_SOURCE) {
        fprintf(stderr, "%s: binary records hold the integers of a NIC: omit --units source\n",
                program);
        return EXIT_USAGE;
    }
    if (argc - optind > 1) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    struct bnn *net = load_network(weights);
    if (kernel && bnn_use_kernel(net, kernel) != BNN_OK) {
        fprintf(stderr, "%s: -k %s: %s\n", program, kernel, bnn_strerror(BNN_NO_KERNEL));
        bnn_free(net);
        return EXIT_USAGE;
    }
    if (only_list) {
        write_model(net);
        bnn_free(net);
        return 0;
    }
    const char *path = optind < argc ? argv[optind] : "-";
    struct input in = {.stream = stdin, .name = "standard input"};
    if (strcmp(path, "-") != 0) {
        in.stream = fopen(path, "rb");
        in.name = path;
        if (!in.stream) {
            fprintf(stderr, "%s: %s: %s\n", program, path, strerror(errno));
            bnn_free(net);
            return EXIT_INPUT;
        }
    }
    classify_input(net, &in, form, units, batch, with_scores);
    if (in.stream != stdin) {
        fclose(in.stream);
    }
    free(in.text);
    bnn_free(net);
    return 0;
}
