/* SPDX-License-Identifier: MIT */
/* cmocka, after the headers that it wants before it, and tests that need no list: each says itself
 * that it is one. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "weft.h"

/* Before the body of a test. A program's tests run in the order in which they are defined. */
#define TEST(name) TEST_AS(name, cmocka_unit_test(name))
/* A test that is one call: a row of a table of tests. */
#define TEST_CALL(name, ...)                                                                       \
    TEST(name)                                                                                     \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
    }
/* With an object of this type between open(object) and close(object). */
#define TEST_WITH(name, type, object, open, close)                                                 \
    static void name##_with(type *object);                                                         \
    TEST(name)                                                                                     \
    {                                                                                              \
        type one;                                                                                  \
        open(&one);                                                                                \
        name##_with(&one);                                                                         \
        close(&one);                                                                               \
    }                                                                                              \
    static void name##_with(type *object)
/* The same, run once for each of the CMUnitTests that follow: with a fixture, or in several
 * ways. */
#define TEST_AS(name, ...)                                                                         \
    static void name(void **state);                                                                \
    __attribute__((constructor)) static void register_##name(void)                                 \
    {                                                                                              \
        const struct CMUnitTest tests[] = {__VA_ARGS__};                                           \
        tests_register(tests, sizeof tests / sizeof *tests);                                       \
    }                                                                                              \
    static void name(void **state __attribute__((unused)))

void tests_register(const struct CMUnitTest *tests, size_t num_tests);

/* All of them, between setup and teardown, which may be NULL: the exit status. A program that has
 * nothing else to do needs no main. */
int tests_run(CMFixtureFunction setup, CMFixtureFunction teardown);

/* A call of the library, or a result of one. */
#define assert_ok(call) assert_result((call), #call, WEFT_OK, "", __FILE__, __LINE__)
/* It must give `expected`, with a message that contains `text`. */
#define assert_error(call, expected, text)                                                         \
    assert_result((call), #call, expected, text, __FILE__, __LINE__)

static inline void assert_result(weft_result result, const char *call, weft_result expected,
                                 const char *text, const char *file, int line)
{
    const char *message = weft_last_error();
    const int is_told = text[0] == '\0' || strstr(message, text) != NULL;
    if (result == expected && is_told)
        return;
    print_error("%s gave \"%s\": %s\n", call, weft_result_string(result), message);
    if (!is_told)
        print_error("the message lacks \"%s\"\n", text);
    _fail(file, line);
}
