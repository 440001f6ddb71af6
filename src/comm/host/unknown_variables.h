/* SPDX-License-Identifier: MIT */
/* Finds environment variables that look like weft's and are not. Else a typo would go unnoticed. */
#pragma once

/* Warns of each such variable. Further calls in the process do nothing. */
void weft__warn_of_unknown_variables(void);
