/* windows.c - what the library does with Windows' files and threads; run by test_windows.sh.
 *
 * usage: windows MODEL.bin MODEL.wnpu DIRECTORY, all in ASCII. Makes files in DIRECTORY, whose names
 * are not in any code page of one byte. */
#include "whisper_npu.h"

#include <stdio.h>
#include <string.h>
#include <windows.h>

#define NAME L"\x041c\x043e\x0434\x0435\x043b\x044c \x65e5\x672c" /* Russian and Japanese */
#define NAME_UTF8 "\xd0\x9c\xd0\xbe\xd0\xb4\xd0\xb5\xd0\xbb\xd1\x8c \xe6\x97\xa5\xe6\x9c\xac"

static int bad;

static void check(int good, const char *what, const wnpu_error *error)
{
    if (!good) {
        printf("%s: %s\n", what, error->message);
        bad = 1;
    }
}

static void opened(const char *path, const wnpu_model_config *config, int mapped)
{
    wnpu_error error = {0, ""};
    wnpu_model *model = NULL;
    wnpu_model_info info;
    memset(&info, 0, sizeof info);
    info.struct_size = sizeof info;
    check(wnpu_model_open(&model, path, config, &error) == WNPU_OK, "open", &error);
    if (model != NULL) {
        check(wnpu_model_get_info(model, &info) == WNPU_OK, "info", &error);
        check((info.shared_bytes > 0) == mapped, mapped ? "not mapped" : "mapped", &error);
    }
    wnpu_model_close(model);
}

static void refused(const char *path, const char *because)
{
    wnpu_error error = {0, ""};
    wnpu_model *model = NULL;
    check(wnpu_model_open(&model, path, NULL, &error) == WNPU_E_IO && model == NULL &&
          strstr(error.message, because) != NULL, because, &error);
}

/* A file that is open can be renamed, and another one can take its name. */
static void replaced(const wchar_t *from, const char *directory)
{
    wchar_t name[600], other[600];
    char path[600];
    wnpu_error error = {0, ""};
    wnpu_model *model = NULL;
    (void)snprintf(path, sizeof path, "%s/" NAME_UTF8 ".wnpu", directory);
    (void)swprintf(name, 600, L"%hs/" NAME L".wnpu", directory);
    (void)swprintf(other, 600, L"%hs/old.wnpu", directory);
    check(CopyFileW(from, name, FALSE), "copy", &error);
    opened(path, NULL, 1);
    check(wnpu_model_open(&model, path, NULL, &error) == WNPU_OK, "open", &error);
    check(MoveFileExW(name, other, MOVEFILE_REPLACE_EXISTING), "rename a mapped pack", &error);
    check(CopyFileW(from, name, TRUE), "a new pack of the same name", &error);
    check(wnpu_model_verify(model, &error) == WNPU_OK, "verify", &error);
    opened(path, NULL, 1);
    wnpu_model_close(model);
    check(DeleteFileW(other) && DeleteFileW(name), "delete what is closed", &error);
}

int main(int argc, char **argv)
{
    wnpu_model_config config;
    wnpu_error error = {0, ""};
    wchar_t pack[600];
    char path[600];
    if (argc != 4) {
        printf("usage: windows MODEL.bin MODEL.wnpu DIRECTORY\n");
        return 1;
    }
    check(wnpu_self_test(NULL, &error) == WNPU_OK, "self test", &error);
    opened(argv[1], NULL, 0);
    opened(argv[2], NULL, 1);
    wnpu_model_config_init(&config, sizeof config);
    config.copy = 1;
    opened(argv[2], &config, 0);
    (void)swprintf(pack, 600, L"%hs", argv[2]);
    replaced(pack, argv[3]);
    refused("no such file", "there is no such file (Windows error 2)");
    refused("no such folder\\file", "a part of the path does not exist");
    refused(argv[3], "is a directory");
    refused("Mod\xe8le.bin", "not UTF-8");
    refused("NUL", "not a regular file");
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = '\0';
    refused(path, "xxx'");
    printf("%s\n", bad ? "failed" : "passed");
    return bad;
}
