/* SPDX-License-Identifier: MIT */
/* Values of command-line options: a bad one ends the process, with argp_err_exit_status and a message that
 * names option, value and allowed range. */
#ifndef WEFT_WORKLOAD_OPTIONS_H
#define WEFT_WORKLOAD_OPTIONS_H

#include <argp.h>
#include <stddef.h>
#include <stdint.h>

int64_t option_integer(struct argp_state *state, const char *option, const char *text, int64_t min,
                       int64_t max);
/* Of bytes; K, M or G behind the number are powers of 1024. */
int64_t option_size(struct argp_state *state, const char *option, const char *text, int64_t min,
                    int64_t max);
double option_number(struct argp_state *state, const char *option, const char *text, double min,
                     double max);
/* The index of text among `choices`, which a NULL ends. */
int option_choice(struct argp_state *state, const char *option, const char *text,
                  const char *const *choices);

enum { OPTION_MAX_LISTED = 32 };
struct option_list {
    int32_t count;
    int64_t values[OPTION_MAX_LISTED];
};

enum option_unit { OPTION_PLAIN, OPTION_BYTES };
/* What the members of a list, separated by commas, may be: numbers, or one of `choices`. */
struct option_members {
    int64_t min, max;
    enum option_unit unit;
    const char *const *choices; /* a NULL ends them; NULL: numbers */
};
void option_list(struct argp_state *state, const char *option, const char *text,
                 const struct option_members *members, struct option_list *list);

/* An option whose value is stored in state->input, as an integer of 4 or 8 bytes: a number, the index of a
 * name, or 1 if the option has no argument. Tables of them end with a key of 0. */
struct stored_option {
    int key;
    const char *name; /* as in messages */
    size_t offset, bytes;
    int64_t min, max;           /* of a number */
    const char *const *choices; /* names, which a NULL ends; NULL: it is a number */
};
#define OPTION_AT(type, member) offsetof(type, member), sizeof(((type *)0)->member)
#define OPTION_NUMBER(key, name, type, member, min, max)                                           \
    {                                                                                              \
        key, name, OPTION_AT(type, member), min, max, NULL                                         \
    }
#define OPTION_CHOICE(key, name, type, member, choices)                                            \
    {                                                                                              \
        key, name, OPTION_AT(type, member), 0, 0, choices                                          \
    }
#define OPTION_FLAG(key, name, type, member) OPTION_NUMBER(key, name, type, member, 1, 1)

/* What commands do with a key of which they know nothing else: 0, or ARGP_ERR_UNKNOWN if the table has none
 * such. Arguments that are no options are wrong. */
error_t option_store(const struct stored_option *table, int key, const char *text,
                     struct argp_state *state);

#endif
