/* Drafts of every source on the CUDA back end: they change no choice but by rounding. */
#include <string.h>

#include "check_cuda_backend.h"
#include "engine/engine.h"
#include "scored_prompt.h"

#define MODELS SKV_TEST_DATA "/models/"

enum { N_DRAFT_PROMPT = 40, N_DRAFT_ANSWER = 16 };

/* Whether tokens are drafted that are right, and wrong ones, which are taken back. `auto` drafts by
 * the clock. */
typedef struct drafting {
    const char *how, *model, *draft_model;
    double temperature;
    bool some_right, some_wrong;
} drafting;

#define KVPRED SKV_TEST_DATA "/../../models/mini/kvpred"

static const drafting draftings[] = {
    {"text:6", MODELS "qwen3-v4", NULL, 0, true, false},
    {"model:4,0", MODELS "llama3-v4", MODELS "llama3-v4", 0, true, false},
    {"model:4,0", MODELS "llama3-v4", MODELS "llama-swiftkv-g4", 1, false, true},
    {"text+self:5,0", MODELS "llama-swiftkv-g4", NULL, 0.5, true, true},
    {"aux:4,0", KVPRED, NULL, 0, true, false},
    {"mtp:3,0", MODELS "qwen3-5-wrapped", NULL, 0, false, true},
    {"auto:9,0", MODELS "llama-swiftkv-g4", NULL, 0, false, false},
};

typedef struct draft_answer {
    int32_t ids[N_DRAFT_ANSWER];
    size_t n;
} draft_answer;

static bool keep_id(void *user, int32_t id)
{
    draft_answer *a = user;
    if (a->n == N_DRAFT_ANSWER) return false;
    a->ids[a->n++] = id;
    return true;
}

/* SwiftKV models draft by their own head, where their file has no exit head. */
static skv_engine *open_for_drafts(const drafting *d)
{
    skv_engine_options o = skv_engine_options_default();
    skv_error err;
    o.device = "cuda";
    o.threads = 1;
    o.weights = SKV_WEIGHTS_BF16;
    o.kv = SKV_KV_BF16;
    o.context = 128;
    o.step_tokens = 32; /* the prompt takes two steps */
    o.kv_tokens = (size_t)4 * 128;
    o.draft_model = d->draft_model;
    o.mtp = strncmp(d->how, "mtp", 3) == 0;
    if (o.mtp) assert_int_equal(skv_speculation_parse(d->how, &o.speculation, &err), SKV_OK);
    if (strstr(d->model, "kvpred")) o.prefill = SKV_PREFILL_KVPRED;
    skv_engine *engine = open_or_fail(d->model, &o);
    if (engine->runs_swiftkv && !engine->model.exit_head) {
        engine->model.exit_head = engine->model.head;
        engine->model.n_exit_ids = engine->config->vocab;
        ((skv_config *)(uintptr_t)engine->config)->early_exit = true;
    }
    return engine;
}

static void close_after_drafts(skv_engine *engine)
{
    if (engine->model.exit_head == engine->model.head) engine->model.exit_head = NULL;
    skv_engine_close(engine);
}

static skv_draft_counts answer_with_drafts(skv_engine *engine, const drafting *d,
                                           const skv_sampling *sampling, const int32_t *prompt,
                                           draft_answer *out)
{
    skv_speculation how;
    skv_generation_stats stats;
    skv_sampler *sampler = NULL;
    skv_error err;
    skv_sequence *s = new_sequence(engine);
    const skv_generation g = {.max_tokens = N_DRAFT_ANSWER,
                              .ignore_eos = true,
                              .on_token = keep_id,
                              .user = out,
                              .stats = &stats};
    skv_generation with = g;
    assert_int_equal(skv_speculation_parse(d->how, &how, &err), SKV_OK);
    if (skv_sequence_set_speculation(s, &how, &err) != SKV_OK) fail_msg("%s", err.text);
    assert_int_equal(skv_sampler_create(sampling, skv_engine_vocab(engine), &sampler, &err),
                     SKV_OK);
    with.sampler = sampler;
    if (skv_generate(engine, s, prompt, N_DRAFT_PROMPT, &with, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    skv_sampler_free(sampler);
    skv_sequence_free(s);
    skv_draft_counts sum = {0};
    for (size_t i = 0; i < SKV_DRAFT_SOURCES; i++) {
        sum.drafted += stats.drafts[i].drafted;
        sum.accepted += stats.drafts[i].accepted;
    }
    return sum;
}

/* How many tokens of an answer are others than those that are chosen by the same numbers from the
 * logits of single steps over that answer. */
static size_t count_others(skv_engine *engine, const skv_sampling *sampling, const int32_t *prompt,
                           const draft_answer *a)
{
    float logits[VOCAB_MAX];
    logits_row row = {logits, skv_engine_vocab(engine)};
    const skv_prompt_options options = {.logits = logits};
    skv_sampler *sampler = NULL;
    skv_error err;
    size_t n_others = 0;
    skv_sequence *s = new_sequence(engine);
    assert_true(row.n <= VOCAB_MAX);
    assert_int_equal(skv_sampler_create(sampling, row.n, &sampler, &err), SKV_OK);
    assert_int_equal(skv_prompt(engine, s, prompt, N_DRAFT_PROMPT, &options, &err), SKV_OK);
    for (size_t i = 0; i < a->n; i++) {
        const skv_span span = {s, a->ids + i, 1, SKV_WANT_LAST};
        n_others += skv_sampler_choose(sampler, logits) != a->ids[i];
        assert_int_equal(skv_step(engine, &span, 1, copy_logits, &row, &err), SKV_OK);
    }
    skv_sampler_free(sampler);
    skv_sequence_free(s);
    return n_others;
}

/* Drafts change nothing but rounding: where two logits are close, a token may be another one. */
void its_drafts_change_no_choice(void **state)
{
    const case_part chosen = cases_chosen();
    (void)state;
    for (size_t i = chosen.first; i < sizeof draftings / sizeof *draftings; i += chosen.step) {
        const drafting *d = &draftings[i];
        const skv_sampling sampling = {
            .temperature = d->temperature, .top_p = 1, .repetition_penalty = 1, .seed = 3};
        int32_t prompt[N_DRAFT_PROMPT];
        draft_answer a = {.n = 0};
        skv_engine *engine = open_for_drafts(d);
        make_repeating_ids(prompt, N_DRAFT_PROMPT, skv_engine_vocab(engine));
        const skv_draft_counts n = answer_with_drafts(engine, d, &sampling, prompt, &a);
        const size_t n_others = count_others(engine, &sampling, prompt, &a);
        print_message("%-16s %2zu of %2zu drafted tokens, %zu of %zu are others\n", d->how,
                      (size_t)n.accepted, (size_t)n.drafted, n_others, a.n);
        assert_int_equal(a.n, N_DRAFT_ANSWER);
        assert_true(!d->some_right || n.accepted > 0);
        assert_true(!d->some_wrong || n.accepted < n.drafted);
        assert_true(n_others * 10 <= a.n);
        close_after_drafts(engine);
    }
}
