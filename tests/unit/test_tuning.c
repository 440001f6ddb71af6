/* SPDX-License-Identifier: MIT */
/* The table of algorithms as it is read: which rows, in which order, and what is refused where. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coll/tuning.h"
#include "comm/host/error.h"
#include "harness/cmocka.h"

static const struct weft__tuning_key cuda_of_4 = {"cuda", 4};

static char path[] = "/tmp/weft-tuning-XXXXXX";

static int open_file(void **state)
{
    (void)state;
    const int fd = mkstemp(path);
    return fd < 0 || close(fd) != 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static weft_result read_text(const char *text, struct weft__tuning *tuning)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    return weft__tuning_read(path, &cuda_of_4, tuning);
}

TEST(rows_of_this_communicator)
{
    static const char text[] = "# made by hand\n"
                               "\n"
                               "cuda 4 all_reduce 768K oneshot 0 0\n"
                               "  cuda\t4 all_reduce  inf twoshot 64 16 # the rest\r\n"
                               "cuda 8 all_reduce 1K oneshot 0 0\n"
                               "cpu 4 all_reduce 2K oneshot 0 0\n"
                               "cuda 4 broadcast 3G push 1024 32\n"
                               "cuda 4 all_gather 5 oneshot 0 0";
    enum { FROM_FILE = WEFT__TUNING_FILE };
    static const struct weft__tuning_row expected[] = {
        {768 << 10, FROM_FILE, 3, WEFT_ALL_REDUCE, WEFT_ALGORITHM_ONESHOT, 0, 0},
        {UINT64_MAX, FROM_FILE, 4, WEFT_ALL_REDUCE, WEFT_ALGORITHM_TWOSHOT, 64, 16},
        {UINT64_C(3) << 30, FROM_FILE, 7, WEFT_BROADCAST, WEFT_ALGORITHM_PUSH, 1024, 32},
        {5, FROM_FILE, 8, WEFT_ALL_GATHER, WEFT_ALGORITHM_ONESHOT, 0, 0},
    };
    struct weft__tuning tuning;
    assert_ok(read_text(text, &tuning));
    assert_int_equal(tuning.num_rows, 4);
    assert_memory_equal(tuning.rows, expected, sizeof expected);
    assert_string_equal(tuning.path, path);
    assert_ok(read_text("# none\n", &tuning));
    assert_int_equal(tuning.num_rows, 0);
}

static void assert_refused(const char *row, const char *said)
{
    struct weft__tuning tuning;
    char text[256], place[64];
    snprintf(text, sizeof text, "cuda 4 all_reduce 1K oneshot 0 0\n\n%s\n", row);
    snprintf(place, sizeof place, "%s:3: ", path);
    assert_int_equal(read_text(text, &tuning), WEFT_ERROR_INVALID_ARGUMENT);
    assert_ptr_equal(strstr(weft__last_error(), place), weft__last_error());
    if (strstr(weft__last_error(), said) == NULL)
        fail_msg("\"%s\": the message lacks \"%s\": %s", row, said, weft__last_error());
}

TEST(bad_lines)
{
    assert_refused("cuda 4 all_reduce 1K oneshot 0", "less than 7 fields");
    assert_refused("cuda", "less than 7 fields");
    assert_refused("cuda 4 all_reduce 1K oneshot 0 0 0", "more than 7 fields");
    assert_refused("gpu 4 all_reduce 1K oneshot 0 0", "machine is \"gpu\"");
    assert_refused("cuda 0 all_reduce 1K oneshot 0 0", "ranks is \"0\", allowed are 1..32");
    assert_refused("cuda 33 all_reduce 1K oneshot 0 0", "ranks is \"33\"");
    assert_refused("cuda 4294967300 all_reduce 1K oneshot 0 0", "ranks is \"4294967300\"");
    assert_refused("cuda 4 reduction 1K oneshot 0 0", "collective is \"reduction\"");
    static const char *const sizes[] = {
        "1k", "K", "-1", "1KK", "17179869184G", "99999999999999999999"};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char row[128];
        snprintf(row, sizeof row, "cuda 4 all_reduce %s oneshot 0 0", sizes[i]);
        assert_refused(row, "max_bytes is ");
    }
    assert_refused("cuda 4 all_reduce 1K ring 0 0", "algorithm is \"ring\"");
    assert_refused("cuda 4 all_reduce 1K auto 0 0", "algorithm is \"auto\"");
    assert_refused("cuda 4 all_gather 1K twoshot 0 0",
                   "algorithm is \"twoshot\", allowed are, for all_gather, oneshot, push");
    assert_refused("cuda 4 all_reduce 1K oneshot 1025 0",
                   "blocks is \"1025\", allowed are 0..1024");
    assert_refused("cuda 4 all_reduce 1K oneshot 0 33", "warps is \"33\", allowed are 0..32");
    assert_refused("cuda 4 all_reduce 1K oneshot 0 +1", "warps is \"+1\"");
    /* A row of another communicator is refused, too. */
    assert_refused("cpu 2 all_reduce 1K oneshot x 0", "blocks is \"x\"");
}

TEST(too_many_rows)
{
    static const char row[] = "cuda 4 all_reduce 1K oneshot 0 0\n";
    enum { ROW_CHARS = sizeof row - 1 };
    char text[(WEFT__TUNING_MAX_ROWS + 1) * ROW_CHARS + 1] = "";
    struct weft__tuning tuning;
    for (size_t i = 0; i <= WEFT__TUNING_MAX_ROWS; i++)
        memcpy(text + i * ROW_CHARS, row, sizeof row);
    assert_error(read_text(text, &tuning), WEFT_ERROR_INVALID_ARGUMENT, ":129: has row 129");
    text[WEFT__TUNING_MAX_ROWS * ROW_CHARS] = '\0';
    assert_ok(read_text(text, &tuning));
    assert_int_equal(tuning.num_rows, WEFT__TUNING_MAX_ROWS);
}

TEST(no_file)
{
    struct weft__tuning tuning;
    assert_error(weft__tuning_read("/nonexistent/table", &cuda_of_4, &tuning),
                 WEFT_ERROR_INVALID_ARGUMENT, "/nonexistent/table");
    assert_error(weft__tuning_read("/", &cuda_of_4, &tuning), WEFT_ERROR_INVALID_ARGUMENT,
                 "/ is no regular file");
}

static void assert_file_refused(const char *file, const char *said)
{
    const struct weft__tuning_key key = {"cpu", 2};
    struct weft__tuning tuning;
    assert_error(weft__tuning_read(file, &key, &tuning), WEFT_ERROR_INVALID_ARGUMENT, said);
}

/* Reading any of these would not end. */
TEST(files_without_an_end)
{
    static const char lines[] = "# comments\n";
    assert_file_refused("/dev/zero", "/dev/zero is no regular file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_file_refused(path, "is no regular file");
    assert_int_equal(unlink(path), 0);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (size_t num_bytes = 0; num_bytes <= 1 << 20; num_bytes += sizeof lines - 1)
        assert_true(fputs(lines, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_file_refused(path, "has more than 1048576 bytes");
}

/* ------------------------------------------------------------------ shipped tables */

/* Whoever makes the library sees here what is wrong in one. */
TEST(shipped_tables_are_right)
{
    for (const struct weft__shipped_table *table = weft__shipped_tables; table->device != NULL;
         table++) {
        int32_t num_rows = 0;
        for (int32_t num_ranks = 2; num_ranks <= WEFT_COLL_MAX_RANKS; num_ranks++) {
            struct weft__tuning tuning = {0};
            const struct weft__tuning_key key = {"cuda", num_ranks};
            if (weft__tuning_add_shipped(table->device, &key, &tuning) != WEFT_OK)
                fail_msg("%s", weft__last_error());
            num_rows += tuning.num_rows;
        }
        assert_true(num_rows > 0);
    }
}

static int32_t num_shipped(const char *device, const char *machine, int32_t num_ranks)
{
    struct weft__tuning tuning = {0};
    const struct weft__tuning_key key = {machine, num_ranks};
    assert_ok(weft__tuning_add_shipped(device, &key, &tuning));
    return tuning.num_rows;
}

TEST(shipped_for_their_gpus_and_ranks)
{
    assert_true(num_shipped("NVIDIA H200", "cuda", 4) > 0);
    assert_int_equal(num_shipped("NVIDIA H200", "cuda", 3), 0);
    assert_int_equal(num_shipped("NVIDIA H200", "cpu", 4), 0);
    assert_int_equal(num_shipped("NVIDIA H200 NVL", "cuda", 4), 0);
    assert_int_equal(num_shipped("", "cuda", 4), 0);
}

/* All rows that a file may have, and then those. */
TEST(shipped_come_behind_those_of_the_file)
{
    static const char row[] = "cuda 4 all_reduce 1K oneshot 0 0\n";
    char text[WEFT__TUNING_MAX_ROWS * (sizeof row - 1) + 1] = "";
    struct weft__tuning tuning;
    for (size_t i = 0; i < WEFT__TUNING_MAX_ROWS; i++)
        memcpy(text + i * (sizeof row - 1), row, sizeof row);
    assert_ok(read_text(text, &tuning));
    assert_ok(weft__tuning_add_shipped("NVIDIA H200", &cuda_of_4, &tuning));
    assert_int_equal(tuning.num_rows,
                     WEFT__TUNING_MAX_ROWS + num_shipped("NVIDIA H200", "cuda", 4));
    for (int32_t i = 0; i < tuning.num_rows; i++)
        assert_int_equal(tuning.rows[i].source,
                         i < WEFT__TUNING_MAX_ROWS ? WEFT__TUNING_FILE : WEFT__TUNING_SHIPPED);
    assert_true(tuning.rows[WEFT__TUNING_MAX_ROWS].line > 1); /* a comment comes first */
}

int main(void)
{
    return tests_run(open_file, remove_file);
}
