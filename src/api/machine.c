/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "api/check.h"
#include "machine/host.h"

weft_result weft_machine_query(weft_machine machine, weft_machine_info *info)
{
    weft_machine_info found = {.machine = machine};
    const struct weft__machine *table;
    WEFT__TRY(weft__check_not_null(info, "info"));
    WEFT__TRY(weft__check_enum(WEFT__ENUM_MACHINE, (int32_t)machine, WEFT_MACHINE_AUTO,
                               WEFT_MACHINE_CUDA, "machine"));
    const weft_result result = weft__machine_choose(machine, &table);
    if (result == WEFT_OK) {
        found.machine = table->kind;
        found.is_usable = 1;
        table->describe(&found);
    } else if (result == WEFT_ERROR_UNSUPPORTED) {
        snprintf(found.reason, sizeof found.reason, "%s", weft_last_error());
    } else {
        return result;
    }
    *info = found;
    return WEFT_OK;
}
