/* SPDX-License-Identifier: MIT */
#pragma once

#include "machine/cuda/cuda_stream.h"

extern const struct weft__graphs weft__cuda_graphs;

/* The communicators of the graph that a capture makes, with all streams that take part in it; NULL
 * if that is none of weft's. */
struct weft__cuda_comms *weft__cuda_graph_comms(cuuint64_t capture_id);

/* The stream is about to go: ends its capture, if weft_graph_begin began one, and drops what was
 * recorded. */
void weft__cuda_graph_abandon(struct weft__cuda_stream *stream);
