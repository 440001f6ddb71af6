/* SPDX-License-Identifier: MIT */
/* cmocka, after the headers that it wants before it. */
#ifndef TESTS_CMOCKA_H
#define TESTS_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* cmocka hands a state to every test; hardly any has one. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#endif
