/* A small model with random weights at every level of kernels that runs here, beside `ref`: what no
 * product shows (attention, norms, rotations, 4-bit codes, keys and values in 8 bits). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "machine_report.h"

/* A prompt with blocks of rows, their rest and more than a page, and single tokens after it. */
enum { PROMPT_TOKENS = 93, SINGLE_TOKENS = 3, ALL_TOKENS = PROMPT_TOKENS + SINGLE_TOKENS };
#define MODEL "mini"

/* Levels sum in another order, and a sum that is rounded differently moves what follows by a step
 * of its type: a difference beyond `most` is no rounding. A kernel that leaves out a term makes one
 * of about 1. */
static const struct {
    skv_weights weights;
    skv_kv kv;
    double most;
} types[] = {{SKV_WEIGHTS_F32, SKV_KV_F32, 1e-4},
             {SKV_WEIGHTS_BF16, SKV_KV_BF16, 0.02},
             {SKV_WEIGHTS_INT8, SKV_KV_INT8, 0.1},
             {SKV_WEIGHTS_INT4, SKV_KV_FP8, 0.2}};
enum { N_TYPES = sizeof types / sizeof types[0] };

typedef struct logit_rows {
    size_t vocab, n; /* rows that are there */
    float *at;       /* [ALL_TOKENS][vocab], owned */
} logit_rows;

static void keep_row(void *user, size_t i_span, size_t i_token, const float *logits)
{
    logit_rows *rows = user;
    (void)i_span, (void)i_token;
    memcpy(rows->at + rows->n++ * rows->vocab, logits, rows->vocab * sizeof *logits);
}

static skv_status read_tokens(skv_engine *engine, logit_rows *rows, skv_error *err)
{
    int32_t ids[ALL_TOKENS];
    skv_sequence *sequence = NULL;
    for (size_t i = 0; i < ALL_TOKENS; i++) ids[i] = (int32_t)(i * i * 31 % rows->vocab);
    skv_status status = skv_sequence_create(engine, ALL_TOKENS, &sequence, err);
    for (size_t at = 0, n = PROMPT_TOKENS; status == SKV_OK && at < ALL_TOKENS; at += n, n = 1) {
        const skv_span span = {sequence, ids + at, n, SKV_WANT_ALL};
        status = skv_step(engine, &span, 1, keep_row, rows, err);
    }
    skv_sequence_free(sequence);
    return status;
}

static skv_status run_level(const char *level, size_t i_type, logit_rows *rows, skv_error *err)
{
    skv_engine_options options = skv_engine_options_default();
    skv_engine *engine = NULL;
    options.cpu = level;
    options.weights = types[i_type].weights;
    options.kv = types[i_type].kv;
    options.context = ALL_TOKENS;
    rows->n = 0;
    skv_status status = skv_engine_open_preset(MODEL, &options, &engine, err);
    if (status == SKV_OK && !rows->at) {
        rows->vocab = skv_engine_vocab(engine);
        rows->at = cli_alloc(ALL_TOKENS * rows->vocab, sizeof *rows->at);
    }
    if (status == SKV_OK) status = read_tokens(engine, rows, err);
    skv_engine_close(engine);
    return status;
}

/* The root mean square of what is different, in units of that of the reference; of the worst row.
 */
static double difference(const logit_rows *rows, const logit_rows *reference)
{
    double worst = 0;
    for (size_t r = 0; r < ALL_TOKENS; r++) {
        const float *a = rows->at + r * rows->vocab, *b = reference->at + r * rows->vocab;
        double apart = 0, size = 0;
        for (size_t i = 0; i < rows->vocab; i++) {
            const double d = (double)a[i] - (double)b[i];
            apart += d * d;
            size += (double)b[i] * (double)b[i];
        }
        const double share = sqrt(apart / size);
        if (!(share <= worst)) worst = share; /* no number too */
    }
    return worst;
}

static void print_differences(const char *level, const double differences[N_TYPES])
{
    char line[160] = "";
    size_t n = 0;
    bool agrees = true;
    for (size_t i = 0; i < N_TYPES && n < sizeof line; i++) {
        n += (size_t)snprintf(line + n, sizeof line - n, ", %s %.1e",
                              skv_weights_name(types[i].weights), differences[i]);
        agrees = agrees && differences[i] <= types[i].most;
    }
    machine_say("", "%s %s ref%s", level, agrees ? "agrees with" : "DIFFERS from", line);
}

int machine_compare_levels(const skv_machine *machine)
{
    logit_rows rows = {0}, reference = {0};
    double differences[8][N_TYPES] = {{0}};
    skv_error err = {0};
    skv_status status = SKV_OK;
    for (size_t t = 0; t < N_TYPES && status == SKV_OK; t++) {
        status = run_level("ref", t, &reference, &err);
        for (size_t i = 0; i < machine->n_levels && status == SKV_OK; i++) {
            if (!machine->runs[i] || strcmp(machine->levels[i], "ref") == 0) continue;
            status = run_level(machine->levels[i], t, &rows, &err);
            if (status == SKV_OK) differences[i][t] = difference(&rows, &reference);
        }
    }
    free(rows.at);
    free(reference.at);
    if (status != SKV_OK) return cli_check(status, &err);
    machine_say("models", "a small one at each level, the difference of its logits:");
    for (size_t i = 0; i < machine->n_levels; i++) {
        if (!machine->runs[i] || strcmp(machine->levels[i], "ref") == 0) continue;
        print_differences(machine->levels[i], differences[i]);
    }
    return CLI_DONE;
}
