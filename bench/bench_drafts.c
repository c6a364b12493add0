/*
 * bench_drafts SHAPE L WEIGHTS PROMPT W TEXT SELF: what drafts save on a published shape with
 * random weights, for the stage `shapes` of bench/speculation.py. All variants stand in one
 * process, so a turn compares what ran within the same seconds: plain decoding, drafts from the
 * text, from the exit head, and from one of W tokens (0: without it). TEXT and SELF are drafts that
 * were recorded, "4,4,2,1": tokens of each, and how many of them were right.
 *
 * It loads, reads a prompt for each variant, prints "ready", and then runs a turn for each line of
 * its input. A turn is short, since what memory gives changes from second to second: one line of
 * JSON with the milliseconds of a token of each variant, and of a step of some numbers of rows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system.h"
#include "skv/skv.h"

enum { GEN = 16, DRAFTS_MAX = 4096, STEPS = 2 };

static const size_t step_rows[] = {1, 2, 3, 5, 9, 13};

/* Recorded drafts: pairs. */
typedef struct record {
    size_t pairs[DRAFTS_MAX], n;
} record;

typedef struct variant {
    const char *name;
    skv_engine *engine;       /* borrowed */
    skv_sequence *sequence;   /* owned */
    const record *drafts;     /* NULL: none */
    bool asks;                /* the exit head; else any tokens will do */
    size_t n_prompt, i_draft; /* the next one */
    double ms;                /* of a token */
} variant;

static void or_die(skv_status status, const skv_error *err)
{
    if (status == SKV_OK) return;
    (void)fprintf(stderr, "bench_drafts: %s\n", err->text);
    exit(1);
}

static void parse(const char *text, record *out)
{
    char *end = NULL;
    for (out->n = 0; out->n < DRAFTS_MAX && *text != 0; out->n++) {
        out->pairs[out->n] = strtoul(text, &end, 10);
        text = *end == ',' ? end + 1 : end;
        if (*end != ',' && *end != 0) break;
    }
    if (out->n < 2 || out->n % 2 != 0) {
        (void)fprintf(stderr, "bench_drafts: expected pairs of numbers\n");
        exit(2);
    }
}

static skv_engine *open_shape(char **argv, size_t exit_words)
{
    skv_engine_options options = skv_engine_options_default();
    skv_engine *engine = NULL;
    skv_error err;
    const size_t n_prompt = strtoul(argv[4], NULL, 10);
    options.threads = 2;
    options.preset_kv_layers = strtoul(argv[2], NULL, 10);
    options.preset_exit_words = exit_words;
    options.context = n_prompt + 2 * GEN + SKV_DRAFT_MAX;
    options.kv_tokens = 4 * (options.context + 64);
    options.speculation = (skv_speculation){.source = SKV_DRAFT_SELF, .most = SKV_DRAFT_MAX};
    or_die(skv_weights_parse(argv[3], &options.weights) ? SKV_OK : SKV_ARGUMENT,
           &(skv_error){.text = "unknown weights"});
    or_die(skv_engine_open_preset(argv[1], &options, &engine, &err), &err);
    return engine;
}

static void ignore(void *user, size_t i_span, size_t i_token, const float *logits)
{
    (void)user;
    (void)i_span;
    (void)i_token;
    (void)logits;
}

static void read_prompt(variant *v)
{
    const size_t V = skv_engine_vocab(v->engine);
    int32_t *ids = calloc(v->n_prompt, sizeof *ids);
    skv_error err;
    uint64_t state = 0x9e3779b97f4a7c15u;
    if (!ids) exit(1);
    for (size_t i = 0; i < v->n_prompt; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((state >> 33) % V);
    }
    or_die(skv_sequence_create(v->engine, 0, &v->sequence, &err), &err);
    or_die(skv_prompt(v->engine, v->sequence, ids, v->n_prompt, NULL, &err), &err);
    free(ids);
}

/* A step of a token and a draft of n, of which the first n_right are taken to be right. */
static void step(variant *v, size_t n, size_t n_right)
{
    int32_t ids[1 + SKV_DRAFT_MAX] = {5};
    skv_error err;
    if (v->asks && n > 0) {
        n = skv_sequence_draft(v->sequence, ids[0], ids + 1, n);
        n_right = n_right < n ? n_right : n;
    } else {
        for (size_t i = 0; i < n; i++) ids[1 + i] = (int32_t)(6 + i);
    }
    const skv_span span = {v->sequence, ids, 1 + n, SKV_WANT_DRAFTED};
    or_die(skv_step(v->engine, &span, 1, ignore, NULL, &err), &err);
    if (v->asks && n > 0) {
        skv_sequence_settle(v->sequence, n, n_right);
    } else if (n > n_right) {
        (void)skv_sequence_truncate(v->sequence, skv_sequence_length(v->sequence) - n + n_right);
    }
}

static void generate(variant *v)
{
    const record *d = v->drafts;
    const uint64_t start = skv_clock_ns();
    size_t n_done = 0;
    for (; n_done < GEN; v->i_draft += 2) {
        const size_t n = d ? d->pairs[v->i_draft % d->n] : 0;
        const size_t right = d ? d->pairs[v->i_draft % d->n + 1] : 0;
        step(v, n, right);
        n_done += 1 + right;
    }
    v->ms = (double)(skv_clock_ns() - start) * 1e-6 / (double)n_done;
    (void)skv_sequence_truncate(v->sequence, v->n_prompt);
}

static double step_ms(variant *v, size_t n_rows)
{
    double best = 1e30;
    for (size_t i = 0; i < STEPS; i++) {
        const uint64_t start = skv_clock_ns();
        step(v, n_rows - 1, n_rows - 1);
        const double ms = (double)(skv_clock_ns() - start) * 1e-6;
        best = ms < best ? ms : best;
    }
    (void)skv_sequence_truncate(v->sequence, v->n_prompt);
    return best;
}

static void run_turn(variant *v, size_t n)
{
    for (size_t i = 0; i < n; i++) generate(&v[i]);
    printf("{");
    for (size_t i = 0; i < n; i++) printf("\"%s\": %.3f, ", v[i].name, v[i].ms);
    printf("\"rows\": {");
    for (size_t i = 0; i < sizeof step_rows / sizeof *step_rows; i++) {
        printf("%s\"%zu\": %.3f", i > 0 ? ", " : "", step_rows[i], step_ms(&v[0], step_rows[i]));
    }
    printf("}}\n");
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    record text, self;
    char line[8];
    if (argc != 8) {
        (void)fprintf(stderr, "usage: bench_drafts SHAPE L WEIGHTS PROMPT W TEXT SELF\n");
        return 2;
    }
    parse(argv[6], &text);
    parse(argv[7], &self);
    const size_t W = strtoul(argv[5], NULL, 10), n = W > 0 ? 4 : 3;
    skv_engine *whole = open_shape(argv, 0), *cut = W > 0 ? open_shape(argv, W) : NULL;
    variant variants[] = {{.name = "plain", .engine = whole},
                          {.name = "text", .engine = whole, .drafts = &text},
                          {.name = "self", .engine = whole, .drafts = &self, .asks = true},
                          {.name = "cut", .engine = cut, .drafts = &self, .asks = true}};
    for (size_t i = 0; i < n; i++) {
        const skv_speculation how = {.source = variants[i].asks ? SKV_DRAFT_SELF : SKV_DRAFT_NONE,
                                     .most = SKV_DRAFT_MAX};
        skv_error err;
        variants[i].n_prompt = strtoul(argv[4], NULL, 10);
        read_prompt(&variants[i]);
        or_die(skv_sequence_set_speculation(variants[i].sequence, &how, &err), &err);
    }
    printf("ready\n");
    (void)fflush(stdout);
    while (fgets(line, sizeof line, stdin)) run_turn(variants, n);
    for (size_t i = 0; i < n; i++) skv_sequence_free(variants[i].sequence);
    skv_engine_close(whole);
    skv_engine_close(cut);
    return 0;
}
