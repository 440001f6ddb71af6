/* SPDX-License-Identifier: MIT */
/* weft record: what flight records tell, in words: each rank's operation and whom it waits for, the
 * chain of waits to the culprit, calls that do not fit together, and slow ranks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "flight.h"
#include "weft.h"
#include "workload/options.h"
#include "workload/output.h"

enum { NOBODY = -1 };

struct record {
    struct option_texts files;
};

static const struct option_row option_table[] = {
    {OPTION_ARGUMENTS, .arg = "FILE...", OPTION_AT(struct record, files)}, {0}};

static const char documentation[] =
    "Tells in words what flight records hold: what each rank was doing and whom it waited for, who "
    "is to blame, which calls do not fit together, and which rank is slow. FILE is the record of a "
    "rank, or a directory of them, as WEFT_RECORD names it."
    "\vRanks write records when their communicator fails, or by weft_records_write. If "
    "FILEs are of several jobs, the newest counts; if of several communicators, one. The exit "
    "status is 1 if a file cannot be read.";

/* ---------------------------------------------------------------- operations */

static void print_operation(const json_t *entry)
{
    printf("%s #%" PRId64, json_text_of(entry, "profiling_name"),
           json_integer_of(entry, "collective_seq_id"));
}

static int64_t bytes_of(const json_t *entry)
{
    return json_integer_value(
        json_array_get(json_array_get(json_object_get(entry, "input_sizes"), 0), 0));
}

/* "rank 1, 2 and 5" */
static void print_ranks(const int32_t *ranks, int32_t num_ranks)
{
    printf("rank%s ", num_ranks == 1 ? "" : "s");
    for (int32_t i = 0; i < num_ranks; i++)
        printf("%s%d", i == 0 ? "" : i == num_ranks - 1 ? " and " : ", ", ranks[i]);
}

/* ---------------------------------------------------------------- who waits for whom */

static int32_t awaited_by(const struct flights *flights, int32_t rank)
{
    const json_t *waits = json_object_get(flights->of[rank].root, "waits_for");
    const int64_t awaited = json_integer_value(json_array_get(waits, 0));
    const int is_there = json_array_size(waits) > 0 && awaited >= 0 && awaited < flights->num_ranks;
    return is_there ? (int32_t)awaited : NOBODY;
}

static void print_rank(const struct flights *flights, int32_t rank)
{
    const struct flight *flight = &flights->of[rank];
    const json_t *waits = json_object_get(flight->root, "waits_for");
    if (flight->root == NULL) {
        printf("rank %d left no record: it died, is stopped, or cannot be reached\n", rank);
        return;
    }
    printf("rank %d (process %" PRId64 " on %s) ", rank, json_integer_of(flight->root, "pid"),
           json_text_of(flight->root, "host"));
    if (flight->current == NULL) {
        printf("was in no operation\n");
        return;
    }
    printf("%s in ",
           strcmp(json_text_of(flight->current, "end"), "failed") == 0 ? "failed" : "was");
    print_operation(flight->current);
    for (size_t i = 0; i < json_array_size(waits); i++)
        printf("%s%d", i == 0 ? ", and waited for rank " : ", ",
               (int)json_integer_value(json_array_get(waits, i)));
    printf("\n");
}

/* From the first rank that waits, each rank once: up to one that waits for nobody, or for one that
 * was there already. */
static void print_chain(const struct flights *flights)
{
    int32_t rank = 0, num_steps = 0;
    char *has_been = calloc((uint32_t)flights->num_ranks, 1);
    while (rank < flights->num_ranks && awaited_by(flights, rank) == NOBODY)
        rank++;
    while (has_been != NULL && rank < flights->num_ranks && !has_been[rank]) {
        const int32_t next = awaited_by(flights, rank);
        has_been[rank] = 1;
        if (next == NOBODY)
            break;
        if (num_steps++ == 0)
            printf("chain: rank %d waited for rank %d", rank, next);
        else
            printf(", which waited for rank %d", next);
        rank = next;
    }
    if (num_steps > 0)
        printf("\n");
    free(has_been);
}

/* ---------------------------------------------------------------- who is to blame */

static int32_t blamed_by(const struct flights *flights, int32_t rank)
{
    const json_t *root = flights->of[rank].root;
    return root != NULL && strcmp(json_text_of(root, "failure"), "") != 0
               ? (int32_t)json_integer_of(root, "failed_rank")
               : NOBODY;
}

static int32_t count_blames(const struct flights *flights, int32_t culprit)
{
    int32_t num = 0;
    for (int32_t rank = 0; rank < flights->num_ranks; rank++)
        num += blamed_by(flights, rank) == culprit;
    return num;
}

/* The rank that most others name. */
static void print_culprit(const struct flights *flights)
{
    int32_t culprit = NOBODY, most = 0;
    for (int32_t rank = 0; rank < flights->num_ranks; rank++)
        if (count_blames(flights, rank) > most) {
            culprit = rank;
            most = count_blames(flights, rank);
        }
    for (int32_t rank = 0; rank < flights->num_ranks; rank++)
        if (culprit != NOBODY && blamed_by(flights, rank) == culprit) {
            printf("culprit: rank %d, by %d of %d ranks: %s\n", culprit, most, flights->num_ranks,
                   json_text_of(flights->of[rank].root, "failure"));
            return;
        }
}

/* ---------------------------------------------------------------- calls that do not fit */

/* Tells both calls where another rank called something else at the same place. */
static void compare_calls(const struct flights *flights, int32_t rank, int32_t other)
{
    const json_t *ours = flights->of[rank].current;
    const json_t *theirs = flight_find(&flights->of[other], ours);
    if (theirs == NULL)
        return;
    const int is_other_call =
        strcmp(json_text_of(ours, "profiling_name"), json_text_of(theirs, "profiling_name")) != 0;
    const int is_coll = strncmp(json_text_of(ours, "profiling_name"), "weft_coll_", 10) == 0;
    if (!is_other_call && (!is_coll || bytes_of(ours) == bytes_of(theirs)))
        return;
    printf("does not fit: rank %d called ", rank);
    print_operation(ours);
    printf(" of %" PRId64 " bytes, rank %d ", bytes_of(ours), other);
    print_operation(theirs);
    printf(" of %" PRId64 " bytes\n", bytes_of(theirs));
}

/* Whether the rank has not come to the operation, but is in another one that is not before it. */
static int is_elsewhere(const struct flight *flight, const json_t *entry)
{
    return flight->current != NULL && !flight_has_issued(flight, entry) &&
           json_integer_of(flight->current, "exchange") != json_integer_of(entry, "exchange");
}

static void print_missing_callers(const struct flights *flights, int32_t rank)
{
    const json_t *entry = flights->of[rank].current;
    int32_t *missing = malloc((size_t)flights->num_ranks * sizeof *missing), num_missing = 0;
    for (int32_t other = 0; missing != NULL && other < flights->num_ranks; other++)
        if (is_elsewhere(&flights->of[other], entry))
            missing[num_missing++] = other;
    if (num_missing > 0) {
        printf("does not fit: rank %d called ", rank);
        print_operation(entry);
        printf(", which ");
        print_ranks(missing, num_missing);
        printf(" did not\n");
    }
    free(missing);
}

/* Each operation once, by the lowest rank that is in it. */
static void print_misfits(const struct flights *flights)
{
    for (int32_t rank = 0; rank < flights->num_ranks; rank++) {
        const json_t *entry = flights->of[rank].current;
        int is_new = entry != NULL;
        for (int32_t other = 0; other < rank && is_new; other++)
            is_new = flights->of[other].current == NULL ||
                     !flight_is_same(flights->of[other].current, entry);
        if (!is_new)
            continue;
        print_missing_callers(flights, rank);
        for (int32_t other = rank + 1; other < flights->num_ranks; other++)
            compare_calls(flights, rank, other);
    }
}

/* ---------------------------------------------------------------- slow ranks */

static void print_slowest(const struct flights *flights)
{
    for (int32_t rank = 0; rank < flights->num_ranks; rank++) {
        const json_t *slowest = json_object_get(flights->of[rank].root, "slowest");
        if (!json_is_object(slowest))
            continue;
        printf("slow, by rank %d: rank %" PRId64 " came %.1f ms late to %" PRId64 " of %" PRId64
               " %s\n",
               rank, json_integer_of(slowest, "rank"),
               (double)json_integer_of(slowest, "late_ns") / 1e6, json_integer_of(slowest, "late"),
               json_integer_of(slowest, "operations"), json_text_of(slowest, "profiling_name"));
    }
}

int command_record(int argc, char **argv)
{
    static const struct option_set set = {option_table, documentation, NULL};
    struct record record = {.files = {.count = 0}};
    struct flights flights;
    options_parse(&set, &record, argc, argv);
    int status = flights_read(&flights, argv[0], &record.files);
    if (status == EXIT_SUCCESS) {
        for (int32_t rank = 0; rank < flights.num_ranks; rank++)
            print_rank(&flights, rank);
        print_chain(&flights);
        print_misfits(&flights);
        print_slowest(&flights);
        print_culprit(&flights);
        status = output_flush() == 0 ? EXIT_SUCCESS : STATUS_FAILURE;
    }
    flights_free(&flights);
    return status;
}
