/* SPDX-License-Identifier: MIT */
#include "flight.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"

/* All ranks meet there. */
static int is_of_all(const json_t *entry)
{
    return strcmp(json_text_of(entry, "meets"), "all") == 0;
}

int flight_is_same(const json_t *a, const json_t *b)
{
    return is_of_all(a) && is_of_all(b) &&
           json_integer_of(a, "exchange") == json_integer_of(b, "exchange") &&
           json_integer_of(a, "collective_seq_id") == json_integer_of(b, "collective_seq_id");
}

int flight_has_issued(const struct flight *flight, const json_t *entry)
{
    size_t i;
    const json_t *own;
    json_array_foreach (flight->entries, i, own)
        if (is_of_all(own) &&
            json_integer_of(own, "exchange") == json_integer_of(entry, "exchange") &&
            json_integer_of(own, "collective_seq_id") >=
                json_integer_of(entry, "collective_seq_id"))
            return 1;
    return 0;
}

const json_t *flight_find(const struct flight *flight, const json_t *entry)
{
    size_t i;
    const json_t *own;
    json_array_foreach (flight->entries, i, own)
        if (flight_is_same(own, entry))
            return own;
    return NULL;
}

static const json_t *find_current(const json_t *entries)
{
    for (size_t i = json_array_size(entries); i-- > 0;) {
        const json_t *entry = json_array_get(entries, i);
        const char *end = json_text_of(entry, "end");
        if (strcmp(end, "failed") == 0 ||
            (strcmp(end, "") == 0 && strcmp(json_text_of(entry, "state"), "started") == 0))
            return entry;
    }
    return NULL;
}

/* ---------------------------------------------------------------- files */

/* In a root that was read: its file. */
#define PATH "path"

static int refuse(const struct flights *flights, const char *path, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", flights->reader, path, why);
    return -1;
}

static int is_of(const json_t *root, const char *name, const json_t *chosen)
{
    return strcmp(json_text_of(root, name), json_text_of(chosen, name)) == 0;
}

/* The communicator whose files come first in the newest job: that of all ranks, if it has any. */
static const json_t *choose(const json_t *roots)
{
    const json_t *root, *chosen = json_array_get(roots, 0);
    size_t i;
    json_array_foreach (roots, i, root)
        if (json_integer_of(root, "time_written_ns") > json_integer_of(chosen, "time_written_ns"))
            chosen = root;
    json_array_foreach (roots, i, root)
        if (is_of(root, "job", chosen))
            return root;
    return chosen;
}

static int add(struct flights *flights, json_t *root, const char *path)
{
    struct flight *flight = &flights->of[json_integer_of(root, "rank")];
    if (flight->root != NULL)
        return refuse(flights, path, "is a second record of its rank");
    *flight = (struct flight){.root = root, .entries = json_object_get(root, "entries")};
    flight->current = find_current(flight->entries);
    return 0;
}

static int sort_out(struct flights *flights)
{
    const json_t *chosen = choose(flights->roots);
    json_t *root;
    size_t i, num_of_jobs = 0, num_of_others = 0;
    flights->num_ranks = (int32_t)json_integer_of(chosen, "world_size");
    flights->of = calloc((size_t)flights->num_ranks, sizeof *flights->of);
    if (flights->of == NULL)
        return refuse(flights, json_text_of(chosen, PATH), "no memory for its ranks");
    json_array_foreach (flights->roots, i, root)
        if (!is_of(root, "job", chosen))
            num_of_jobs++;
        else if (!is_of(root, "key", chosen) ||
                 json_integer_of(root, "world_size") != flights->num_ranks)
            num_of_others++;
        else if (add(flights, root, json_text_of(root, PATH)) != 0)
            return -1;
    if (num_of_jobs > 0)
        fprintf(stderr, "%s: %zu files are of other jobs: left out, as the newest is of job %s\n",
                flights->reader, num_of_jobs, json_text_of(chosen, "job"));
    if (num_of_others > 0)
        fprintf(stderr, "%s: %zu files are of other communicators of the job: left out\n",
                flights->reader, num_of_others);
    return 0;
}

static int read_file(struct flights *flights, const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (root == NULL)
        return refuse(flights, path, error.text);
    json_array_append_new(flights->roots, root);
    const int64_t rank = json_integer_of(root, "rank"),
                  num_ranks = json_integer_of(root, "world_size");
    if (!json_is_array(json_object_get(root, "entries")) || num_ranks < 1 ||
        num_ranks > INT32_MAX || rank < 0 || rank >= num_ranks)
        return refuse(flights, path, "is no flight record of weft");
    json_object_set_new(root, PATH, json_string(path));
    return 0;
}

static int is_record(const struct dirent *entry)
{
    const size_t length = strlen(entry->d_name);
    return strncmp(entry->d_name, "record.", 7) == 0 && length > 12 &&
           strcmp(entry->d_name + length - 5, ".json") == 0;
}

static int read_directory(struct flights *flights, const char *path)
{
    struct dirent **names = NULL;
    const int num_names = scandir(path, &names, is_record, alphasort);
    int result = 0;
    for (int i = 0; i < num_names; i++) {
        char file[PATH_MAX];
        snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
        free(names[i]);
        if (result == 0)
            result = read_file(flights, file);
    }
    free(names);
    return num_names > 0 ? result : refuse(flights, path, "has no record.*.json");
}

int flights_read(struct flights *flights, const char *reader, const struct option_texts *files)
{
    *flights = (struct flights){.reader = reader, .roots = json_array()};
    if (files->count == 0) {
        fprintf(stderr, "%s: no FILE is given; WEFT_RECORD names the directory of them\n", reader);
        return STATUS_USAGE;
    }
    for (int32_t i = 0; i < files->count; i++) {
        struct stat status;
        const int is_directory = stat(files->texts[i], &status) == 0 && S_ISDIR(status.st_mode);
        if ((is_directory ? read_directory : read_file)(flights, files->texts[i]) != 0)
            return STATUS_FAILURE;
    }
    return sort_out(flights) == 0 ? EXIT_SUCCESS : STATUS_FAILURE;
}

void flights_free(struct flights *flights)
{
    json_decref(flights->roots);
    free(flights->of);
}
