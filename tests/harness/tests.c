/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "harness/cmocka.h"

static struct {
    struct CMUnitTest *tests;
    size_t count;
} all;

void tests_register(const struct CMUnitTest *tests, size_t num_tests)
{
    all.tests = realloc(all.tests, (all.count + num_tests) * sizeof *tests);
    if (all.tests == NULL)
        abort();
    memcpy(all.tests + all.count, tests, num_tests * sizeof *tests);
    all.count += num_tests;
}

int tests_run(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    return _cmocka_run_group_tests("tests", all.tests, all.count, setup, teardown);
}
