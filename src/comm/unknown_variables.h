/* SPDX-License-Identifier: MIT */
/* Environment variables that look like weft's and are not: a slip of the pen would else be silently nothing. */
#pragma once

/* Warns of each, once in a process, when communicators are made. */
void weft__warn_of_unknown_variables(void);
