/* SPDX-License-Identifier: MIT */
#include "coll_sizes.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SIZE (UINT64_C(1) << 40)

/* Reads the size at *text and moves *text behind it. Returns 0, or -1. */
static int read_size(const char **text, uint64_t *bytes)
{
    static const char units[] = "KMG";
    char *end;
    if (!isdigit((unsigned char)**text))
        return -1;
    const unsigned long long number = strtoull(*text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    const unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    *text = unit ? end + 1 : end;
    *bytes = (uint64_t)number << shift;
    return number > MAX_SIZE >> shift ? -1 : 0;
}

/* A step that does not grow is refused: it would never end. */
static int read_step(const char *text, struct coll_sizes *sizes)
{
    const char kind = *text;
    uint64_t value;
    if (kind != 'x' && kind != '+')
        return -1;
    text++;
    if (read_size(&text, &value) != 0 || *text)
        return -1;
    sizes->factor = kind == 'x' ? value : 1;
    sizes->increment = kind == 'x' ? 0 : value;
    return sizes->min * (sizes->factor - 1) + sizes->increment == 0 || sizes->factor == 0 ? -1 : 0;
}

static int skip_colon(const char **text)
{
    return *(*text)++ == ':' ? 0 : -1;
}

static int read_sizes(struct coll_sizes *sizes, const char *text)
{
    if (read_size(&text, &sizes->min) != 0)
        return -1;
    if (*text == '\0') {
        *sizes = (struct coll_sizes){sizes->min, sizes->min, 1, 1};
        return 0;
    }
    if (skip_colon(&text) != 0 || read_size(&text, &sizes->max) != 0 || skip_colon(&text) != 0)
        return -1;
    return sizes->max < sizes->min ? -1 : read_step(text, sizes);
}

int coll_sizes_next(const struct coll_sizes *sizes, uint64_t *bytes)
{
    if (*bytes > sizes->max / sizes->factor)
        return 0;
    *bytes = *bytes * sizes->factor + sizes->increment; /* at most 2^41 */
    return *bytes <= sizes->max;
}

void coll_parse_sizes(struct coll_sizes *sizes, const char *text, struct argp_state *state)
{
    if (read_sizes(sizes, text) != 0)
        argp_error(state,
                   "--bytes %s: must be a size up to 1024G, MIN:MAX:xFACTOR with FACTOR 2 or more, "
                   "or MIN:MAX:+STEP with STEP 1 or more",
                   text);
}

/* ---------------------------------------------------------------- as nccl-tests has them */

void coll_parse_size(const char *option, const char *text, int64_t *bytes, struct argp_state *state)
{
    uint64_t size = 0;
    const char *end = text;
    if (read_size(&end, &size) != 0 || *end != '\0')
        argp_error(state, "--%s %s: must be a size up to 1024G", option, text);
    *bytes = (int64_t)size;
}

void coll_sizes_of_range(const struct coll_size_range *range, struct coll_sizes *sizes,
                         struct argp_state *state)
{
    const int is_multiplied = range->factor > 1;
    if (range->max < range->min)
        argp_error(state, "--minbytes %lld: must be at most --maxbytes, %lld",
                   (long long)range->min, (long long)range->max);
    if (range->min < range->max && (is_multiplied ? range->min : range->step) == 0)
        argp_error(state, is_multiplied ? "--minbytes 0: must be 1 or more with --stepfactor"
                                        : "--stepbytes 0: must be 1 or more");
    *sizes = (struct coll_sizes){(uint64_t)range->min, (uint64_t)range->max,
                                 is_multiplied ? (uint64_t)range->factor : 1,
                                 is_multiplied ? 0 : (uint64_t)(range->step > 0 ? range->step : 1)};
}
