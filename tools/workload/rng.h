/* SPDX-License-Identifier: MIT */
/* Reproducible random numbers: integer arithmetic only, the same on every machine. */
#pragma once

#include <stdint.h>

/* The 64-bit mix of splitmix64: a hash of a counter, good enough to use its values directly. */
static inline uint64_t rng_hash(uint64_t counter)
{
    uint64_t z = counter + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The key of an independent sequence: fold further numbers in by calling it again. */
static inline uint64_t rng_key(uint64_t seed, uint64_t number)
{
    return rng_hash(rng_hash(seed) ^ number);
}

struct rng {
    uint64_t state; /* set it to the seed */
};

static inline uint64_t rng_next(struct rng *rng)
{
    uint64_t value = rng_hash(rng->state);
    rng->state += 0x9e3779b97f4a7c15u;
    return value;
}

/* In 0..bound-1; bound 1 or more. The bias is below bound / 2^32. */
static inline uint32_t rng_below(struct rng *rng, uint32_t bound)
{
    return (uint32_t)(((rng_next(rng) >> 32) * bound) >> 32);
}

/* In [0, 1), 24 bits, exact in fp32. */
static inline float rng_uniform(struct rng *rng)
{
    return (float)(rng_next(rng) >> 40) * 0x1p-24f;
}

/* Mean 0, variance 1, nearly normal, in about -3.46..3.46: the sum of the four 16-bit parts of one
 * hash, because log and cos differ between machines. */
static inline float rng_normal(struct rng *rng)
{
    const float inverse_deviation = 1.0f / 37837.227f; /* 65536 / sqrt(3) */
    uint64_t bits = rng_next(rng);
    int32_t sum =
        (int32_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48)) -
        2 * 65535;
    return (float)sum * inverse_deviation;
}
