/* SPDX-License-Identifier: MIT */
/* The header is good C++, and its functions link from there. */
#include "consumer.c"
