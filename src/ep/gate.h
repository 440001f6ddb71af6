/* SPDX-License-Identifier: MIT */
/* Host side of the gate, whose launches meet no other rank. */
#pragma once

#include "launch/programs.h"
#include "programs/gate/gate.h"
#include "programs/gate/gate_backward.h"
#include "programs/gate/gate_balance.h"

/* Sets group_experts and group_reciprocal itself. */
weft_result weft__gate_choose(weft_comm *comm, const struct wp_gate_args *given,
                              weft_stream *stream);
weft_result weft__gate_backward(weft_comm *comm, const struct wp_gate_backward_args *args,
                                weft_stream *stream);
weft_result weft__gate_balance(weft_comm *comm, const struct wp_gate_balance_args *args,
                               weft_stream *stream);
