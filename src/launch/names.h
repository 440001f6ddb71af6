/* SPDX-License-Identifier: MIT */
/* The names of what weft.h numbers; "?" for other numbers, as a peer's message might hold. */
#pragma once

#include <stdint.h>

#include "weft.h"

enum weft__enum {
    WEFT__ENUM_DTYPE,
    WEFT__ENUM_REDUCE_OP,
    WEFT__ENUM_COLLECTIVE,
    WEFT__ENUM_ALGORITHM,
    WEFT__ENUM_COLL_REASON,
    WEFT__ENUM_MACHINE,
    WEFT__ENUM_TEAM,
    WEFT__ENUM_LL_LAYOUT,
    WEFT__ENUM_LL_ANSWER,
    WEFT__ENUM_LL_PHASES,
    WEFT__ENUM_LL_CALL,
    WEFT__ENUM_LL_ON_MISSING,
    WEFT__ENUM_LL_ROUTE,
    WEFT__ENUM_LL_CARRIER,
    WEFT__ENUM_SCALE,
    WEFT__ENUM_EP_ORDER,
    WEFT__ENUM_EP_GAPS,
    WEFT__ENUM_BALANCE_MODE,
    WEFT__ENUM_GATE_SCORE,
    WEFT__ENUM_GATE_GROUP_SCORE,
    WEFT__ENUM_GATE_WEIGHTS,
    WEFT__NUM_ENUMS
};

/* Those that this library knows; weft.h does not tell, since there will be more. */
enum { WEFT__NUM_COLLECTIVES = WEFT_SCATTER + 1, WEFT__NUM_ALGORITHMS = WEFT_ALGORITHM_TREE + 1 };

/* As weft.h spells it: "WEFT_BF16". */
const char *weft__constant_name(enum weft__enum kind, int64_t value);

/* As tables of algorithms spell it: "all_reduce", "oneshot". */
const char *weft__collective_name(uint64_t collective);
const char *weft__algorithm_name(uint64_t algorithm);
const char *weft__coll_reason_name(uint64_t reason); /* as weft coll --explain spells it */
