/* SPDX-License-Identifier: MIT */
#include "machine/host.h"

#include "api/check.h"
#include "api/destroy.h"

static weft_result check_has_graphs(const struct weft__machine *machine)
{
    if (machine->graphs != NULL)
        return WEFT_OK;
    return weft__error(WEFT_ERROR_UNSUPPORTED,
                       "stream is of machine %s, which has no graphs: machine cuda has them",
                       machine->hooks.name);
}

weft_result weft_graph_begin(weft_stream *stream)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_STREAM, stream, "stream"));
    WEFT__TRY(check_has_graphs(stream->machine));
    return stream->machine->graphs->begin(stream);
}

weft_result weft_graph_end(weft_stream *stream, weft_graph **graph)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_STREAM, stream, "stream"));
    WEFT__TRY(weft__check_not_null(graph, "graph"));
    WEFT__TRY(check_has_graphs(stream->machine));
    weft_graph *created;
    WEFT__TRY(stream->machine->graphs->end(stream, &created));
    return weft__give(WEFT__KIND_GRAPH, created, NULL, graph);
}

weft_result weft_graph_launch(weft_graph *graph, weft_stream *stream)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_GRAPH, graph, "graph"));
    WEFT__TRY(weft__object_check(WEFT__KIND_STREAM, stream, "stream"));
    if (stream->machine != graph->machine)
        return weft__invalid("stream is of machine %s, graph of machine %s",
                             stream->machine->hooks.name, graph->machine->hooks.name);
    return graph->machine->graphs->launch(graph, stream);
}

weft_result weft_graph_destroy(weft_graph *graph)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_GRAPH, graph, "graph"));
    return weft__destroy(WEFT__KIND_GRAPH, graph);
}
