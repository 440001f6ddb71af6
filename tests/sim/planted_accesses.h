/* SPDX-License-Identifier: MIT */
/* A program of one-sided accesses (programs/one_sided/one_sided.h), and the ways in which it can be
 * wrong. */
#pragma once

#include "programs/one_sided/one_sided.h"

enum access_form {
    ACCESSES_RIGHT,
    ACCESSES_NOT_AWAITED, /* a letter is read without a wait for its signal */
    ACCESSES_NOT_QUIET,   /* somebody is told of a put that may be under way */
    ACCESSES_BY_ALL       /* processors add to words that NICs add to */
};

enum { ACCESS_MAX_RANKS = 4, ACCESS_LETTER_BYTES = 56 };

typedef unsigned char access_letter[ACCESS_LETTER_BYTES];

/* In every rank's heap; zero at first. Letters and words of other ranks by rank. */
struct access_area {
    uint64_t has_written[ACCESS_MAX_RANKS];
    uint64_t is_told; /* of the note at the last rank */
    uint64_t num_tickets, ticket;
    access_letter drafts[ACCESS_MAX_RANKS], letters[ACCESS_MAX_RANKS], posters[ACCESS_MAX_RANKS];
    access_letter own_poster, fetched, note_draft, note;
    /* What the calls on streams use. */
    uint64_t num_called, called_ticket;
    access_letter call_draft, called, call_fetched;
};

struct access_args {
    struct wp_heaps heaps;
    struct access_area *area;
    uint64_t area_offset; /* in every heap */
    int32_t *num_wrong;   /* [WP_WARP_SIZE] */
    uint64_t *ticket;     /* what the fetch-add gave */
    enum access_form form;
};

#define wp_planted_accesses_args access_args
