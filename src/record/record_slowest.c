/* SPDX-License-Identifier: MIT */
/*
 * The slowest rank by the evidence of one rank.
 *
 * An operation is late by a rank if this rank came last, WEFT__LATE_NS or more after all others.
 * Each call of weft.h is judged by itself, since a rank may be late to one and not to another, by
 * its last WINDOW operations. A rank is named when it made LATE_PERCENT of them late, and more of
 * those that were late than chance would give it. Chance is not fair where ranks share cores: one
 * rank may be last twice as often as its share. Five standard deviations above that is the bound.
 * So ranks that come late in turns name nobody. Two ranks that are late by the same time name
 * neither, since neither comes after the other. The lost time must be a hundredth of all time.
 */
#include <math.h>
#include <stddef.h>

#include "record/record.h"

enum { WINDOW = 96, LEAST = 40, MAX_CALLS = 16, TIME_SHARE = 100, LATE_PERCENT = 60 };

/* The operations of one call. */
struct tally {
    const char *call;
    int32_t num;
    int64_t newest_ns, oldest_ns; /* of their starts */
    int32_t num_late;
    struct {
        int32_t rank;
        int64_t late_ns;
    } late[WINDOW];
};

static struct tally *tally_of(struct tally *tallies, const char *call)
{
    for (int i = 0; i < MAX_CALLS; i++) {
        if (tallies[i].call == NULL)
            tallies[i].call = call;
        if (tallies[i].call == call)
            return &tallies[i];
    }
    return NULL;
}

/* Newer records come first. */
static void count(struct tally *tally, const struct weft__record *record)
{
    if (tally->num == 0)
        tally->newest_ns = record->started_ns;
    tally->oldest_ns = record->started_ns;
    tally->num++;
    if (record->late_ns < WEFT__LATE_NS)
        return;
    tally->late[tally->num_late].rank = record->last_rank;
    tally->late[tally->num_late++].late_ns = record->late_ns;
}

/* How many of num_late operations a rank may make late by chance. */
static double most_by_chance(int32_t num_late, int32_t num_ranks)
{
    const double deviations = 5, share = num_ranks <= 4 ? 0.5 : 2.0 / num_ranks;
    return num_late * share + deviations * sqrt(num_late * share * (1 - share));
}

static struct weft__slowest judge(const struct tally *tally, int32_t num_ranks)
{
    struct weft__slowest found = {WEFT__RECORD_NOBODY, tally->call, (uint64_t)tally->num, 0, 0};
    const double bound = most_by_chance(tally->num_late, num_ranks);
    const int64_t span_ns = tally->newest_ns - tally->oldest_ns;
    for (int32_t i = 0; i < tally->num_late && tally->num >= LEAST; i++) {
        int64_t num = 0, late_ns = 0;
        for (int32_t j = 0; j < tally->num_late; j++) {
            if (tally->late[j].rank != tally->late[i].rank)
                continue;
            num++;
            late_ns += tally->late[j].late_ns;
        }
        if (100 * num < (int64_t)LATE_PERCENT * tally->num || (double)num < bound ||
            late_ns < span_ns / TIME_SHARE)
            continue;
        found.rank = tally->late[i].rank;
        found.num_late = (uint64_t)num;
        found.late_ns = late_ns / num;
        break; /* no two ranks can be above the bound */
    }
    return found;
}

struct weft__slowest weft__records_find_slowest(const struct weft__records *records)
{
    struct tally tallies[MAX_CALLS] = {{.call = NULL}};
    struct weft__slowest worst = {.rank = WEFT__RECORD_NOBODY};
    const struct weft__record_range range = weft__records_range(records);
    for (uint64_t id = range.last; id >= range.first; id--) {
        struct weft__record record;
        if (!weft__records_read(records, id, &record) || record.meeting != WEFT__MEETS_ALL ||
            record.state != WEFT__RECORD_DONE)
            continue;
        struct tally *tally = tally_of(tallies, record.call);
        if (tally != NULL && tally->num < WINDOW)
            count(tally, &record);
    }
    if (records == NULL)
        return worst;
    for (int i = 0; i < MAX_CALLS && tallies[i].call != NULL; i++) {
        const struct weft__slowest found = judge(&tallies[i], weft__records_num_ranks(records));
        if (found.rank != WEFT__RECORD_NOBODY && (double)found.num_late * (double)found.late_ns >=
                                                     (double)worst.num_late * (double)worst.late_ns)
            worst = found;
    }
    return worst;
}
