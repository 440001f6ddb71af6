/* SPDX-License-Identifier: MIT */
/* Rows as they are delivered in a format: made without a dispatch, by the functions that only quantise. */
#include <stdlib.h>

#include "ep_ll.h"
#include "ep_verify.h"
#include "workload/try.h"

struct planes { /* of all tokens, on the machine */
    void *wide, *elements, *scales;
    size_t wide_bytes, element_bytes, scale_bytes;
};

static weft_result alloc_planes(struct planes *planes, struct ep_layer *layer)
{
    TRY(weft_memory_alloc(layer->comm, planes->wide_bytes, &planes->wide));
    TRY(weft_memory_alloc(layer->comm, planes->element_bytes, &planes->elements));
    return weft_memory_alloc(layer->comm, planes->scale_bytes, &planes->scales);
}

static void free_planes(const struct planes *planes, struct ep_layer *layer)
{
    void *const blocks[] = {planes->wide, planes->elements, planes->scales};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (blocks[i])
            weft_memory_free(layer->comm, blocks[i]);
}

/* There and back. */
static weft_result quantise(const struct planes *planes, struct ep_layer *layer, int64_t num_rows)
{
    weft_rows_args args = ep_ll_rows_args(layer->options);
    args.src = planes->wide;
    args.dst = planes->elements;
    args.scales = planes->scales;
    args.num_rows = num_rows;
    TRY(weft_rows_quantise(layer->comm, &args, layer->stream));
    args.src = planes->elements;
    args.dst = planes->wide;
    TRY(weft_rows_dequantise(layer->comm, &args, layer->stream));
    return weft_stream_synchronize(layer->stream);
}

static weft_result fetch(struct ep_quantised *quantised, const struct planes *planes,
                         struct ep_layer *layer)
{
    TRY(weft_memory_copy(layer->comm, quantised->rows, planes->wide, planes->wide_bytes));
    TRY(weft_memory_copy(layer->comm, quantised->elements, planes->elements,
                         planes->element_bytes));
    return weft_memory_copy(layer->comm, quantised->scales, planes->scales, planes->scale_bytes);
}

static weft_result fill(struct ep_quantised *quantised, struct ep_layer *layer, int64_t num_rows)
{
    const struct ep_options *options = layer->options;
    const struct payload payload = ep_layer_payload(layer);
    struct planes planes = {.wide_bytes = (size_t)num_rows * options->row_bytes,
                            .element_bytes = (size_t)num_rows * ep_ll_element_bytes(options),
                            .scale_bytes = (size_t)num_rows * ep_ll_scale_bytes(options)};
    for (int64_t i = 0; i < num_rows; i++)
        payload_fill_row(&payload, layer->routing->loaded_begin + i, 0,
                         quantised->rows + (size_t)i * options->row_bytes, options->row_bytes);
    weft_result result = alloc_planes(&planes, layer);
    if (result == WEFT_OK)
        result = weft_memory_copy(layer->comm, planes.wide, quantised->rows, planes.wide_bytes);
    if (result == WEFT_OK)
        result = quantise(&planes, layer, num_rows);
    if (result == WEFT_OK)
        result = fetch(quantised, &planes, layer);
    free_planes(&planes, layer);
    return result;
}

weft_result ep_quantised_open(struct ep_quantised *quantised, struct ep_layer *layer)
{
    const struct ep_options *options = layer->options;
    const int64_t num_rows = layer->routing->loaded_end - layer->routing->loaded_begin;
    *quantised = (struct ep_quantised){
        .elements = calloc((size_t)num_rows + 1, ep_ll_element_bytes(options)),
        .scales = calloc((size_t)num_rows + 1, ep_ll_scale_bytes(options)),
        .rows = calloc((size_t)num_rows + 1, options->row_bytes),
    };
    if (!quantised->elements || !quantised->scales || !quantised->rows)
        return WEFT_ERROR_OUT_OF_MEMORY;
    return num_rows > 0 ? fill(quantised, layer, num_rows) : WEFT_OK;
}

void ep_quantised_close(struct ep_quantised *quantised)
{
    free(quantised->elements);
    free(quantised->scales);
    free(quantised->rows);
}
