/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "api/structs.h"
#include "machine/host.h"

/* UNSUPPORTED where it cannot be used. */
static weft_result choose(weft_machine machine, const struct weft__machine **table)
{
    WEFT__TRY(weft__check_enum(WEFT__ENUM_MACHINE, (int32_t)machine, WEFT_MACHINE_AUTO,
                               WEFT_MACHINE_CUDA, "machine"));
    return weft__machine_choose(machine, table);
}

weft_result weft_machine_query(weft_machine machine, weft_machine_info *info)
{
    weft_machine_info found = {.machine = machine};
    const struct weft__machine *table;
    WEFT__TRY(WEFT__CHECK_OUTPUT(weft_machine_info, info, "info"));
    const weft_result result = choose(machine, &table);
    if (result == WEFT_OK) {
        found.machine = table->kind;
        found.is_usable = 1;
        table->describe(&found);
    } else if (result == WEFT_ERROR_UNSUPPORTED) {
        snprintf(found.reason, sizeof found.reason, "%s", weft_last_error());
    } else {
        return result;
    }
    if (found.machine != WEFT_MACHINE_CPU)
        found.build_version = weft__cuda_build_version();
    WEFT__WRITE(weft_machine_info, info, &found);
    return WEFT_OK;
}

weft_result weft_device_query(weft_machine machine, int32_t device_idx, weft_device_info *info)
{
    weft_machine_info about = {.machine = machine};
    weft_device_info found = {.name = ""};
    const struct weft__machine *table;
    WEFT__TRY(WEFT__CHECK_OUTPUT(weft_device_info, info, "info"));
    WEFT__TRY(choose(machine, &table));
    table->describe(&about);
    WEFT__TRY(weft__check_range(device_idx, 0, about.num_devices - 1, "device_idx"));
    WEFT__TRY(table->describe_device(device_idx, &found));
    WEFT__WRITE(weft_device_info, info, &found);
    return WEFT_OK;
}
