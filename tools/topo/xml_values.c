/* SPDX-License-Identifier: MIT */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/host/error.h"
#include "topo/xml.h"

weft_result xml_error(const struct xml *element, const char *format, ...)
{
    char message[512], place[320] = "";
    const struct xml *root = element;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    while (root->parent != NULL)
        root = root->parent;
    if (root->source != NULL && element->line > 0)
        snprintf(place, sizeof place, "%.256s:%" PRId32 ": ", root->source, element->line);
    return weft__error(WEFT_ERROR_INVALID_ARGUMENT, "%selement %.32s: %s", place, element->name,
                       message);
}

static weft_result parse_integer(const struct xml *element, struct xml_number number,
                                 const char *text, int32_t *value)
{
    char *end;
    errno = 0;
    const long long parsed = strtoll(text, &end, 0);
    if (end == text || *end != '\0' || isspace((unsigned char)*text) || errno != 0 ||
        parsed < number.min || parsed > number.max)
        return xml_error(element, "%s is \"%.64s\", allowed are numbers of %" PRId64 "..%" PRId64,
                         number.name, text, number.min, number.max);
    *value = (int32_t)parsed;
    return WEFT_OK;
}

weft_result xml_integer_or(const struct xml *element, struct xml_number number, int32_t usual,
                           int32_t *value)
{
    const char *text = xml_text(element, number.name);
    *value = usual;
    return *text != '\0' ? parse_integer(element, number, text, value) : WEFT_OK;
}

weft_result xml_integer(const struct xml *element, struct xml_number number, int32_t *value)
{
    const char *text = xml_text(element, number.name);
    if (*text == '\0')
        return xml_error(element, "attribute %s is missing", number.name);
    return parse_integer(element, number, text, value);
}

weft_result xml_real_or(const struct xml *element, const char *name, float usual, float *value)
{
    const char *text = xml_text(element, name);
    char *end;
    *value = usual;
    if (*text == '\0')
        return WEFT_OK;
    const float parsed = strtof(text, &end);
    if (*end != '\0' || isspace((unsigned char)*text) || !isfinite(parsed) || parsed < 0)
        return xml_error(element, "%s is \"%.64s\", allowed are numbers of at least 0", name, text);
    *value = parsed;
    return WEFT_OK;
}

weft_result xml_hex_or(const struct xml *element, const char *name, uint64_t usual, uint64_t *value)
{
    const char *text = xml_text(element, name);
    char *end;
    *value = usual;
    if (*text == '\0')
        return WEFT_OK;
    errno = 0;
    const unsigned long long parsed = strtoull(text, &end, 16);
    if (*end != '\0' || !isxdigit((unsigned char)*text) || errno != 0)
        return xml_error(element, "%s is \"%.64s\", allowed are hexadecimal numbers of 64 bits",
                         name, text);
    *value = parsed;
    return WEFT_OK;
}
