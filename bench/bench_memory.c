/*
 * bench_memory MODEL [PROMPT [THREADS]]: what an engine holds in memory, beside what it says.
 *
 * Opens the model with a context of PROMPT + 16 tokens (512), reads a prompt and continues it by 16
 * tokens. Prints the seconds that opening took (the file may be in the page cache or not: run it
 * twice), the engine's own account, and the resident pages that the system counts, once the model
 * is open and at the end: private ones, those of mapped files, and the peak.
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/system.h"
#include "skv/skv.h"

enum { GEN = 16 };

static const double MIB = 1024.0 * 1024.0;

/* A line of /proc/self/status, in bytes. */
static double status_of(const char *field)
{
    char line[256];
    double kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        const size_t n = strlen(field);
        if (strncmp(line, field, n) == 0 && line[n] == ':') kib = strtod(line + n + 1, NULL);
    }
    if (file) fclose(file);
    return kib * 1024;
}

static double print_resident(const char *when)
{
    const double own = status_of("RssAnon"), mapped = status_of("RssFile");
    printf("%-10s private %7.1f MiB, of files %6.1f, peak of all %7.1f\n", when, own / MIB,
           mapped / MIB, status_of("VmHWM") / MIB);
    return own + mapped;
}

/* Bytes of the file, or of a folder's files of weights. */
static double file_bytes(const char *path)
{
    struct stat info;
    double sum = 0;
    DIR *folder = opendir(path);
    if (!folder) return stat(path, &info) == 0 ? (double)info.st_size : 0;
    for (const struct dirent *e = readdir(folder); e; e = readdir(folder)) {
        char name[4096];
        const int n = snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        const bool is_whole = n > 0 && (size_t)n < sizeof name;
        if (is_whole && strstr(e->d_name, ".safetensors") && stat(name, &info) == 0) {
            sum += (double)info.st_size;
        }
    }
    closedir(folder);
    return sum;
}

static void ignore_logits(void *user, size_t i_span, size_t i_token, const float *logits)
{
    (void)user;
    (void)i_span;
    (void)i_token;
    (void)logits;
}

/* A prompt of n tokens, and GEN steps after it. */
static skv_status read_prompt(skv_engine *engine, size_t n, skv_error *err)
{
    skv_sequence *sequence;
    const int32_t vocab = (int32_t)skv_engine_vocab(engine);
    int32_t *ids = calloc(n + GEN, sizeof *ids);
    skv_status status = skv_sequence_create(engine, n + GEN, &sequence, err);
    for (size_t i = 0; ids && i < n + GEN; i++) ids[i] = (int32_t)(i * 7919 % (size_t)vocab);
    for (size_t at = 0; ids && status == SKV_OK && at < n + GEN;) {
        skv_engine_stats stats;
        skv_engine_get_stats(engine, &stats);
        const size_t left = at < n ? n - at : 1;
        const size_t step = left < stats.step_tokens ? left : stats.step_tokens;
        const skv_span span = {sequence, ids + at, step, SKV_WANT_LAST};
        status = skv_step(engine, &span, 1, ignore_logits, NULL, err);
        at += step;
    }
    free(ids);
    return status;
}

int main(int n_words, char **words)
{
    skv_engine *engine;
    skv_engine_stats stats;
    skv_error err = {0};
    skv_engine_options options = skv_engine_options_default();
    const size_t prompt = n_words > 2 ? strtoul(words[2], NULL, 10) : 512;
    if (n_words < 2 || prompt == 0) {
        fprintf(stderr, "bench_memory MODEL [PROMPT [THREADS]]\n");
        return 2;
    }
    options.threads = n_words > 3 ? strtoul(words[3], NULL, 10) : 2;
    options.context = options.kv_tokens = prompt + GEN;
    const double before = print_resident("started"), file = file_bytes(words[1]);
    const uint64_t start = skv_clock_ns();
    skv_status status = skv_engine_open(words[1], &options, &engine, &err);
    const double seconds = (double)(skv_clock_ns() - start) * 1e-9;
    if (status == SKV_OK) {
        printf("opened in %.2f s\n", seconds);
        print_resident("opened");
        status = read_prompt(engine, prompt, &err);
    }
    if (status != SKV_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const double now = print_resident("read");
    skv_engine_get_stats(engine, &stats);
    const double said = (double)(stats.weight_bytes + stats.kv_bytes + stats.workspace_bytes);
    const double rest = (double)(stats.kv_bytes + stats.workspace_bytes);
    printf("file %.1f MiB; packed weights %.1f, KV %.1f, workspace %.1f: together %.1f\n",
           file / MIB, (double)stats.weight_bytes / MIB, (double)stats.kv_bytes / MIB,
           (double)stats.workspace_bytes / MIB, said / MIB);
    printf(
        "resident, without the program's own %.1f MiB: %.3f of what it says, %.3f of file + KV + "
        "workspace; the peak %.3f\n",
        before / MIB, (now - before) / said, (now - before) / (file + rest),
        (status_of("VmHWM") - before) / (file + rest));
    return 0;
}
