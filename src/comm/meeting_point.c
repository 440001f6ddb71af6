/* SPDX-License-Identifier: MIT */
#include "comm/meeting_point.h"

#include <string.h>
#include <sys/random.h>

#include "comm/error.h"
#include "comm/settings.h"

static const char envelope_magic[8] = "weft-id1";

struct envelope {
    char magic[8];
    uint16_t port;
    uint8_t nonce[WEFT__NONCE_BYTES];
    char address[WEFT__ADDRESS_BYTES];
};

_Static_assert(sizeof(struct envelope) <= sizeof(weft_unique_id), "the id must hold an envelope");

void weft__meeting_point_to_id(const struct weft__meeting_point *point, weft_unique_id *id)
{
    struct envelope envelope = {.port = point->port};
    memcpy(envelope.magic, envelope_magic, sizeof(envelope.magic));
    memcpy(envelope.nonce, point->nonce, sizeof(envelope.nonce));
    memcpy(envelope.address, point->address, sizeof(envelope.address));
    memset(id, 0, sizeof(*id));
    memcpy(id, &envelope, sizeof(envelope));
}

weft_result weft__meeting_point_from_id(struct weft__meeting_point *point, const weft_unique_id *id)
{
    struct envelope envelope;
    memcpy(&envelope, id, sizeof(envelope));
    if (memcmp(envelope.magic, envelope_magic, sizeof(envelope.magic)) != 0 || envelope.port == 0 ||
        memchr(envelope.address, '\0', sizeof(envelope.address)) == NULL)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "id was not made by weft_unique_id_create of this version");
    *point = (struct weft__meeting_point){.port = envelope.port};
    memcpy(point->nonce, envelope.nonce, sizeof(point->nonce));
    memcpy(point->address, envelope.address, sizeof(point->address));
    return WEFT_OK;
}

static int hex_digit(char digit)
{
    static const char digits[] = "0123456789abcdef";
    char lower = digit >= 'A' && digit <= 'F' ? (char)(digit - 'A' + 'a') : digit;
    const char *found = lower != '\0' ? strchr(digits, lower) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

weft_result weft__unique_id_from_hex(weft_unique_id *id, const char *hex)
{
    const char *name = weft__settings[WEFT__SETTING_ID].name;
    if (strlen(hex) != 2 * sizeof(id->bytes))
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "%s has %zu characters; it must have %zu hexadecimal digits", name,
                           strlen(hex), 2 * sizeof(id->bytes));
    for (size_t byte = 0; byte < sizeof(id->bytes); byte++) {
        int high = hex_digit(hex[2 * byte]), low = hex_digit(hex[2 * byte + 1]);
        if (high < 0 || low < 0)
            return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                               "%s has \"%.2s\" at character %zu; it must be hexadecimal", name,
                               hex + 2 * byte, 2 * byte);
        id->bytes[byte] = (unsigned char)(high << 4 | low);
    }
    return WEFT_OK;
}

uint64_t weft__hash(uint64_t seed, const void *bytes, size_t num_bytes)
{
    const uint64_t prime = UINT64_C(0x100000001b3);
    uint64_t hash = seed;
    for (size_t byte = 0; byte < num_bytes; byte++)
        hash = (hash ^ ((const uint8_t *)bytes)[byte]) * prime;
    return hash;
}

weft_result weft__random_bytes(void *bytes, size_t num_bytes)
{
    if (getrandom(bytes, num_bytes, 0) != (ssize_t)num_bytes)
        return weft__system_error("getrandom");
    return WEFT_OK;
}
