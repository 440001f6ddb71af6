/* SPDX-License-Identifier: MIT */
/* Where the ranks of a communicator meet, and the secret that tells them from strangers. */
#pragma once

#include <stdint.h>

#include "weft.h"

enum { WEFT__NONCE_BYTES = 16, WEFT__ADDRESS_BYTES = 96 };

#define WEFT__LOOPBACK "127.0.0.1"

enum weft__port_choice {
    WEFT__PORT_FIXED, /* the user has named it, or a rank has found it */
    WEFT__PORT_DRAWN  /* by weft__meeting_point_draw_port: other programs may have it */
};

struct weft__meeting_point {
    char address[WEFT__ADDRESS_BYTES]; /* a name or a number */
    uint16_t port;                     /* a drawn port is the first of several */
    enum weft__port_choice port_choice;
    uint8_t nonce[WEFT__NONCE_BYTES];
};

/* The unique id is the meeting point in a versioned envelope. */
void weft__meeting_point_to_id(const struct weft__meeting_point *point, weft_unique_id *id);
weft_result weft__meeting_point_from_id(struct weft__meeting_point *point,
                                        const weft_unique_id *id);
/* Which of the communicators that meet there the id is for. 0, which is not written: the first. */
uint64_t weft__unique_id_key(const weft_unique_id *id);
void weft__unique_id_set_key(weft_unique_id *id, uint32_t key);
/* port must fit 16 bits; the secret is 32 hexadecimal digits. */
weft_result weft__meeting_point_at(struct weft__meeting_point *point, const char *address,
                                   int32_t port, const char *secret);
/* The secret's bytes; `name` is what it is called in messages, which do not tell it. */
weft_result weft__secret_from_hex(uint8_t secret[WEFT__NONCE_BYTES], const char *name,
                                  const char *hex);
/* name is what the address is called in messages. */
weft_result weft__meeting_point_set_address(struct weft__meeting_point *point, const char *name,
                                            const char *address);
/* 1: localhost, or a number by which no other host reaches this one. */
int weft__address_is_loopback(const char *address);
/* Draws the job's ports: a sequence that all of its ranks know, so that ports of other programs can
 * be skipped. The ports are below those that systems hand out, and not the usual ones of
 * MASTER_PORT. */
void weft__meeting_point_draw_port(struct weft__meeting_point *point, const char *job);
/* Sets `at` to the point with its port number `index`. Returns 0 if it has no such port. */
int weft__meeting_point_at_port(const struct weft__meeting_point *point, int index,
                                struct weft__meeting_point *at);
/* From 256 hexadecimal digits, as weft run hands the id down. */
weft_result weft__unique_id_from_hex(weft_unique_id *id, const char *hex);

/* A 64-bit hash (FNV-1a) for keys; not a cryptographic one. */
#define WEFT__HASH_SEED UINT64_C(0xcbf29ce484222325)
uint64_t weft__hash(uint64_t seed, const void *bytes, size_t num_bytes);

weft_result weft__random_bytes(void *bytes, size_t num_bytes);
