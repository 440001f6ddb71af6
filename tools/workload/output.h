/* SPDX-License-Identifier: MIT */
/* Lost output is a failure. One place checks for it, when the process exits. */
#pragma once

struct json_t;

/* Call this before anything is opened. If standard output or error could not be written, the exit
 * prints an error of command *name, and turns status 0 into 1. `name` must live as long as the
 * process. */
void output_check_at_exit(const char *const *name);

/* Writes out what standard output has buffered: 0, or -1 if not all could be written, ever. */
int output_flush(void);

/* For those who write by other ways than stdout. */
void output_note_failure(int error);

/* Prints the object, which it takes over, as a line of JSON. It adds what tells one result from
 * another: version and commit, host, device (NULL: none), and the date. 0, or -1 if the object is
 * NULL or could not be written. */
int output_json(struct json_t *object, const char *device);
