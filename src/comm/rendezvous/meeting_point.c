/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/meeting_point.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "comm/host/error.h"
#include "comm/host/settings.h"

static const char envelope_magic[] = "weft-id1";

struct envelope {
    char magic[8];
    uint16_t port;
    uint8_t nonce[WEFT__NONCE_BYTES];
    char address[WEFT__ADDRESS_BYTES];
    uint32_t key;
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
        return weft__invalid("id was not made by weft_unique_id_create of this version");
    *point = (struct weft__meeting_point){.port = envelope.port};
    memcpy(point->nonce, envelope.nonce, sizeof(point->nonce));
    memcpy(point->address, envelope.address, sizeof(point->address));
    return WEFT_OK;
}

uint64_t weft__unique_id_key(const weft_unique_id *id)
{
    struct envelope envelope;
    memcpy(&envelope, id, sizeof(envelope));
    return envelope.key;
}

void weft__unique_id_set_key(weft_unique_id *id, uint32_t key)
{
    memcpy(id->bytes + offsetof(struct envelope, key), &key, sizeof(key));
}

static int hex_digit(char digit)
{
    static const char digits[] = "0123456789abcdef";
    char lower = digit >= 'A' && digit <= 'F' ? (char)(digit - 'A' + 'a') : digit;
    const char *found = lower != '\0' ? strchr(digits, lower) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

/* The number of bytes before the first pair of characters that is no two digits. */
static size_t parse_hex(const char *hex, uint8_t *bytes, size_t num_bytes)
{
    for (size_t byte = 0; byte < num_bytes; byte++) {
        int high = hex_digit(hex[2 * byte]), low = hex_digit(hex[2 * byte + 1]);
        if (high < 0 || low < 0)
            return byte;
        bytes[byte] = (uint8_t)(high << 4 | low);
    }
    return num_bytes;
}

weft_result weft__secret_from_hex(uint8_t secret[WEFT__NONCE_BYTES], const char *name,
                                  const char *hex)
{
    if (strlen(hex) != 2 * (size_t)WEFT__NONCE_BYTES ||
        parse_hex(hex, secret, WEFT__NONCE_BYTES) != WEFT__NONCE_BYTES)
        return weft__invalid("%s, of %zu characters, is not %d hexadecimal digits; random ones "
                             "come from: od -An -N16 -tx8 /dev/urandom | tr -d ' '",
                             name, strlen(hex), 2 * WEFT__NONCE_BYTES);
    for (size_t byte = 1; byte < WEFT__NONCE_BYTES; byte++)
        if (secret[byte] != secret[0])
            return WEFT_OK;
    return weft__invalid("all bytes of %s are the same, which anybody may guess; random ones come "
                         "from: od -An -N16 -tx8 /dev/urandom | tr -d ' '",
                         name);
}

weft_result weft__meeting_point_set_address(struct weft__meeting_point *point, const char *name,
                                            const char *address)
{
    if (address[0] == '\0' || strlen(address) >= sizeof(point->address))
        return weft__invalid("%s has %zu characters; 1 to %zu are allowed", name, strlen(address),
                             sizeof(point->address) - 1);
    if (strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0)
        return weft__invalid("%s is %s; it must be an address that the ranks can connect to", name,
                             address);
    snprintf(point->address, sizeof(point->address), "%s", address);
    return WEFT_OK;
}

int weft__address_is_loopback(const char *address)
{
    struct in_addr v4;
    struct in6_addr v6;
    const uint32_t loopback_net = 127;
    if (inet_pton(AF_INET, address, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == loopback_net;
    return strcmp(address, "localhost") == 0 ||
           (inet_pton(AF_INET6, address, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6));
}

weft_result weft__meeting_point_at(struct weft__meeting_point *point, const char *address,
                                   int32_t port, const char *secret)
{
    struct weft__meeting_point at = {.port = (uint16_t)port};
    WEFT__TRY(weft__meeting_point_set_address(&at, "address", address));
    WEFT__TRY(weft__secret_from_hex(at.nonce, "secret", secret));
    *point = at;
    return WEFT_OK;
}

enum { FIRST_PORT = 20000, NUM_PORTS = 9000, PORT_STRIDE = 1237, NUM_TRIED_PORTS = 8 };

void weft__meeting_point_draw_port(struct weft__meeting_point *point, const char *job)
{
    const uint64_t drawn = weft__hash(WEFT__HASH_SEED, job, strlen(job));
    point->port = (uint16_t)(FIRST_PORT + drawn % NUM_PORTS);
    point->port_choice = WEFT__PORT_DRAWN;
}

int weft__meeting_point_at_port(const struct weft__meeting_point *point, int index,
                                struct weft__meeting_point *at)
{
    if (index >= (point->port_choice == WEFT__PORT_DRAWN ? NUM_TRIED_PORTS : 1))
        return 0;
    *at = *point;
    if (index > 0)
        at->port =
            (uint16_t)(FIRST_PORT + (point->port - FIRST_PORT + index * PORT_STRIDE) % NUM_PORTS);
    at->port_choice = WEFT__PORT_FIXED;
    return 1;
}

weft_result weft__unique_id_from_hex(weft_unique_id *id, const char *hex)
{
    const char *name = weft__settings[WEFT__SETTING_ID].name;
    if (strlen(hex) != 2 * sizeof(id->bytes))
        return weft__invalid("%s has %zu characters; it must have %zu hexadecimal digits", name,
                             strlen(hex), 2 * sizeof(id->bytes));
    size_t num_parsed = parse_hex(hex, id->bytes, sizeof(id->bytes));
    if (num_parsed == sizeof(id->bytes))
        return WEFT_OK;
    return weft__invalid("%s has \"%.2s\" at character %zu; it must be hexadecimal", name,
                         hex + 2 * num_parsed, 2 * num_parsed);
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
