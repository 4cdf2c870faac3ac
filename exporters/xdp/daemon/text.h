// SPDX-License-Identifier: Apache-2.0
/* Text in a buffer of fixed size, which notes whether something did not fit. */
#ifndef N3ICD_TEXT_H
#define N3ICD_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct text {
    char *bytes;
    size_t used, room;
    int cut; /* something did not fit, so the text is incomplete */
};

/* Makes a buffer of `room` bytes; 0 if there is no memory. */
int text_make(struct text *t, size_t room);
void text_clear(struct text *t);
void text_bytes(struct text *t, const void *bytes, size_t count);
void text_format(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Strings and numbers as they are: text_format would read its format for each. */
static inline void text_string(struct text *t, const char *string) {
    text_bytes(t, string, strlen(string)); /* the length of a literal is known to the compiler */
}
void text_number(struct text *t, uint64_t number);
void text_signed(struct text *t, int64_t number);

/* A string of JSON, with its quotes. */
void text_json(struct text *t, const char *string);
/* With a backslash before each of `special`, and line ends as \n: labels and parameters. */
void text_escaped(struct text *t, const char *string, const char *special);

/* One line to the standard error; `last_message` holds it without "n3icd: ". */
extern char last_message[512];
void log_message(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
