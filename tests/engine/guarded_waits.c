/*
 * How often each method makes the host wait for a device. The back end of guarded_backend.h counts
 * it. The table is that of docs/explanation/backend.md, so that a wait more is a failure, and one
 * fewer is a number to write down there. The page says what they wait for.
 */
#define _XOPEN_SOURCE 700 /* barriers */
#include "guarded_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "eval/runner.h"
#include "open_engine.h"
#include "skv/ranks.h"
#include "skv/tools.h"
#include "thread_team.h"

enum { N_PROMPT = 250, N_SCORED = 60, N_SHORT = 64, N_ANSWER = 8, NONE = -1, PAGE_MAX = 1 << 17 };

#define MODELS SKV_TEST_DATA "/models/"
#define PAGE SKV_TEST_DATA "/../../docs/explanation/backend.md"

/* What a method makes the host wait, in five pieces of work. Every step waits once when it ends,
 * and a prompt takes four of them. */
typedef struct waits {
    int prompt; /* N_PROMPT tokens by skv_prompt, logits of the last */
    int token;  /* one more by skv_step, with its logits */
    int rows;   /* N_SCORED tokens by one skv_step, with all logits */
    int scored; /* N_SCORED tokens by skv_score, in one step */
    int answer; /* the prompt, and N_ANSWER tokens that follow it */
} waits;

typedef struct method {
    const char *name, *model;
    const char *eviction, *pruning, *ffn_skip, *speculation, *adapters, *draft_model;
    double early_exit, repetition;
    size_t kv_tokens, ranks;
    size_t n_prompt; /* 0: N_PROMPT */
} method;

static const method methods[] = {
    {.name = "dense", .model = MODELS "llama3-v5"},
    {.name = "SwiftKV", .model = MODELS "llama-swiftkv-g1"},
    {.name = "AcrossKV", .model = MODELS "llama-swiftkv-g2"},
    {.name = "sliding windows", .model = MODELS "gemma3-v5"},
    {.name = "per-layer embeddings", .model = MODELS "gemma4-e2b"},
    {.name = "hybrid", .model = MODELS "qwen3-5"},
    {.name = "mixture of experts", .model = MODELS "mixtral-v5"},
    {.name = "mixture beside a dense block", .model = MODELS "gemma4-moe"},
    {.name = "LoRA", .model = MODELS "llama3-v5", .adapters = "wide=" SKV_TEST_DATA "/lora/wide"},
    {.name = "SnapKV", .model = MODELS "llama3-v5", .eviction = "snapkv:40,8,5"},
    {.name = "SnapKV, SwiftKV", .model = MODELS "llama-swiftkv-g1", .eviction = "snapkv:40,8,5"},
    {.name = "H2O", .model = MODELS "llama3-v5", .eviction = "h2o:40"},
    {.name = "SnapKV, prompt by layers",
     .model = MODELS "llama3-v5",
     .eviction = "snapkv:40,8,5",
     .kv_tokens = 192},
    {.name = "KV Prediction", .model = SKV_TEST_DATA "/kvpred/qwen3-c"},
    {.name = "random pruning", .model = MODELS "qwen3-v5", .pruning = "random:0.5"},
    {.name = "static pruning", .model = MODELS "qwen3-v5", .pruning = "static:0.5"},
    {.name = "LazyLLM", .model = MODELS "qwen3-v5", .pruning = "lazy:0.75,0.10"},
    {.name = "FFN-SkipLLM", .model = MODELS "llama3-v5", .ffn_skip = "0.88,10,0,0,0.9"},
    {.name = "early exit", .model = SKV_TEST_DATA "/comparators/exit", .early_exit = 0.3},
    {.name = "drafts from the text", .model = MODELS "llama3-v5", .speculation = "text:4"},
    {.name = "drafts of its own exit",
     .model = SKV_TEST_DATA "/comparators/exit",
     .speculation = "self:4,0.1"},
    {.name = "drafts of another model",
     .model = MODELS "llama3-v5",
     .speculation = "model:4,0",
     .draft_model = MODELS "llama3-v5",
     .n_prompt = N_SHORT},
    {.name = "drafts with penalties",
     .model = MODELS "llama3-v5",
     .speculation = "model:4,0",
     .draft_model = MODELS "llama3-v5",
     .repetition = 1.01,
     .n_prompt = N_SHORT},
    {.name = "two ranks", .model = MODELS "llama3-v5", .ranks = 2},
};

static void set_options(const method *m, skv_engine_options *o)
{
    skv_error err;
    o->threads = 1;
    o->cpu = "ref"; /* the same bits on every machine, so the same drafts */
    o->weights = SKV_WEIGHTS_F32;
    o->context = 320;
    o->kv_tokens = m->kv_tokens ? m->kv_tokens : 4 * 320;
    o->step_tokens = m->pruning ? N_PROMPT : 64; /* LazyLLM reads a prompt in one step */
    o->adapters = m->adapters;
    o->draft_model = m->draft_model;
    o->early_exit = m->early_exit;
    if (m->pruning) assert_true(skv_pruning_parse(m->pruning, &o->pruning));
    if (m->ffn_skip) assert_true(skv_ffn_skip_parse(m->ffn_skip, &o->ffn_skip));
    if (m->eviction) {
        assert_int_equal(skv_eviction_parse(m->eviction, &o->eviction, &err), SKV_OK);
    }
    if (m->speculation) {
        assert_int_equal(skv_speculation_parse(m->speculation, &o->speculation, &err), SKV_OK);
    }
}

static int since(const skv_engine *engine, size_t before)
{
    return (int)(guarded_backend_waits(engine->be) - before);
}

static size_t prompt_of(const method *m)
{
    return m->n_prompt > 0 ? m->n_prompt : N_PROMPT;
}

static void on_logits(void *user, size_t i_span, size_t i_token, const float *logits)
{
    (void)user, (void)i_span, (void)i_token, (void)logits;
}

static void run_token(skv_engine *engine, skv_sequence *s, const int32_t *id)
{
    const skv_span span = {s, id, 1, SKV_WANT_LAST};
    skv_error err;
    if (skv_step(engine, &span, 1, on_logits, NULL, &err) != SKV_OK) fail_msg("%s", err.text);
}

static void run_rows(skv_engine *engine, const int32_t *ids)
{
    skv_sequence *s = new_sequence(engine);
    const skv_span span = {s, ids, N_SCORED, SKV_WANT_ALL};
    skv_error err;
    if (skv_step(engine, &span, 1, on_logits, NULL, &err) != SKV_OK) fail_msg("%s", err.text);
    skv_sequence_free(s);
}

/* A prompt and a token, and other prompts all of whose rows are told or scored. */
static void run_steps(const method *m, skv_engine *engine, const int32_t *ids, waits *got)
{
    float logits[1024];
    double logprobs[N_SCORED];
    const skv_prompt_options options = {.logits = logits};
    skv_error err;
    assert_true(skv_engine_vocab(engine) <= sizeof logits / sizeof *logits);
    skv_sequence *s = new_sequence(engine);
    size_t before = guarded_backend_waits(engine->be);
    if (skv_prompt(engine, s, ids, prompt_of(m), &options, &err) != SKV_OK)
        fail_msg("%s", err.text);
    got->prompt = since(engine, before);
    before = guarded_backend_waits(engine->be);
    run_token(engine, s, ids);
    got->token = since(engine, before);
    skv_sequence_free(s);
    if (m->pruning || m->kv_tokens) return; /* they are not scored, or do not fit */
    before = guarded_backend_waits(engine->be);
    run_rows(engine, ids);
    got->rows = since(engine, before);
    before = guarded_backend_waits(engine->be);
    if (skv_score(engine, ids, N_SCORED, logprobs, NULL, &err) != SKV_OK) fail_msg("%s", err.text);
    got->scored = since(engine, before);
}

static bool on_token(void *user, int32_t id)
{
    (void)user;
    (void)id;
    return true;
}

static void run_answer(const method *m, skv_engine *engine, const int32_t *ids, waits *got)
{
    skv_sampler *sampler = NULL;
    skv_error err;
    skv_sampling greedy = skv_sampling_default();
    if (m->repetition > 0) greedy.repetition_penalty = m->repetition;
    skv_sequence *s = new_sequence(engine);
    assert_int_equal(skv_sampler_create(&greedy, skv_engine_vocab(engine), &sampler, NULL), SKV_OK);
    const skv_generation g = {
        .max_tokens = N_ANSWER, .sampler = sampler, .ignore_eos = true, .on_token = on_token};
    const size_t before = guarded_backend_waits(engine->be);
    if (skv_generate(engine, s, ids, prompt_of(m), &g, &err) != SKV_OK) fail_msg("%s", err.text);
    got->answer = since(engine, before);
    skv_sampler_free(sampler);
    skv_sequence_free(s);
}

/* ---- ranks ---- */

typedef struct ranks {
    hub hub;
    member members[2];
    skv_team teams[2];
    pthread_t thread;
} ranks;

static void *follow(void *team)
{
    return (void *)(uintptr_t)skv_ranks_follow(team, NULL);
}

static void start_ranks(ranks *r)
{
    open_hub(&r->hub, 2);
    for (size_t i = 0; i < 2; i++) r->teams[i] = join_hub(&r->hub, &r->members[i], i);
    assert_int_equal(pthread_create(&r->thread, NULL, follow, &r->teams[1]), 0);
}

static void end_ranks(ranks *r)
{
    void *status;
    assert_int_equal(skv_ranks_end(&r->teams[0], NULL), SKV_OK);
    pthread_join(r->thread, &status);
    assert_true((uintptr_t)status == SKV_OK);
    pthread_barrier_destroy(&r->hub.all_here);
}

/* ---- the table ---- */

static waits count(const method *m)
{
    int32_t ids[N_PROMPT];
    skv_engine_options options = skv_engine_options_default();
    waits got = {.rows = NONE, .scored = NONE};
    ranks r = {.hub = {.size = 0}};
    set_options(m, &options);
    if (m->ranks > 0) start_ranks(&r);
    if (m->ranks > 0) options.team = &r.teams[0];
    skv_engine *engine = open_or_fail(m->model, &options);
    make_repeating_ids(ids, N_PROMPT, skv_engine_vocab(engine));
    run_steps(m, engine, ids, &got);
    run_answer(m, engine, ids, &got);
    skv_engine_close(engine);
    if (m->ranks > 0) end_ranks(&r);
    return got;
}

/* All of backend.md. */
static char *read_page(void)
{
    char *text = calloc(1, PAGE_MAX);
    FILE *file = fopen(PAGE, "r");
    assert_true(text && file);
    const size_t n = fread(text, 1, PAGE_MAX, file);
    (void)fclose(file);
    assert_true(n > 0 && n < PAGE_MAX);
    return text;
}

static const char *cell(char *out, size_t size, int n)
{
    (void)snprintf(out, size, n == NONE ? "-" : "%d", n);
    return out;
}

static void page_has_what_is_counted(void **state)
{
    (void)state;
    char *page = read_page();
    size_t n_wrong = 0;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        const waits got = count(&methods[i]);
        char line[128], rows[12], scored[12];
        (void)snprintf(line, sizeof line, "\n| %s | %d | %d | %s | %s | %d | ", methods[i].name,
                       got.prompt, got.token, cell(rows, sizeof rows, got.rows),
                       cell(scored, sizeof scored, got.scored), got.answer);
        if (strstr(page, line)) continue;
        print_message("backend.md lacks%s\n", line);
        n_wrong++;
    }
    free(page);
    assert_int_equal(n_wrong, 0);
}

/* ---- rows of logits stay in the back end ---- */

/* Two requests of an example: an answer, and the last 9 tokens of a text that are scored. */
static void evaluate(skv_engine *engine, const int32_t *ids)
{
    skv_eval_example example, *batch[] = {&example};
    skv_eval_runner runner;
    skv_error err;
    skv_eval_example_init(&example, 0);
    for (size_t i = 0; i < 2; i++) {
        skv_eval_request *q = skv_eval_request_new(&example, NULL);
        assert_non_null(q);
        for (size_t t = 0; t < N_SCORED; t++) {
            assert_int_equal(skv_ids_push(&q->ids, ids[t], NULL), SKV_OK);
        }
        q->n_context = N_SCORED - 9;
        q->max_new = i * N_ANSWER;
        q->stop_id = -1;
    }
    assert_int_equal(skv_eval_runner_init(&runner, engine, NULL, NULL), SKV_OK);
    if (skv_eval_runner_run(&runner, batch, 1, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_true(example.requests[0].logprob < 0 && example.requests[1].answer.n > 0);
    skv_eval_runner_release(&runner);
    skv_eval_example_release(&example);
}

static void answers_and_scores_map_nothing(void **state)
{
    (void)state;
    const method dense = {.name = "dense", .model = MODELS "llama3-v5", .repetition = 1.1};
    int32_t ids[N_PROMPT];
    skv_engine_options options = skv_engine_options_default();
    double logprobs[N_SCORED];
    waits unused;
    set_options(&dense, &options);
    skv_engine *engine = open_or_fail(dense.model, &options);
    make_repeating_ids(ids, N_PROMPT, skv_engine_vocab(engine));
    const size_t before = guarded_backend_mapped(engine->be);
    run_answer(&dense, engine, ids, &unused);
    assert_int_equal(skv_score(engine, ids, N_SCORED, logprobs, NULL, NULL), SKV_OK);
    evaluate(engine, ids);
    assert_int_equal(guarded_backend_mapped(engine->be), before);
    run_rows(engine, ids);
    assert_int_equal(guarded_backend_mapped(engine->be),
                     before + N_SCORED * skv_engine_vocab(engine));
    skv_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(page_has_what_is_counted),
                                       cmocka_unit_test(answers_and_scores_map_nothing)};
    return cmocka_run_group_tests_name("guarded waits", tests, NULL, NULL);
}
