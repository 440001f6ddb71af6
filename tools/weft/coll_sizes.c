/* SPDX-License-Identifier: MIT */
#include "coll_sizes.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SIZE (UINT64_C(1) << 40)

/* The size at *text, which is moved behind it: 0, or -1. */
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

/* A step to the same size would never end. */
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

int coll_sizes_read(struct coll_sizes *sizes, const char *text)
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
