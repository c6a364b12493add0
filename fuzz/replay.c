/*
 * Gives every file of the folders named on the command line to the fuzz target it is linked with,
 * the empty input first. What libFuzzer once found stays found.
 */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

enum { INPUT_MAX = 1 << 26 };

static int replay_file(const char *path)
{
    char *data;
    size_t size;
    skv_error err;
    if (skv_file_read(path, INPUT_MAX, &data, &size, &err) != SKV_OK) {
        (void)fprintf(stderr, "replay: %s\n", err.text);
        return 0;
    }
    /* An exact copy, so that AddressSanitizer sees a read of the byte behind the input. */
    void *exact = skv_alloc(size, 1);
    if (exact && size) memcpy(exact, data, size);
    skv_free(data);
    if (exact) (void)LLVMFuzzerTestOneInput(exact, size);
    skv_free(exact);
    return !!exact;
}

static int replay_folder(const char *folder, size_t *n)
{
    DIR *stream = opendir(folder);
    if (!stream) {
        (void)fprintf(stderr, "replay: %s: cannot open the folder\n", folder);
        return 0;
    }
    int ok = 1;
    struct dirent *entry;
    while (ok && (entry = readdir(stream))) {
        char *path = skv_path_join(folder, entry->d_name);
        if (path && skv_file_exists(path)) {
            ok = replay_file(path);
            ++*n;
        }
        skv_free(path);
    }
    (void)closedir(stream);
    return ok;
}

int main(int argc, char **argv)
{
    size_t n = 0;
    (void)LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        if (!replay_folder(argv[i], &n)) return EXIT_FAILURE;
    }
    (void)printf("replayed %zu inputs\n", n);
    return n ? EXIT_SUCCESS : EXIT_FAILURE;
}
