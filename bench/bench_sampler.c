/*
 * bench_sampler [VOCABULARY [ROWS]]: milliseconds that one thread takes to choose a token from a
 * row of logits, for each way of sampling, the best of several turns. Rows lie one behind another,
 * so that each comes from memory, as after a step. peers/bench_llama_sampler.c measures llama.cpp
 * with the same rows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sampler_rows.h"
#include "skv/skv.h"

enum { TURNS = 7 };

typedef struct way {
    const char *name;
    skv_sampling sampling;
} way;

/* The best turn, in milliseconds a row; < 0: no memory. */
static double measure(const way *w, const float *rows, size_t vocab, size_t n_rows)
{
    double best = 1e9;
    skv_error err;
    skv_sampler *sampler = NULL;
    float *copy = malloc(n_rows * vocab * sizeof *copy);
    if (!copy || skv_sampler_create(&w->sampling, vocab, &sampler, &err) != SKV_OK) {
        free(copy);
        return -1;
    }
    for (int32_t id = 0; id < 500; id++) {
        skv_sampler_accept(sampler, (int32_t)((size_t)id * 37 % vocab), true);
    }
    for (int turn = 0; turn < TURNS; turn++) {
        memcpy(copy, rows, n_rows * vocab * sizeof *copy); /* penalties change rows */
        const double start = now_ms();
        for (size_t i = 0; i < n_rows; i++) (void)skv_sampler_choose(sampler, copy + i * vocab);
        const double ms = (now_ms() - start) / (double)n_rows;
        if (ms < best) best = ms;
    }
    skv_sampler_free(sampler);
    free(copy);
    return best;
}

int main(int argc, char **argv)
{
    const size_t vocab = argc > 1 ? strtoul(argv[1], NULL, 10) : 151936;
    const size_t n_rows = argc > 2 ? strtoul(argv[2], NULL, 10) : 16;
    const skv_sampling plain = {
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .penalty_window = -1, .seed = 1};
    way ways[] = {{"greedy", plain},
                  {"temperature 1", plain},
                  {"top_p .95", plain},
                  {"min_p .05", plain},
                  {"top_k 20, top_p .8", plain},
                  {"temperature .8, top_k 40, top_p .9", plain},
                  {"top_k 1000", plain},
                  {"penalties", plain}};
    ways[0].sampling.temperature = 0;
    ways[2].sampling.top_p = 0.95;
    ways[3].sampling.min_p = 0.05;
    ways[4].sampling.top_k = 20;
    ways[4].sampling.top_p = 0.8;
    ways[5].sampling = (skv_sampling){.temperature = 0.8,
                                      .top_k = 40,
                                      .top_p = 0.9,
                                      .repetition_penalty = 1,
                                      .penalty_window = -1};
    ways[6].sampling.top_k = 1000;
    ways[7].sampling.repetition_penalty = 1.1;
    ways[7].sampling.presence_penalty = 0.5;
    float *rows[2] = {malloc(n_rows * vocab * sizeof(float)),
                      malloc(n_rows * vocab * sizeof(float))};
    if (vocab == 0 || n_rows == 0 || !rows[0] || !rows[1]) return 1;
    make_rows(rows[0], vocab, n_rows, 0);
    make_rows(rows[1], vocab, n_rows, 1);
    (void)printf("# milliseconds a row of %zu logits, %zu rows, best of %d\n# %-34s %7s %7s\n",
                 vocab, n_rows, (int)TURNS, "", "flat", "peaked");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        (void)printf("%-36s %7.3f %7.3f\n", ways[i].name, measure(&ways[i], rows[0], vocab, n_rows),
                     measure(&ways[i], rows[1], vocab, n_rows));
    }
    free(rows[0]);
    free(rows[1]);
    return 0;
}
