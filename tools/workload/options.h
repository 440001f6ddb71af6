/* SPDX-License-Identifier: MIT */
/* Options of a command: one row of a table is all that help, parsing, storing and defaults know of one. A bad
 * value ends the process, with argp_err_exit_status and a message that names option, value and allowed range. */
#pragma once

#include <argp.h>
#include <stddef.h>
#include <stdint.h>

enum { OPTION_MAX_LISTED = 32, OPTIONS_MAX = 64 };

/* Of OPTION_ARGUMENTS. */
struct option_texts {
    int32_t count;
    const char *texts[OPTION_MAX_LISTED];
};

struct option_list {
    int32_t count;
    int64_t values[OPTION_MAX_LISTED];
};

enum option_type {
    OPTIONS_END,     /* ends a table, as {0} */
    OPTION_GROUP,    /* the heading of those that follow, in help */
    OPTION_INTEGER,  /* in 4 or 8 bytes, from min to max, as are the next three */
    OPTION_SIZE,     /* of bytes; K, M or G behind the number are powers of 1024 */
    OPTION_CHOICE,   /* min and the index of a name among choices */
    OPTION_FLAG,     /* without a value: max, or 1 */
    OPTION_REAL,     /* a double from min to max */
    OPTION_TEXT,     /* a const char *, which lives as long as the arguments */
    OPTION_INTEGERS, /* a struct option_list of values separated by commas, as are the next two */
    OPTION_SIZES,
    OPTION_CHOICES,
    OPTION_OTHER, /* `parse` handles it */
    /* Another tool's option, not in help: any value but `usual` is refused, and `doc` says what to use
     * instead. */
    OPTION_REFUSED,
    OPTION_ARGUMENT, /* no option, but a text without dashes that may be given, once; the last row */
    OPTION_ARGUMENTS /* the same, several times: a struct option_texts */
};

struct option_row {
    enum option_type type;
    const char *name; /* without dashes */
    const char *arg;  /* what help calls the value */
    const char *doc;
    const char *usual;    /* the value when none is given; NULL: what the caller has stored, or 0 */
    size_t offset, bytes; /* OPTION_AT */
    int64_t min, max;
    const char *const *choices; /* a NULL ends them */
    void (*parse)(void *options, const char *text, struct argp_state *state);
    char letter;      /* of the short option; 0: none */
    const char *also; /* a second name, not in help, or NULL */
};
#define OPTION_AT(type, member)                                                                    \
    .offset = offsetof(type, member), .bytes = sizeof(((type *)0)->member)

struct option_set {
    const struct option_row *table; /* of at most OPTIONS_MAX */
    const char *doc;                /* of the command, as argp's */
    /* NULL, or looks at all of them together. */
    void (*finish)(void *options, struct argp_state *state);
};
void options_parse(const struct option_set *set, void *options, int argc, char **argv);

/* Single values; `option` is as in messages. */
int64_t option_integer(struct argp_state *state, const char *option, const char *text, int64_t min,
                       int64_t max);
double option_number(struct argp_state *state, const char *option, const char *text, double min,
                     double max);
/* The index of text among `choices`, which end with NULL. Case, - and _ do not count. Types and
 * reductions also have the names of other programs: Float32 is fp32. */
int option_choice(struct argp_state *state, const char *option, const char *text,
                  const char *const *choices);
void option_list(struct argp_state *state, const struct option_row *option, const char *text,
                 struct option_list *list);
