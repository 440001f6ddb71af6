/* SPDX-License-Identifier: MIT */
#include "expert.h"

#include <math.h>

#include "workload/rng.h"

size_t expert_num_parameters(const struct shape *shape)
{
    return 2 * (size_t)shape->hidden * (size_t)shape->ffn;
}

void expert_fill(const struct shape *shape, int32_t expert_idx, float *parameters)
{
    struct rng rng = {rng_key(shape->seed, (uint64_t)expert_idx)};
    const float scale = 1.0f / sqrtf((float)shape->hidden);
    for (size_t i = 0; i < expert_num_parameters(shape); i++)
        parameters[i] = scale * rng_normal(&rng);
}

/* y = M x */
static void multiply(const float *matrix, int32_t num_rows, int32_t num_columns, const float *x,
                     float *y)
{
    for (int32_t row = 0; row < num_rows; row++) {
        float sum = 0.0f;
        for (int32_t column = 0; column < num_columns; column++)
            sum += matrix[row * num_columns + column] * x[column];
        y[row] = sum;
    }
}

void expert_forward(const struct shape *shape, const float *parameters, const float *x,
                    float *activation, float *y)
{
    const float *w1 = parameters;
    const float *w2 = parameters + (size_t)shape->ffn * (size_t)shape->hidden;
    multiply(w1, shape->ffn, shape->hidden, x, activation);
    for (int32_t i = 0; i < shape->ffn; i++)
        activation[i] = activation[i] > 0.0f ? activation[i] : 0.0f;
    multiply(w2, shape->hidden, shape->ffn, activation, y);
}

/* What one entry dy of a product's gradient gives to the gradients of its matrix row and input. */
static void backward_row(const float *row, const float *x, float dy, int32_t num_columns,
                         float *drow, float *dx)
{
    for (int32_t column = 0; column < num_columns; column++) {
        drow[column] += dy * x[column];
        dx[column] += dy * row[column];
    }
}

void expert_backward(const struct shape *shape, const struct expert_backward_args *args)
{
    const size_t w2_offset = (size_t)shape->ffn * (size_t)shape->hidden;
    for (int32_t i = 0; i < shape->ffn; i++)
        args->dactivation[i] = 0.0f;
    for (int32_t h = 0; h < shape->hidden; h++) {
        const size_t row = w2_offset + (size_t)h * (size_t)shape->ffn;
        backward_row(args->parameters + row, args->activation, args->dy[h], shape->ffn,
                     args->dparameters + row, args->dactivation);
    }
    for (int32_t i = 0; i < shape->ffn; i++) {
        if (args->activation[i] <= 0.0f)
            continue;
        const size_t row = (size_t)i * (size_t)shape->hidden;
        backward_row(args->parameters + row, args->x, args->dactivation[i], shape->hidden,
                     args->dparameters + row, args->dx);
    }
}
