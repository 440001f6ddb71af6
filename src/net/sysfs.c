/* SPDX-License-Identifier: MIT */
#include "net/sysfs.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct weft__sysfs weft__sysfs_of_host = {"/sys", "/proc"};

void weft__sysfs_text(char text[WEFT__SYSFS_TEXT_BYTES], const char *format, ...)
{
    char path[WEFT__SYSFS_PATH_BYTES + 256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    text[0] = '\0';
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    if (fgets(text, WEFT__SYSFS_TEXT_BYTES, file) == NULL)
        text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    fclose(file);
}

void weft__sysfs_resolve(const char *path, char resolved[WEFT__SYSFS_PATH_BYTES])
{
    char *real = realpath(path, NULL);
    resolved[0] = '\0';
    if (real != NULL && strlen(real) < WEFT__SYSFS_PATH_BYTES)
        memcpy(resolved, real, strlen(real) + 1);
    free(real);
}

int weft__sysfs_is_bus_id(const char *text)
{
    static const char form[] = "hhhh:hh:hh.h";
    if (strlen(text) != strlen(form))
        return 0;
    for (size_t i = 0; form[i] != '\0'; i++)
        if (form[i] == 'h' ? !isxdigit((unsigned char)text[i]) : text[i] != form[i])
            return 0;
    return 1;
}

const char *weft__sysfs_cut_last(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash == NULL)
        return "";
    *slash = '\0';
    return slash + 1;
}

int weft__sysfs_list(const char *folder, const char *prefix, struct dirent ***names)
{
    const int count = scandir(folder, names, NULL, versionsort);
    int num_kept = 0;
    for (int i = 0; i < count; i++) {
        struct dirent *name = (*names)[i];
        if (name->d_name[0] != '.' && strncmp(name->d_name, prefix, strlen(prefix)) == 0)
            (*names)[num_kept++] = name;
        else
            free(name);
    }
    if (count < 0)
        *names = NULL;
    return num_kept;
}

void weft__sysfs_free_list(struct dirent **names, int count)
{
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
}
