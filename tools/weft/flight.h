/* SPDX-License-Identifier: MIT */
/* Flight records of the ranks of a communicator (docs/records.md), as weft record reads them. */
#pragma once

#include <stdint.h>

#include "workload/json_fields.h"
#include "workload/options.h"

/* The record of one rank; a rank that has left none has no root. */
struct flight {
    const json_t *root;
    const json_t *entries;
    /* The newest operation that has not ended, or has failed; NULL: there is none. */
    const json_t *current;
};

struct flights {
    const char *reader; /* the command, for messages */
    json_t *roots;      /* all that were read; those below are among them */
    int32_t num_ranks;
    struct flight *of; /* [num_ranks] */
};

/* Reads files of ranks, or directories of them, of one communicator: that of the newest job. Tells
 * on standard error how many others there are. Returns the exit status; if it is not 0, there is a
 * message about the file. */
int flights_read(struct flights *flights, const char *reader, const struct option_texts *files);
void flights_free(struct flights *flights);

/* Where an operation has its place among those of all ranks. */
int flight_is_same(const json_t *a, const json_t *b);
/* Whether the rank has come to this operation, or to a later one of the same exchange. */
int flight_has_issued(const struct flight *flight, const json_t *entry);
/* The same operation on this rank; NULL: it is not among its records. */
const json_t *flight_find(const struct flight *flight, const json_t *entry);
