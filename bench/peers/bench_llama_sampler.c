/*
 * bench_llama_sampler [VOCABULARY [ROWS]]: as bench_sampler, for llama.cpp's chain of samplers. A
 * row becomes a table of candidates first, as llama_sampler_sample() does it.
 *
 *     cc -O2 -std=c11 -D_POSIX_C_SOURCE=200809L -Ibench -I LLAMA/include -I LLAMA/ggml/include \
 *         -o bench_llama_sampler bench/peers/bench_llama_sampler.c -L LLAMA/build/bin -lllama
 */
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>

#include "sampler_rows.h"

enum { TURNS = 7, SEED = 1, WINDOW = 1000 };

typedef struct llama_sampler sampler;

static sampler *chain_of(sampler **parts, size_t n_parts)
{
    sampler *chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    for (size_t i = 0; i < n_parts; i++) llama_sampler_chain_add(chain, parts[i]);
    return chain;
}

#define CHAIN(...)                                                                                 \
    chain_of((sampler *[]){__VA_ARGS__}, sizeof(sampler *[]){__VA_ARGS__} / sizeof(sampler *))

static llama_token choose(sampler *chain, const float *row, int32_t vocab, llama_token_data *table)
{
    for (int32_t id = 0; id < vocab; id++) table[id] = (llama_token_data){id, row[id], 0};
    llama_token_data_array candidates = {table, (size_t)vocab, -1, false};
    llama_sampler_apply(chain, &candidates);
    return candidates.data[candidates.selected].id;
}

/* The best turn, in milliseconds a row. rows [n_rows, vocab], table [vocab]. */
static double measure(sampler *chain, const float *rows, int32_t vocab, size_t n_rows,
                      llama_token_data *table)
{
    double best = 1e9;
    for (int32_t id = 0; id < 500; id++) llama_sampler_accept(chain, id * 37 % vocab);
    for (int turn = 0; turn < TURNS; turn++) {
        const double start = now_ms();
        for (size_t i = 0; i < n_rows; i++) {
            (void)choose(chain, rows + i * (size_t)vocab, vocab, table);
        }
        const double ms = (now_ms() - start) / (double)n_rows;
        if (ms < best) best = ms;
    }
    return best;
}

int main(int argc, char **argv)
{
    const int32_t vocab = argc > 1 ? (int32_t)strtol(argv[1], NULL, 10) : 151936;
    const size_t n_rows = argc > 2 ? strtoul(argv[2], NULL, 10) : 16;
    const size_t n = n_rows * (size_t)vocab;
    float *rows[2] = {malloc(n * sizeof(float)), malloc(n * sizeof(float))};
    llama_token_data *table = malloc((size_t)vocab * sizeof *table);
    if (vocab <= 0 || n_rows == 0 || !rows[0] || !rows[1] || !table) return 1;
    make_rows(rows[0], (size_t)vocab, n_rows, 0);
    make_rows(rows[1], (size_t)vocab, n_rows, 1);
    const struct {
        const char *name;
        sampler *chain;
    } ways[] = {
        {"greedy", CHAIN(llama_sampler_init_greedy())},
        {"temperature 1", CHAIN(llama_sampler_init_dist(SEED))},
        {"top_p .95", CHAIN(llama_sampler_init_top_p(0.95f, 1), llama_sampler_init_dist(SEED))},
        {"min_p .05", CHAIN(llama_sampler_init_min_p(0.05f, 1), llama_sampler_init_dist(SEED))},
        {"top_k 20, top_p .8",
         CHAIN(llama_sampler_init_top_k(20), llama_sampler_init_top_p(0.8f, 1),
               llama_sampler_init_dist(SEED))},
        {"temperature .8, top_k 40, top_p .9",
         CHAIN(llama_sampler_init_top_k(40), llama_sampler_init_top_p(0.9f, 1),
               llama_sampler_init_temp(0.8f), llama_sampler_init_dist(SEED))},
        {"top_k 1000", CHAIN(llama_sampler_init_top_k(1000), llama_sampler_init_dist(SEED))},
        {"penalties", CHAIN(llama_sampler_init_penalties(vocab, WINDOW, 1.1f, 0, 0.5f),
                            llama_sampler_init_dist(SEED))},
    };
    (void)printf("# milliseconds a row of %d logits, %zu rows, best of %d\n# %-34s %7s %7s\n",
                 (int)vocab, n_rows, (int)TURNS, "", "flat", "peaked");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const double flat = measure(ways[i].chain, rows[0], vocab, n_rows, table);
        const double peaked = measure(ways[i].chain, rows[1], vocab, n_rows, table);
        (void)printf("%-36s %7.3f %7.3f\n", ways[i].name, flat, peaked);
        llama_sampler_free(ways[i].chain);
    }
    free(rows[0]);
    free(rows[1]);
    free(table);
    return 0;
}
