/* SPDX-License-Identifier: MIT */
#include "workload/logarithmic.h"

#include <math.h>
#include <string.h>

#include "workload/elements.h"

enum { BLOCK = 512, NUM_STEPS = 510, NAN_CODE = 512 };

/* Where an element is: its byte, its two bits, and its group's header. */
struct place {
    int64_t low, high, header;
    int shift;
};

static struct place place_of(int64_t num_elements, int64_t i)
{
    const int64_t begin = i / BLOCK * BLOCK, rest = num_elements - begin;
    const int64_t length = rest < BLOCK ? rest : BLOCK, at = begin / 128 * LOGARITHMIC_GROUP_BYTES;
    const int64_t group = (i - begin) / 128, in_group = i % 128;
    return (struct place){.low = at + i - begin,
                          .high = at + length + group * 32 + in_group % 32,
                          .header = at + length + length / 4 + group * 4,
                          .shift = (int)(in_group / 32 * 2)};
}

static uint32_t bits_of(double value)
{
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return bits;
}

static double number_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* The two halves of a header. */
struct range {
    int64_t low, high;
};

static int64_t step_of(struct range range)
{
    return (range.high - range.low) * 65536 / NUM_STEPS;
}

static struct range find_range(weft_dtype wide, const void *src, int64_t first)
{
    double least = INFINITY, greatest = 0;
    for (int64_t i = first; i < first + LOGARITHMIC_GROUP; i++) {
        const double magnitude = fabs((double)element_load(wide, src, i));
        if (magnitude > 0 && isfinite(magnitude)) {
            least = fmin(least, magnitude);
            greatest = fmax(greatest, magnitude);
        }
    }
    struct range range = {0, 0};
    if (greatest == 0)
        return range;
    range.high = bits_of(greatest) / 65536 + (bits_of(greatest) % 65536 != 0);
    range.high = range.high < 0x7f7f ? range.high : 0x7f7f;
    range.low = bits_of(least) / 65536;
    if (range.low < range.high - INT64_C(32) * 128)
        range.low = range.high - INT64_C(32) * 128;
    return range;
}

static int code_of(double value, struct range range)
{
    const int64_t base = range.low * 65536, step = step_of(range);
    if (!isfinite(value))
        return NAN_CODE;
    if (value == 0 || 2 * fabs(value) < number_of((uint32_t)base))
        return 0;
    const int64_t above = (int64_t)bits_of(fabs(value)) - base;
    /* As weft.h says: a product and a sum of fp32. */
    const double inverse = step == 0 ? 0 : (double)(float)(1.0 / (double)step);
    const double position = (double)(float)((double)(float)(above < 0 ? 0 : above) * inverse);
    const double steps = floor((double)(float)(fmin(position, NUM_STEPS) + 0.5));
    return (signbit(value) ? 512 : 0) + 1 + (int)steps;
}

void logarithmic_make_row(weft_dtype wide, const void *src, int64_t num_elements, uint8_t *row)
{
    memset(row, 0, (size_t)(num_elements / LOGARITHMIC_GROUP) * LOGARITHMIC_GROUP_BYTES);
    for (int64_t first = 0; first < num_elements; first += LOGARITHMIC_GROUP) {
        const struct range range = find_range(wide, src, first);
        const uint32_t header = (uint32_t)(range.high << 16 | range.low);
        memcpy(row + place_of(num_elements, first).header, &header, sizeof header);
        for (int64_t i = first; i < first + LOGARITHMIC_GROUP; i++) {
            const struct place place = place_of(num_elements, i);
            const int code = code_of((double)element_load(wide, src, i), range);
            row[place.low] = (uint8_t)(code % 256);
            row[place.high] = (uint8_t)(row[place.high] | code / 256 << place.shift);
        }
    }
}

float logarithmic_number(const uint8_t *row, int64_t num_elements, int64_t i)
{
    const struct place place = place_of(num_elements, i);
    const int code = row[place.low] + (row[place.high] >> place.shift & 3) * 256;
    const int steps = code % 512;
    uint32_t header;
    memcpy(&header, row + place.header, sizeof header);
    const struct range range = {header % 65536, header / 65536};
    if (steps == 0)
        return code == NAN_CODE ? NAN : 0.0f;
    const double magnitude =
        number_of((uint32_t)(range.low * 65536 + (steps - 1) * step_of(range)));
    return (float)(code >= 512 ? -magnitude : magnitude);
}
