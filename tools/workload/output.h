/* SPDX-License-Identifier: MIT */
/* Output that is lost is a failure: looked at in one place, when the process exits. */
#pragma once

/* Before anything is opened. At exit: if standard output or error could not be written, tells so (*name is the command's) and makes a
 * status of 0 a 1. `name` must lie as long as the process. */
void output_check_at_exit(const char *const *name);

/* Writes out what standard output has buffered: 0, or -1 if not all could be written, ever. */
int output_flush(void);

/* For those who write by other ways than stdout. */
void output_note_failure(int error);
