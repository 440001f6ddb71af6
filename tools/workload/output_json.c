/* SPDX-License-Identifier: MIT */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "workload/output.h"
#include "workload/version.h"

static json_t *about_this_run(const char *device)
{
    char version[VERSION_CHARS], host[HOST_NAME_MAX + 1] = "", date[sizeof "2026-11-29T10:24:32Z"];
    const time_t now = time(NULL);
    struct tm utc;
    version_text(version);
    gethostname(host, sizeof host - 1);
    strftime(date, sizeof date, "%FT%TZ", gmtime_r(&now, &utc));
    return json_pack("{s:s, s:s?, s:s, s:s?, s:s}", "version", version, "commit", version_commit(),
                     "host", host, "device", device, "date", date);
}

int output_json(json_t *object, const char *device)
{
    json_t *about = about_this_run(device);
    const int result = object && about && json_object_update(object, about) == 0
                           ? json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9))
                           : -1;
    json_decref(about);
    json_decref(object);
    putchar('\n');
    return output_flush() != 0 || result != 0 ? -1 : 0;
}
