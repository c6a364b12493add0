/*
 * How often each method makes the host wait for a device. The back end of guarded_backend.h counts
 * it. The table below holds what is true now, so that a wait more is a failure, and one fewer is a
 * number to write down here. docs/explanation/backend.md says what they wait for.
 */
#include "guarded_backend.h"

#include "engine/engine.h"
#include "open_engine.h"
#include "skv/tools.h"

enum { N_PROMPT = 250, N_SCORED = 60, N_ANSWER = 8, NONE = -1 };

#define MODELS SKV_TEST_DATA "/models/"

/* What a method makes the host wait, in four pieces of work. Every step waits once when it ends,
 * and a prompt takes four of them. */
typedef struct waits {
    int prompt; /* N_PROMPT tokens by skv_prompt, logits of the last */
    int token;  /* one more by skv_step, with its logits */
    int scored; /* N_SCORED tokens by skv_score, in one step */
    int answer; /* the prompt, and N_ANSWER tokens that follow it */
} waits;

typedef struct method {
    const char *name, *model;
    const char *eviction, *pruning, *ffn_skip, *speculation, *adapters, *draft_model;
    double early_exit;
    size_t kv_tokens;
    waits want;
} method;

static const method methods[] = {
    {"dense", MODELS "llama3-v5", .want = {4, 1, 1, 11}},
    {"SwiftKV", MODELS "llama-swiftkv-g1", .want = {4, 1, 1, 11}},
    {"AcrossKV", MODELS "llama-swiftkv-g2", .want = {4, 1, 1, 11}},
    {"sliding windows", MODELS "gemma3-v5", .want = {4, 1, 1, 11}},
    {"per-layer embeddings", MODELS "gemma4-e2b", .want = {4, 1, 1, 11}},
    {"mixture of experts", MODELS "mixtral-v5", .want = {4, 1, 1, 11}},
    {"mixture beside a dense block", MODELS "gemma4-moe", .want = {4, 1, 1, 11}},
    {"LoRA", MODELS "llama3-v5", .adapters = "wide=" SKV_TEST_DATA "/lora/wide",
     .want = {4, 1, 1, 11}},
    {"SnapKV", MODELS "llama3-v5", .eviction = "snapkv:40,8,5", .want = {4, 1, 1, 11}},
    {"SnapKV, SwiftKV", MODELS "llama-swiftkv-g1", .eviction = "snapkv:40,8,5",
     .want = {4, 1, 1, 11}},
    {"H2O", MODELS "llama3-v5", .eviction = "h2o:40", .want = {4, 1, 1, 11}},
    {"SnapKV, prompt by layers", MODELS "llama3-v5", .eviction = "snapkv:40,8,5", .kv_tokens = 192,
     .want = {24, 1, NONE, 31}},
    {"KV Prediction", SKV_TEST_DATA "/kvpred/qwen3-c", .want = {5, 1, 2, 12}},
    {"random pruning", MODELS "qwen3-v5", .pruning = "random:0.5", .want = {1, 1, NONE, 8}},
    {"static pruning", MODELS "qwen3-v5", .pruning = "static:0.5", .want = {3, 1, NONE, 10}},
    {"LazyLLM", MODELS "qwen3-v5", .pruning = "lazy:0.75,0.10", .want = {4, 1, NONE, 11}},
    {"FFN-SkipLLM", MODELS "llama3-v5", .ffn_skip = "0.88,10,0,0,0.9", .want = {44, 5, 11, 77}},
    {"early exit", SKV_TEST_DATA "/comparators/exit", .early_exit = 0.3, .want = {4, 1, 3, 11}},
    {"drafts from the text", MODELS "llama3-v5", .speculation = "text:4", .want = {4, 1, 1, 11}},
    {"drafts of its own exit", SKV_TEST_DATA "/comparators/exit", .speculation = "self:4,0.1",
     .want = {4, 1, 1, 35}},
    {"drafts of another model", MODELS "llama3-v5", .speculation = "model:4",
     .draft_model = MODELS "llama3-v5", .want = {4, 1, 1, 11}},
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

/* A prompt and a token, and another prompt whose tokens are all scored. */
static void run_steps(const method *m, skv_engine *engine, const int32_t *ids, waits *got)
{
    float logits[1024];
    double logprobs[N_SCORED];
    const skv_prompt_options options = {.logits = logits};
    skv_error err;
    assert_true(skv_engine_vocab(engine) <= sizeof logits / sizeof *logits);
    skv_sequence *s = new_sequence(engine);
    size_t before = guarded_backend_waits(engine->be);
    if (skv_prompt(engine, s, ids, N_PROMPT, &options, &err) != SKV_OK) fail_msg("%s", err.text);
    got->prompt = since(engine, before);
    before = guarded_backend_waits(engine->be);
    run_token(engine, s, ids);
    got->token = since(engine, before);
    skv_sequence_free(s);
    if (m->want.scored == NONE) return;
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

static void run_answer(skv_engine *engine, const int32_t *ids, waits *got)
{
    skv_sampler *sampler = NULL;
    skv_error err;
    const skv_sampling greedy = skv_sampling_default();
    skv_sequence *s = new_sequence(engine);
    assert_int_equal(skv_sampler_create(&greedy, skv_engine_vocab(engine), &sampler, NULL), SKV_OK);
    const skv_generation g = {
        .max_tokens = N_ANSWER, .sampler = sampler, .ignore_eos = true, .on_token = on_token};
    const size_t before = guarded_backend_waits(engine->be);
    if (skv_generate(engine, s, ids, N_PROMPT, &g, &err) != SKV_OK) fail_msg("%s", err.text);
    got->answer = since(engine, before);
    skv_sampler_free(sampler);
    skv_sequence_free(s);
}

static void test_waits(void **state)
{
    (void)state;
    int32_t ids[N_PROMPT];
    size_t n_wrong = 0;
    print_message("%-36s %6s %6s %6s %6s\n", "waits", "prompt", "token", "scored", "answer");
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        const method *m = &methods[i];
        skv_engine_options options = skv_engine_options_default();
        waits got = {.scored = NONE};
        set_options(m, &options);
        skv_engine *engine = open_or_fail(m->model, &options);
        make_repeating_ids(ids, N_PROMPT, skv_engine_vocab(engine));
        run_steps(m, engine, ids, &got);
        run_answer(engine, ids, &got);
        skv_engine_close(engine);
        const waits *want = &m->want;
        const bool same = got.prompt == want->prompt && got.token == want->token &&
                          got.scored == want->scored && got.answer == want->answer;
        print_message("%-36s %6d %6d %6d %6d%s\n", m->name, got.prompt, got.token, got.scored,
                      got.answer, same ? "" : " <-");
        n_wrong += !same;
    }
    assert_int_equal(n_wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_waits)};
    return cmocka_run_group_tests_name("guarded waits", tests, NULL, NULL);
}
