/* SPDX-License-Identifier: MIT */
#include "net/ledger.h"

#include <stdlib.h>
#include <string.h>

void weft__ledger_destroy(struct weft__ledger *ledger)
{
    free(ledger->spans);
    *ledger = (struct weft__ledger){0};
}

/* The first span that ends at `number` or above; from the back, where most numbers belong. */
static size_t find_span(const struct weft__ledger *ledger, uint64_t number)
{
    size_t index = ledger->num_spans;
    while (index > 0 && ledger->spans[index - 1].end >= number)
        index--;
    return index;
}

enum weft__ledger_result weft__ledger_look(const struct weft__ledger *ledger, uint64_t number)
{
    if (number < ledger->prefix)
        return WEFT__LEDGER_TWICE;
    if (number - ledger->prefix >= WEFT__LEDGER_WINDOW)
        return WEFT__LEDGER_TOO_FAR;
    for (size_t index = find_span(ledger, number); index < ledger->num_spans; index++) {
        if (ledger->spans[index].begin > number)
            break;
        if (number < ledger->spans[index].end)
            return WEFT__LEDGER_TWICE;
    }
    return WEFT__LEDGER_MARKED;
}

static void remove_span(struct weft__ledger *ledger, size_t index)
{
    ledger->num_spans--;
    memmove(&ledger->spans[index], &ledger->spans[index + 1],
            (ledger->num_spans - index) * sizeof(ledger->spans[0]));
}

static enum weft__ledger_result insert_span(struct weft__ledger *ledger, size_t index,
                                            uint64_t number)
{
    if (ledger->num_spans == WEFT__LEDGER_MAX_SPANS)
        return WEFT__LEDGER_TOO_FAR;
    if (ledger->num_spans == ledger->max_spans) {
        size_t max_spans = ledger->max_spans == 0 ? 16 : 2 * ledger->max_spans;
        struct weft__ledger_span *larger =
            realloc(ledger->spans, max_spans * sizeof(ledger->spans[0]));
        if (larger == NULL)
            return WEFT__LEDGER_NO_MEMORY;
        ledger->spans = larger;
        ledger->max_spans = max_spans;
    }
    memmove(&ledger->spans[index + 1], &ledger->spans[index],
            (ledger->num_spans - index) * sizeof(ledger->spans[0]));
    ledger->num_spans++;
    ledger->spans[index] = (struct weft__ledger_span){number, number + 1};
    return WEFT__LEDGER_MARKED;
}

/* Above the prefix: joins the span that ends, or begins, at the number, or both. */
static enum weft__ledger_result mark_above(struct weft__ledger *ledger, uint64_t number)
{
    size_t index = find_span(ledger, number);
    int extends = index < ledger->num_spans && ledger->spans[index].end == number;
    size_t next = extends ? index + 1 : index;
    int precedes = next < ledger->num_spans && ledger->spans[next].begin == number + 1;
    if (extends && precedes) {
        ledger->spans[index].end = ledger->spans[next].end;
        remove_span(ledger, next);
    } else if (extends) {
        ledger->spans[index].end++;
    } else if (precedes) {
        ledger->spans[next].begin--;
    } else {
        return insert_span(ledger, index, number);
    }
    return WEFT__LEDGER_MARKED;
}

enum weft__ledger_result weft__ledger_mark(struct weft__ledger *ledger, uint64_t number)
{
    enum weft__ledger_result result = weft__ledger_look(ledger, number);
    if (result != WEFT__LEDGER_MARKED)
        return result;
    if (number != ledger->prefix)
        return mark_above(ledger, number);
    ledger->prefix++;
    if (ledger->num_spans > 0 && ledger->spans[0].begin == ledger->prefix) {
        ledger->prefix = ledger->spans[0].end;
        remove_span(ledger, 0);
    }
    return WEFT__LEDGER_MARKED;
}
