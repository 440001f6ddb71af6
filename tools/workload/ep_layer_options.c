/* SPDX-License-Identifier: MIT */
#include "workload/ep_layer_options.h"

#include "workload/ep_oracle.h"

const char *const ep_op_names[] = {[EP_LAYOUT] = "layout",
                                   [EP_NOTIFY] = "notify",
                                   [EP_DISPATCH] = "dispatch",
                                   [EP_COMBINE] = "combine",
                                   [EP_LAYER] = "layer",
                                   [EP_LL_DISPATCH] = "ll_dispatch",
                                   [EP_LL_COMBINE] = "ll_combine",
                                   [EP_LL_LAYER] = "ll_layer",
                                   [EP_DISPATCH_COUNTED] = "dispatch_counted",
                                   [EP_DISPATCH_CAPACITY] = "dispatch_capacity",
                                   [EP_DISPATCH_COMBINE] = "dispatch_combine",
                                   [EP_LL_DISPATCH_RELEASE] = "ll_dispatch_release",
                                   [EP_NUM_OPS] = NULL};

static const struct operation {
    enum ep_mode mode;
    int parts; /* of enum ep_part */
} operations[] = {
    [EP_LAYOUT] = {EP_MODE_NORMAL, EP_PART_LAYOUT},
    [EP_NOTIFY] = {EP_MODE_NORMAL, EP_PART_NOTIFY},
    [EP_DISPATCH] = {EP_MODE_NORMAL, EP_PART_DISPATCH},
    [EP_COMBINE] = {EP_MODE_NORMAL, EP_PART_COMBINE},
    [EP_LAYER] = {EP_MODE_NORMAL,
                  EP_PART_LAYOUT | EP_PART_NOTIFY | EP_PART_DISPATCH | EP_PART_COMBINE},
    [EP_LL_DISPATCH] = {EP_MODE_LOW_LATENCY, EP_PART_DISPATCH},
    [EP_LL_COMBINE] = {EP_MODE_LOW_LATENCY, EP_PART_COMBINE},
    [EP_LL_LAYER] = {EP_MODE_LOW_LATENCY, EP_PART_DISPATCH | EP_PART_COMBINE},
    [EP_DISPATCH_COUNTED] = {EP_MODE_NORMAL,
                             EP_PART_LAYOUT | EP_PART_NOTIFY | EP_PART_COUNTS | EP_PART_DISPATCH},
    [EP_DISPATCH_CAPACITY] = {EP_MODE_NORMAL, EP_PART_LAYOUT | EP_PART_NOTIFY | EP_PART_DISPATCH},
    [EP_DISPATCH_COMBINE] = {EP_MODE_NORMAL, EP_PART_DISPATCH | EP_PART_COMBINE},
    [EP_LL_DISPATCH_RELEASE] = {EP_MODE_LOW_LATENCY, EP_PART_DISPATCH | EP_PART_RELEASE}};

int ep_op_parts(enum ep_op op, const struct ep_layer_options *options)
{
    const struct operation *operation = &operations[op];
    if (operation->mode != options->mode ||
        (op == EP_LL_COMBINE && options->ll_answer == WEFT_LL_ANSWER_IN_SLOTS))
        return 0;
    /* In a graph there is no room for twenty results. */
    if (op == EP_LL_DISPATCH && options->start == EP_START_GRAPH)
        return EP_PART_DISPATCH | EP_PART_RELEASE;
    return options->kind == WEFT_UINT8 ? operation->parts & ~EP_PART_COMBINE : operation->parts;
}

int ep_op_is_timed(enum ep_op op, const struct ep_layer_options *options)
{
    int is_asked_for = options->ops.count == 0 && op < EP_NUM_USUAL_OPS;
    for (int32_t i = 0; i < options->ops.count; i++)
        is_asked_for = is_asked_for || options->ops.values[i] == (int64_t)op;
    return is_asked_for && ep_op_parts(op, options) != 0;
}

/* The host does not wait in a graph. */
int32_t ep_op_calls(enum ep_op op, const struct ep_layer_options *options)
{
    const int has_graph = options->start == EP_START_GRAPH && ep_op_is_timed(op, options) &&
                          !(ep_op_parts(op, options) & EP_PART_COUNTS);
    return has_graph ? EP_GRAPH_CALLS : 1;
}

int ep_op_contains(enum ep_op whole, enum ep_op part)
{
    return operations[whole].mode == operations[part].mode &&
           !(operations[part].parts & ~operations[whole].parts);
}

static int is_masked(const struct ep_layer_options *options, int32_t rank)
{
    for (int32_t i = 0; i < options->masked.count; i++)
        if (options->masked.values[i] == rank)
            return 1;
    return 0;
}

int ep_ll_are_cut(const struct ep_layer_options *options, int32_t a, int32_t b)
{
    return a != b && (is_masked(options, a) || is_masked(options, b));
}

uint64_t ep_ll_element_bytes(const struct ep_layer_options *options)
{
    return options->row_format == EP_ROW_FORMAT_DTYPE ? options->row_bytes
                                                      : (uint64_t)options->hidden;
}

uint64_t ep_ll_scale_bytes(const struct ep_layer_options *options)
{
    const uint64_t num_groups = (uint64_t)options->hidden / EP_LL_GROUP_ELEMENTS;
    if (options->row_format == EP_ROW_FORMAT_DTYPE)
        return 0;
    return options->row_format == EP_ROW_FORMAT_UE8M0 ? num_groups : num_groups * sizeof(float);
}

weft_dtype ep_wire_dtype(const struct ep_layer_options *options)
{
    return wire_dtypes[options->wire];
}
