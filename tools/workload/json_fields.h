/* SPDX-License-Identifier: MIT */
/* Fields of a JSON object that may lack them. */
#pragma once

#include <jansson.h>

/* "" if there is no such text. */
static inline const char *json_text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

/* 0 if there is no such integer. */
static inline int64_t json_integer_of(const json_t *object, const char *name)
{
    return (int64_t)json_integer_value(json_object_get(object, name));
}
