/* SPDX-License-Identifier: MIT */
#include "comm/host/unknown_variables.h"

#include <stdatomic.h>
#include <string.h>

#include "comm/host/log.h"
#include "comm/host/settings.h"

enum { MAX_NAME = 64 };

/* Variables of the Python packages, tests and tools. Each row of docs/environment.md is here or in
 * settings.c. */
static const char *const others[] = {"WEFT_LIBRARY",
                                     "WEFT_DEEP_EP_COMBINE",
                                     "WEFT_DEEP_EP_POOL_BYTES",
                                     "WEFT_TRACE_DIR",
                                     "WEFT_TOOL",
                                     "WEFT_CC",
                                     "WEFT_HEADER",
                                     "WEFT_GENERATE_ABI",
                                     "WEFT_HOSTS_INSIDE"};
static const char prefix[] = "WEFT_", prefix_of_tests[] = "WEFT_TEST_";
enum { NUM_OTHERS = sizeof(others) / sizeof(others[0]) };

static const char *known(int i)
{
    return i < WEFT__NUM_SETTINGS ? weft__settings[i].name : others[i - WEFT__NUM_SETTINGS];
}

static int is_known(const char *name)
{
    if (strncmp(name, prefix_of_tests, strlen(prefix_of_tests)) == 0)
        return 1;
    for (int i = 0; i < WEFT__NUM_SETTINGS + NUM_OTHERS; i++)
        if (strcmp(name, known(i)) == 0)
            return 1;
    return 0;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* The number of letters to insert, leave out or change. */
static int distance(const char *a, const char *b)
{
    int row[MAX_NAME + 1];
    const int length = (int)strnlen(b, MAX_NAME);
    for (int j = 0; j <= length; j++)
        row[j] = j;
    for (int i = 0; i < MAX_NAME && a[i] != '\0'; i++) {
        int diagonal = row[0];
        row[0] = i + 1;
        for (int j = 0; j < length; j++) {
            const int changed = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = least(changed, least(diagonal, row[j]) + 1);
        }
    }
    return row[length];
}

static const char *nearest(const char *name)
{
    int found = 0;
    for (int i = 1; i < WEFT__NUM_SETTINGS + NUM_OTHERS; i++)
        if (distance(name, known(i)) < distance(name, known(found)))
            found = i;
    return known(found);
}

extern char **environ;

void weft__warn_of_unknown_variables(void)
{
    static atomic_flag has_looked = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&has_looked))
        return;
    for (char **variable = environ; variable != NULL && *variable != NULL; variable++) {
        char name[MAX_NAME] = "";
        const size_t length = strcspn(*variable, "=");
        if (strncmp(*variable, prefix, strlen(prefix)) != 0 || length >= sizeof(name))
            continue;
        memcpy(name, *variable, length);
        if (!is_known(name))
            weft__log(WEFT__LOG_WARN, WEFT__LOG_NO_RANK,
                      "%s is set, but weft has no such variable; the nearest is %s", name,
                      nearest(name));
    }
}
