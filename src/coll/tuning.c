/* SPDX-License-Identifier: MIT */
#include "coll/tuning.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coll/coll.h"
#include "launch/names.h"

enum { NUM_FIELDS = 7, MAX_FILE_BYTES = 1 << 20 };
static const char *const layout = "machine ranks collective max_bytes algorithm blocks warps";

struct line {
    const char *path;
    enum weft__tuning_source source;
    int number; /* from 1 */
    char *fields[NUM_FIELDS];
};

static weft_result refuse(const struct line *line, const char *field, const char *text,
                          const char *allowed)
{
    return weft__invalid("%s:%d: %s is \"%.64s\", allowed are %s", line->path, line->number, field,
                         text, allowed);
}

/* ------------------------------------------------------------------ fields */

static weft_result parse_number(const struct line *line, const char *field, const char *text,
                                int32_t min, int32_t max, int32_t *value)
{
    char allowed[32];
    char *end;
    errno = 0;
    const long number = strtol(text, &end, 10);
    *value = (int32_t)number;
    if (isdigit((unsigned char)*text) && *end == '\0' && errno == 0 && number >= min &&
        number <= max)
        return WEFT_OK;
    snprintf(allowed, sizeof allowed, "%" PRId32 "..%" PRId32, min, max);
    return refuse(line, field, text, allowed);
}

static weft_result parse_bytes(const struct line *line, const char *text, uint64_t *bytes)
{
    static const char units[] = "KMG";
    char *end;
    if (strcmp(text, "inf") == 0) {
        *bytes = UINT64_MAX;
        return WEFT_OK;
    }
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    const unsigned shift = unit != NULL ? 10 * (unsigned)(unit - units + 1) : 0;
    const char *rest = unit != NULL ? end + 1 : end;
    if (!isdigit((unsigned char)*text) || *rest != '\0' || errno != 0 ||
        number > UINT64_MAX >> shift)
        return refuse(line, "max_bytes", text, "a number, with K, M or G behind it, and inf");
    *bytes = (uint64_t)number << shift;
    return WEFT_OK;
}

static weft_result parse_machine(const struct line *line, const char *text)
{
    static const char *const machines[] = {"cpu", "cuda", "sim"};
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++)
        if (strcmp(text, machines[i]) == 0)
            return WEFT_OK;
    return refuse(line, "machine", text, "cpu, cuda and sim");
}

static weft_result parse_collective(const struct line *line, const char *text, int32_t *collective)
{
    for (int32_t i = 0; i < WEFT__NUM_COLLECTIVES; i++) {
        if (strcmp(text, weft__collective_name((uint64_t)i)) == 0) {
            *collective = i;
            return WEFT_OK;
        }
    }
    return refuse(
        line, "collective", text,
        "all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, reduce, gather and "
        "scatter");
}

static weft_result parse_algorithm(const struct line *line, const char *text,
                                   struct weft__tuning_row *row)
{
    const weft_collective collective = (weft_collective)row->collective;
    char allowed[128] = "";
    for (int i = 0; i < WEFT__NUM_ALGORITHMS; i++) {
        const char *name = weft_coll_algorithm_name((weft_algorithm)i);
        if (!weft__coll_can(collective, (weft_algorithm)i) ||
            weft__coll_has_own_order((weft_algorithm)i))
            continue;
        row->algorithm = i;
        if (strcmp(text, name) == 0)
            return WEFT_OK;
        snprintf(allowed + strlen(allowed), sizeof allowed - strlen(allowed), "%s%s",
                 allowed[0] != '\0' ? ", " : "", name);
    }
    return weft__invalid("%s:%d: algorithm is \"%.64s\", allowed are, for %s, %s", line->path,
                         line->number, text, weft__collective_name(collective), allowed);
}

/* ------------------------------------------------------------------ lines */

/* How many fields there are, NUM_FIELDS + 1 for more than that. */
static int split(char *text, char *fields[NUM_FIELDS])
{
    static const char blanks[] = " \t\r\n";
    char *rest, *field;
    int num_fields = 0;
    text[strcspn(text, "#")] = '\0';
    for (field = strtok_r(text, blanks, &rest); field != NULL && num_fields <= NUM_FIELDS;
         field = strtok_r(NULL, blanks, &rest)) {
        if (num_fields < NUM_FIELDS)
            fields[num_fields] = field;
        num_fields++;
    }
    return num_fields;
}

static weft_result parse_row(const struct line *line, int32_t *num_ranks,
                             struct weft__tuning_row *row)
{
    char *const *fields = line->fields;
    WEFT__TRY(parse_machine(line, fields[0]));
    WEFT__TRY(parse_number(line, "ranks", fields[1], 1, WEFT_COLL_MAX_RANKS, num_ranks));
    WEFT__TRY(parse_collective(line, fields[2], &row->collective));
    WEFT__TRY(parse_bytes(line, fields[3], &row->max_bytes));
    WEFT__TRY(parse_algorithm(line, fields[4], row));
    WEFT__TRY(parse_number(line, "blocks", fields[5], 0, WEFT__COLL_MAX_BLOCKS, &row->num_blocks));
    return parse_number(line, "warps", fields[6], 0, WEFT_MAX_WARPS, &row->num_warps);
}

/* *num_left: of the rows that a source may have. */
static weft_result add_line(struct line *line, char *text, const struct weft__tuning_key *key,
                            struct weft__tuning *tuning, int32_t *num_left)
{
    struct weft__tuning_row row = {.source = (int32_t)line->source, .line = line->number};
    int32_t num_ranks = 0;
    const int num_fields = split(text, line->fields);
    if (num_fields == 0)
        return WEFT_OK;
    if (num_fields != NUM_FIELDS)
        return weft__invalid("%s:%d: has %s than %d fields: must be %s", line->path, line->number,
                             num_fields < NUM_FIELDS ? "less" : "more", NUM_FIELDS, layout);
    WEFT__TRY(parse_row(line, &num_ranks, &row));
    if (strcmp(line->fields[0], key->machine) != 0 || num_ranks != key->num_ranks)
        return WEFT_OK;
    if (*num_left == 0)
        return weft__invalid("%s:%d: has row %d of %s with %d ranks, allowed are %d", line->path,
                             line->number, WEFT__TUNING_MAX_ROWS + 1, key->machine, num_ranks,
                             WEFT__TUNING_MAX_ROWS);
    (*num_left)--;
    tuning->rows[tuning->num_rows++] = row;
    return WEFT_OK;
}

static weft_result add_lines(struct line line, char *text, const struct weft__tuning_key *key,
                             struct weft__tuning *tuning)
{
    int32_t num_left = WEFT__TUNING_MAX_ROWS;
    while (text != NULL) {
        char *next = strchr(text, '\n');
        if (next != NULL)
            *next++ = '\0';
        line.number++;
        WEFT__TRY(add_line(&line, text, key, tuning, &num_left));
        text = next;
    }
    return WEFT_OK;
}

/* ------------------------------------------------------------------ the file */

/* A FIFO would be waited for, a device has no end. */
static weft_result check_file(const char *path, int fd)
{
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0)
        return weft__invalid("cannot open %s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode))
        return weft__invalid("%s is no regular file", path);
    return WEFT_OK;
}

/* As much as a file may have, and a byte more; ends with 0. */
static weft_result read_text(const char *path, int fd, char *text)
{
    size_t num_bytes = 0;
    ssize_t num_read;
    while (num_bytes <= MAX_FILE_BYTES &&
           (num_read = read(fd, text + num_bytes, MAX_FILE_BYTES + 1 - num_bytes)) != 0) {
        if (num_read < 0 && errno != EINTR)
            return weft__invalid("cannot read %s: %s", path, strerror(errno));
        num_bytes += num_read > 0 ? (size_t)num_read : 0;
    }
    text[num_bytes] = '\0';
    if (strlen(text) < num_bytes)
        return weft__invalid("%s is no text: byte %zu is 0", path, strlen(text));
    if (num_bytes <= MAX_FILE_BYTES)
        return WEFT_OK;
    return weft__invalid("%s has more than %d bytes", path, MAX_FILE_BYTES);
}

weft_result weft__tuning_read(const char *path, const struct weft__tuning_key *key,
                              struct weft__tuning *tuning)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char *text = malloc(MAX_FILE_BYTES + 2);
    *tuning = (struct weft__tuning){0};
    snprintf(tuning->path, sizeof tuning->path, "%s", path);
    weft_result result = check_file(path, fd);
    if (result == WEFT_OK && text == NULL)
        result = weft__no_memory("no memory to read %s", path);
    if (result == WEFT_OK && text != NULL)
        result = read_text(path, fd, text);
    if (result == WEFT_OK)
        result =
            add_lines((struct line){.path = path, .source = WEFT__TUNING_FILE}, text, key, tuning);
    free(text);
    if (fd >= 0)
        close(fd);
    return result;
}

/* ------------------------------------------------------------------ shipped tables */

static weft_result add_table(const struct weft__shipped_table *table,
                             const struct weft__tuning_key *key, struct weft__tuning *tuning)
{
    char *text = strdup(table->text);
    WEFT__CHECK_MEMORY(text, "no memory to read %s", table->name);
    const struct line line = {.path = table->name, .source = WEFT__TUNING_SHIPPED};
    const weft_result result = add_lines(line, text, key, tuning);
    free(text);
    return result;
}

weft_result weft__tuning_add_shipped(const char *device, const struct weft__tuning_key *key,
                                     struct weft__tuning *tuning)
{
    for (const struct weft__shipped_table *table = weft__shipped_tables; table->device != NULL;
         table++) {
        if (strcmp(table->device, device) == 0)
            return add_table(table, key, tuning);
    }
    return WEFT_OK;
}
