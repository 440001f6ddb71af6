/* SPDX-License-Identifier: MIT */
/* Which of a peer's numbered messages have taken effect, in whatever order. A plain count would not
 * do: a later message that overtakes an earlier one makes the count look complete. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    WEFT__LEDGER_WINDOW = 1 << 20, /* how far a number may be ahead of the first that is missing */
    WEFT__LEDGER_MAX_SPANS = 1 << 16
};

struct weft__ledger_span {
    uint64_t begin, end;
};

struct weft__ledger {
    uint64_t prefix; /* all numbers below have been marked */
    struct weft__ledger_span
        *spans; /* [num_spans] marked ones above, ascending, with gaps between */
    size_t num_spans, max_spans;
};

enum weft__ledger_result {
    WEFT__LEDGER_MARKED,
    WEFT__LEDGER_TWICE,
    WEFT__LEDGER_TOO_FAR,
    WEFT__LEDGER_NO_MEMORY
};

void weft__ledger_destroy(struct weft__ledger *ledger);
/* The result of marking, but for the memory. */
enum weft__ledger_result weft__ledger_look(const struct weft__ledger *ledger, uint64_t number);
enum weft__ledger_result weft__ledger_mark(struct weft__ledger *ledger, uint64_t number);
