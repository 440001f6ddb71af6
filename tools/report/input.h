/* SPDX-License-Identifier: MIT */
/* Reads files of JSON: values one behind the other, an object each, or arrays of objects. */
#pragma once

#include <jansson.h>

enum { INPUT_ERROR_BYTES = 512 };

/* Takes an object, at a line. Returns NULL, or what is wrong. */
typedef const char *(*input_taker)(void *argument, json_t *object);

/* 0, or -1 with the file, the line and the reason. */
int input_read(const char *path, input_taker take, void *argument, char error[INPUT_ERROR_BYTES]);
