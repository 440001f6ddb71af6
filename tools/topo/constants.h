/* SPDX-License-Identifier: MIT */
/* NCCL's assumptions about links, by version: files that a version has written are its own answers,
 * and are reproduced with its constants. All rates are GB/s, one way. */
#pragma once

#include <stdint.h>

#include "weft.h"

#define TOPO_LOCAL_BW 5000.0F /* inside a device */

/* Speeds of a channel that the search tries, from fast to slow; 0 ends a list. */
struct topo_speeds {
    const float *intra; /* on one node */
    const float *inter;
};

struct topo_constants {
    const char *nccl_version; /* the first that has these */
    float sm100_nvlink_bw;
    struct topo_speeds sm100;
    enum topo_dialect {
        TOPO_DIALECT_DEVICES, /* files of channels name GPUs by device */
        TOPO_DIALECT_RANKS    /* and by rank */
    } dialect;
};

/* Those of a version "2.27.3": of the newest that is not above it. NULL: of the newest there is. */
weft_result topo_constants_of(const char *nccl_version, const struct topo_constants **constants);

/* The rate of one link of a GPU. */
float topo_nvlink_bw(const struct topo_constants *constants, int32_t sm);
/* The tables for the oldest GPU of a machine. */
struct topo_speeds topo_speeds_of(const struct topo_constants *constants, int32_t sm);
/* "16.0 GT/s PCIe" and a number of lanes, 0 for 16. */
float topo_pci_bw(const char *link_speed, int32_t link_width);

/* A processor as files describe it. */
struct topo_cpu {
    enum topo_arch { TOPO_ARCH_OTHER, TOPO_ARCH_X86, TOPO_ARCH_POWER, TOPO_ARCH_ARM } arch;
    enum topo_vendor {
        TOPO_VENDOR_OTHER,
        TOPO_VENDOR_INTEL,
        TOPO_VENDOR_AMD,
        TOPO_VENDOR_ZHAOXIN
    } vendor;
    int32_t family, model;
};
/* Between two of the kind. */
float topo_cpu_bw(const struct topo_cpu *cpu);
