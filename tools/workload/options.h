/* SPDX-License-Identifier: MIT */
/* The options of a command. One row of a table is all that parsing, storing, defaults, refusals,
 * --help, the manual page and shells know of an option. A bad value ends the process, with
 * argp_err_exit_status and a message that names option, value and what is allowed. */
#pragma once

#include <argp.h>
#include <stddef.h>
#include <stdint.h>

enum { OPTION_MAX_LISTED = 32, OPTION_MAX_RULES = 5, OPTIONS_MAX = 64 };

/* The value of OPTION_ARGUMENTS. */
struct option_texts {
    int32_t count;
    const char *texts[OPTION_MAX_LISTED];
};

struct option_list {
    int32_t count;
    int64_t values[OPTION_MAX_LISTED];
};

/* Sizes in bytes, from min to max; each is factor times the last one, plus increment. */
struct option_steps {
    uint64_t min, max;
    uint64_t factor;
    uint64_t increment;
};
/* Moves *bytes to the next size. Returns 1, or 0 behind the last one. */
int option_steps_next(const struct option_steps *steps, uint64_t *bytes);

enum option_type {
    OPTIONS_END,     /* ends a table, as {0} */
    OPTION_GROUP,    /* the heading of those that follow; its rules are those of each of them */
    OPTION_INTEGER,  /* in 4 or 8 bytes, from min to max, as are the next three */
    OPTION_SIZE,     /* of bytes; K, M or G behind the number are powers of 1024 */
    OPTION_CHOICE,   /* min and the index of a name among choices */
    OPTION_FLAG,     /* without a value: max, or 1 */
    OPTION_REAL,     /* a double from min to max */
    OPTION_TEXT,     /* a const char *, which lives as long as the arguments */
    OPTION_INTEGERS, /* a struct option_list of values separated by commas, as are the next two */
    OPTION_SIZES,
    OPTION_CHOICES,
    OPTION_STEPS, /* a struct option_steps: 1K:64M:x2, 0:4K:+256 or 8M */
    OPTION_OTHER, /* `parse` handles it */
    /* Another tool's option, not in help: any value but `usual` is refused, and `doc` says what to
     * use instead. */
    OPTION_REFUSED,
    /* No options, but texts without dashes; the last row, without a name. */
    OPTION_ARGUMENT,  /* may be given, once: a const char * */
    OPTION_ARGUMENTS, /* several times: a struct option_texts */
    OPTION_PROGRAM    /* the first one and all that follow it: a char *const * */
};

/* A need, or an exclusion. Values are separated by commas; NULL is any but the usual one. */
struct option_rule {
    const char *values;   /* of this option, which need */
    const char *needs;    /* another option; NULL: none, */
    const char *excludes; /* but exclude this one, */
    const char *with;     /* with these values */
};

struct option_row {
    enum option_type type;
    const char *name;     /* without dashes */
    const char *arg;      /* what help calls the value; NULL of a choice: all of them */
    const char *doc;      /* a sentence without its full stop */
    const char *usual;    /* the value when none is given; NULL: what the caller has stored, or 0 */
    size_t offset, bytes; /* OPTION_AT */
    int64_t min, max;
    const char *const *choices; /* a NULL ends them */
    void (*parse)(void *options, const char *text, struct argp_state *state);
    char letter;         /* of the short option; 0: none */
    const char *also;    /* a second name, not in help, or NULL */
    const char *without; /* for help: what holds if none is given and usual is NULL */
    const char *hint;    /* told of a wrong choice, or NULL */
    struct option_rule rules[OPTION_MAX_RULES]; /* {0} ends them */
};
#define OPTION_AT(type, member)                                                                    \
    .offset = offsetof(type, member), .bytes = sizeof(((type *)0)->member)

struct option_set {
    const struct option_row *table; /* of at most OPTIONS_MAX */
    const char *doc;                /* of the command, as argp's */
    /* NULL, or looks at all of them together, once the rules hold. */
    void (*finish)(void *options, struct argp_state *state);
};
/* With --mdoc alone it prints the options for the manual page, with --complete for shells, and ends
 * the process. */
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
