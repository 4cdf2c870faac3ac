// SPDX-License-Identifier: Apache-2.0
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int text_make(struct text *t, size_t room) {
    *t = (struct text){.bytes = malloc(room), .room = room};
    return t->bytes != NULL;
}

void text_clear(struct text *t) {
    t->used = 0;
    t->cut = 0;
}

void text_bytes(struct text *t, const void *bytes, size_t count) {
    if (count > t->room - t->used) {
        t->cut = 1;
        return;
    }
    memcpy(t->bytes + t->used, bytes, count);
    t->used += count;
}

void text_format(struct text *t, const char *format, ...) {
    size_t left = t->room - t->used;
    va_list arguments;
    int made;

    va_start(arguments, format);
    made = vsnprintf(t->bytes + t->used, left, format, arguments);
    va_end(arguments);
    if (made < 0 || (size_t)made >= left)
        t->cut = 1;
    else
        t->used += (size_t)made;
}

void text_number(struct text *t, uint64_t number) {
    char digits[20], *first = digits + sizeof digits;

    do
        *--first = (char)('0' + number % 10);
    while (number /= 10);
    text_bytes(t, first, (size_t)(digits + sizeof digits - first));
}

void text_signed(struct text *t, int64_t number) {
    if (number < 0)
        text_bytes(t, "-", 1);
    text_number(t, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

static int is_plain(unsigned char c) {
    return c >= 0x20 && c != 0x7f && c != '"' && c != '\\';
}

void text_json(struct text *t, const char *string) {
    const unsigned char *c = (const unsigned char *)string;

    text_bytes(t, "\"", 1);
    while (*c) {
        const unsigned char *plain = c;

        while (is_plain(*c))
            c++;
        text_bytes(t, plain, (size_t)(c - plain));
        if (*c == '"' || *c == '\\')
            text_format(t, "\\%c", *c++);
        else if (*c)
            text_format(t, "\\u%04x", *c++);
    }
    text_bytes(t, "\"", 1);
}

void text_escaped(struct text *t, const char *string, const char *special) {
    for (const char *c = string; *c; c++) {
        if (*c == '\n')
            text_bytes(t, "\\n", 2);
        else if (strchr(special, *c))
            text_format(t, "\\%c", *c);
        else
            text_bytes(t, c, 1);
    }
}

char last_message[512];

void log_message(const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(last_message, sizeof last_message, format, arguments);
    va_end(arguments);
    va_start(arguments, format);
    fputs("n3icd: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}
