/* SPDX-License-Identifier: MIT */
#include "flight.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "weft.h"

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

static int refuse(const struct flights *flights, json_t *root, const char *path, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", flights->reader, path, why);
    json_decref(root);
    return -1;
}

static int add(struct flights *flights, json_t *root, const char *path)
{
    const int64_t rank = json_integer_of(root, "rank"),
                  num_ranks = json_integer_of(root, "world_size");
    if (!json_is_array(json_object_get(root, "entries")) || num_ranks < 1 ||
        num_ranks > INT32_MAX || rank < 0 || rank >= num_ranks)
        return refuse(flights, root, path, "is no flight record of weft");
    if (flights->of == NULL) {
        flights->of = calloc((size_t)num_ranks, sizeof *flights->of);
        if (flights->of == NULL)
            return refuse(flights, root, path, "no memory for its ranks");
        flights->num_ranks = (int32_t)num_ranks;
        flights->key = json_text_of(root, "key");
    }
    if (num_ranks != flights->num_ranks || strcmp(json_text_of(root, "key"), flights->key) != 0) {
        fprintf(stderr, "%s: %s is of another communicator: left out\n", flights->reader, path);
        json_decref(root);
        return 0;
    }
    struct flight *flight = &flights->of[rank];
    if (flight->root != NULL)
        return refuse(flights, root, path, "is a second record of its rank");
    flight->root = root;
    flight->entries = json_object_get(root, "entries");
    flight->current = find_current(flight->entries);
    return 0;
}

static int read_file(struct flights *flights, const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (root == NULL)
        return refuse(flights, NULL, path, error.text);
    return add(flights, root, path);
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
    return num_names > 0 ? result : refuse(flights, NULL, path, "has no record.*.json");
}

int flights_read(struct flights *flights, const char *reader, const char *const *paths,
                 int32_t num_paths)
{
    *flights = (struct flights){.reader = reader};
    for (int32_t i = 0; i < num_paths; i++) {
        struct stat status;
        const int is_directory = stat(paths[i], &status) == 0 && S_ISDIR(status.st_mode);
        if ((is_directory ? read_directory : read_file)(flights, paths[i]) != 0)
            return -1;
    }
    return 0;
}

void flights_free(struct flights *flights)
{
    for (int32_t rank = 0; rank < flights->num_ranks; rank++)
        json_decref(flights->of[rank].root);
    free(flights->of);
}
