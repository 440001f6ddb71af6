/* SPDX-License-Identifier: MIT */
/* The version and the commit of this build. */
#pragma once

#include <argp.h>
#include <stdio.h>

enum { VERSION_CHARS = 40 };
void version_text(char text[VERSION_CHARS]); /* "0.2.0" */
const char *version_commit(void);            /* NULL: not known */

/* Prints the version; argp_program_version_hook. */
void version_print(FILE *stream, struct argp_state *state);
