/* SPDX-License-Identifier: MIT */
#include "topo/constants.h"

#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"

#define SPEEDS(...) ((const float[]){__VA_ARGS__, 0})

/* Lists for all versions, and what sm100's lists end with. */
#define INTER_TAIL 17.5F, 15, 12, 6, 3, 2.4F, 1.2F, .24F, .12F
#define SM100_TAIL 48, 45.1F, 42, 40, 30, 24, 22, 20, INTER_TAIL

static const float sm90_intra[] = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3, 0};
static const float sm90_inter[] = {48, 45, 42, 40, 30, 24, 22, 20, INTER_TAIL, 0};
static const float older_intra[] = {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 0};
static const float older_inter[] = {48, 30, 28, 24, 20, 18,   15,   12,   10,   9,
                                    7,  6,  5,  4,  3,  2.4F, 1.2F, .24F, .12F, 0};
/* Until 2.28, and since. */
static const float sm100_intra_10[] = {90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18, 0};
static const float sm100_intra_11[] = {90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18, 0};

static const struct topo_constants versions[] = {
    {"2.27.3",
     40.0F,
     {sm100_intra_10, SPEEDS(47.9F, 45, 42, 40, 30, 24, 22, 20, INTER_TAIL)},
     TOPO_DIALECT_DEVICES},
    {"2.27.5", 40.1F, {sm100_intra_10, SPEEDS(96, SM100_TAIL)}, TOPO_DIALECT_DEVICES},
    {"2.29.2", 40.1F, {sm100_intra_11, SPEEDS(96, SM100_TAIL)}, TOPO_DIALECT_DEVICES},
    {"2.29.7", 40.1F, {sm100_intra_11, SPEEDS(96, 80, SM100_TAIL)}, TOPO_DIALECT_DEVICES},
    {"2.30.3", 40.1F, {sm100_intra_11, SPEEDS(96, 86, 80, SM100_TAIL)}, TOPO_DIALECT_RANKS},
};
enum { NUM_VERSIONS = sizeof versions / sizeof versions[0] };

/* "2.27.3" as 2027003, "2.27" as 2.27.0; -1: it is no version. */
static int32_t number_of(const char *version)
{
    int32_t number = 0;
    for (int part = 0; part < 3; part++) {
        char *end;
        const long value = strtol(version, &end, 10);
        if (end == version || value < 0 || value > 999)
            return -1;
        number = 1000 * number + (int32_t)value;
        if (*end != '\0' && (*end != '.' || part == 2))
            return -1;
        version = *end == '.' ? end + 1 : "0";
    }
    return number;
}

weft_result topo_constants_of(const char *nccl_version, const struct topo_constants **constants)
{
    const int32_t number =
        number_of(nccl_version != NULL ? nccl_version : versions[NUM_VERSIONS - 1].nccl_version);
    if (number < 0)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "\"%.32s\" is no version of NCCL, such as 2.27.3", nccl_version);
    if (number < number_of(versions[0].nccl_version))
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "NCCL %s is older than %s, the first whose assumptions are known",
                           nccl_version, versions[0].nccl_version);
    for (int i = 0; i < NUM_VERSIONS; i++)
        if (number_of(versions[i].nccl_version) <= number)
            *constants = &versions[i];
    return WEFT_OK;
}

float topo_nvlink_bw(const struct topo_constants *constants, int32_t sm)
{
    if (sm >= 100)
        return constants->sm100_nvlink_bw;
    if (sm >= 90)
        return 20.6F;
    if (sm == 86)
        return 12;
    return sm >= 60 && sm < 70 ? 18 : 20;
}

struct topo_speeds topo_speeds_of(const struct topo_constants *constants, int32_t sm)
{
    static const struct topo_speeds sm90 = {sm90_intra, sm90_inter};
    static const struct topo_speeds older = {older_intra, older_inter};
    if (sm >= 100)
        return constants->sm100;
    return sm >= 90 ? sm90 : older;
}

float topo_pci_bw(const char *link_speed, int32_t link_width)
{
    /* 100 Mbit/s of a lane, without what the encoding takes. */
    static const struct {
        float gigatransfers;
        int32_t rate;
    } generations[] = {{2.5F, 15}, {5, 30}, {8, 60}, {16, 120}, {32, 240}, {64, 480}};
    char *end;
    const float gigatransfers = strtof(link_speed, &end);
    int32_t rate = 60; /* when it does not say: generation 3 */
    for (size_t i = 0; i < sizeof generations / sizeof generations[0]; i++)
        if (end != link_speed && strncmp(end, " GT/s", 5) == 0 &&
            gigatransfers == generations[i].gigatransfers)
            rate = generations[i].rate;
    return (float)((link_width == 0 ? 16 : link_width) * rate / 80.0);
}

static float intel_bw(const struct topo_cpu *cpu)
{
    if (cpu->family != 6 || cpu->model < 0x55)
        return 6;
    if (cpu->model < 0x8F)
        return 10;
    return cpu->model < 0xCF ? 22 : 40;
}

float topo_cpu_bw(const struct topo_cpu *cpu)
{
    if (cpu->arch == TOPO_ARCH_POWER)
        return 32;
    if (cpu->arch == TOPO_ARCH_ARM)
        return 6;
    if (cpu->arch == TOPO_ARCH_X86 && cpu->vendor == TOPO_VENDOR_INTEL)
        return intel_bw(cpu);
    if (cpu->arch == TOPO_ARCH_X86 && cpu->vendor == TOPO_VENDOR_AMD)
        return 16;
    if (cpu->arch == TOPO_ARCH_X86 && cpu->vendor == TOPO_VENDOR_ZHAOXIN)
        return cpu->family == 7 && cpu->model == 0x5B ? 9 : 6;
    return TOPO_LOCAL_BW;
}
