/*
 * How fast a tokenizer opens and encodes: MB/s on one thread, the median of several runs.
 *
 *     bench_tokenizer PATH TEXT [RUNS]
 *
 * PATH is a folder with a tokenizer, or a GGUF file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/system.h"
#include "format/gguf.h"
#include "text/tokenizer.h"

enum { RUNS_MAX = 101 };

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static skv_status open_any(const char *path, skv_tokenizer **out, skv_gguf **gguf, skv_error *err)
{
    if (skv_file_is_folder(path)) return skv_tokenizer_open_folder(path, out, err);
    SKV_TRY(skv_gguf_open(path, gguf, err));
    return skv_tokenizer_open_gguf(*gguf, out, err);
}

static skv_status measure(const skv_tokenizer *t, const char *text, size_t n, size_t n_runs,
                          skv_error *err)
{
    double rates[RUNS_MAX];
    clock_t cpu = clock();
    skv_encode_options options = {0};
    skv_ids ids = {0};
    skv_buf back;
    skv_buf_init(&back, n * 4 + 1024);
    for (size_t i = 0; i < n_runs; i++) {
        ids.n = 0;
        uint64_t start = skv_clock_ns();
        SKV_TRY(skv_tokenizer_encode(t, text, n, options, &ids, err));
        rates[i] = (double)n * 1e3 / (double)(skv_clock_ns() - start);
    }
    double cpu_seconds = (double)(clock() - cpu) / CLOCKS_PER_SEC;
    uint64_t start = skv_clock_ns();
    SKV_TRY(skv_tokenizer_decode(t, ids.data, ids.n, (skv_decode_options){.with_special = true},
                                 &back, err));
    double decode = (double)back.size * 1e3 / (double)(skv_clock_ns() - start);
    qsort(rates, n_runs, sizeof *rates, compare);
    (void)printf("encode %.1f MB/s (min %.1f, max %.1f; %.1f by CPU time), %zu bytes, %zu ids; "
                 "decode %.1f MB/s\n",
                 rates[n_runs / 2], rates[0], rates[n_runs - 1],
                 (double)n * (double)n_runs * 1e-6 / cpu_seconds, n, ids.n, decode);
    skv_buf_release(&back);
    skv_ids_release(&ids);
    return SKV_OK;
}

int main(int argc, char **argv)
{
    skv_error err = {0};
    skv_tokenizer *t = NULL;
    skv_gguf *gguf = NULL;
    char *text = NULL;
    size_t n = 0;
    if (argc < 3) {
        (void)fputs("usage: bench_tokenizer PATH TEXT [RUNS]\n", stderr);
        return 2;
    }
    long n_runs = argc > 3 ? strtol(argv[3], NULL, 10) : 9;
    if (n_runs < 1 || n_runs > RUNS_MAX) n_runs = 9;
    uint64_t start = skv_clock_ns();
    skv_status status = open_any(argv[1], &t, &gguf, &err);
    (void)printf("open %.1f ms; ", (double)(skv_clock_ns() - start) * 1e-6);
    if (status == SKV_OK && !t) status = skv_fail(&err, SKV_FORMAT, "no tokenizer");
    if (status == SKV_OK) status = skv_file_read(argv[2], (size_t)1 << 30, &text, &n, &err);
    if (status == SKV_OK) status = measure(t, text, n, (size_t)n_runs, &err);
    if (status != SKV_OK) (void)fprintf(stderr, "%s\n", err.text);
    skv_free(text);
    skv_tokenizer_free(t);
    skv_gguf_close(gguf);
    return status == SKV_OK ? 0 : 1;
}
