/*
 * Recorded launches (cuda_graphs.h) on the emulated GPU: steps have the same bits with and without,
 * whatever joins and leaves; how many calls of the driver a step takes; how many recordings there
 * are; what a driver that cannot record does. And that the fake driver records as a driver does.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_image.h"
#include "base/rng.h"
#include "device_driver.h"
#include "engine/engine.h"
#include "open_engine.h"
#include "steps/step.h"

#define MODELS SKV_TEST_DATA "/models/"

enum { SEQUENCES = 8, ROWS_MAX = 1024, LONG_PROMPT = 60, CONTEXT = 160, IDS = 160 };

static void *image;

/* The fake driver has the kernels itself: any image will do. */
const void *__wrap_skv_cuda_image(void);

const void *__wrap_skv_cuda_image(void)
{
    return image;
}

/* ---- steps ---- */

typedef struct scenario {
    const char *name, *model;
    const char *sizes; /* sequences of each step, a digit */
    const char *eviction;
    skv_kv kv;
    size_t prompt; /* tokens of the first; 0: LONG_PROMPT */
} scenario;

/* The first sequence passes the border of a page in its fifth step; that of `portions` comes to a
 * third page in its third, which attention is cut for. */
static const scenario scenarios[] = {
    {.name = "dense", .model = MODELS "llama3-v4", .sizes = "11223355885221"},
    {.name = "portions", .model = MODELS "llama3-v4", .sizes = "1111", .prompt = 126},
    {.name = "SwiftKV", .model = MODELS "llama-swiftkv-g4", .sizes = "1122331"},
    {.name = "SnapKV", .model = MODELS "llama3-v4", .sizes = "11221", .eviction = "snapkv:40,8,5"},
    {.name = "int8 pages", .model = MODELS "llama3-v4", .sizes = "111", .kv = SKV_KV_INT8},
    {.name = "mixture, windows", .model = MODELS "gpt-oss", .sizes = "11221"},
    {.name = "hybrid", .model = MODELS "qwen3-5-swiftkv", .sizes = "11221"},
};

/* A number for each row of logits, in order. */
typedef struct answers {
    uint64_t rows[ROWS_MAX];
    size_t n, vocab;
} answers;

static void add_row(void *user, size_t i_span, size_t i_token, const float *logits)
{
    answers *a = user;
    uint64_t hash = i_span;
    (void)i_token;
    assert_true(a->n < ROWS_MAX);
    for (size_t v = 0; v < a->vocab; v++) {
        uint32_t bits;
        memcpy(&bits, &logits[v], sizeof bits);
        hash = (hash ^ bits) * UINT64_C(0x100000001b3);
    }
    a->rows[a->n++] = hash;
}

static skv_cuda_device *device_of(const skv_engine *engine)
{
    return &skv_cuda_of(engine->be)->device;
}

static skv_engine *open_engine(const char *model, const char *eviction, skv_kv kv)
{
    skv_engine_options options = skv_engine_options_default();
    skv_error err;
    options.device = "cuda";
    options.threads = 1;
    options.weights = SKV_WEIGHTS_BF16;
    options.kv = kv ? kv : SKV_KV_BF16;
    options.context = CONTEXT;
    options.kv_tokens = (size_t)2 * SEQUENCES * CONTEXT;
    if (eviction) assert_int_equal(skv_eviction_parse(eviction, &options.eviction, &err), SKV_OK);
    skv_engine *engine = open_or_fail(model, &options);
    assert_false(device_of(engine)->graphs->off);
    return engine;
}

static skv_sequence *start(skv_engine *engine, size_t i, size_t n, answers *out)
{
    int32_t ids[IDS];
    skv_error err;
    float *logits = calloc(out->vocab, sizeof *logits);
    const skv_prompt_options options = {.logits = logits};
    skv_sequence *s = new_sequence(engine);
    make_repeating_ids(ids, IDS, out->vocab);
    assert_non_null(logits);
    if (skv_prompt(engine, s, ids + i, n, &options, &err) != SKV_OK) fail_msg("%s", err.text);
    add_row(out, i, 0, logits);
    free(logits);
    return s;
}

/* Sequences join when a step has more than there are; those that it has no room for rest. */
static void answer(skv_engine *engine, const char *sizes, size_t prompt, answers *out)
{
    skv_sequence *sequences[SEQUENCES];
    int32_t ids[IDS];
    size_t n_there = 0;
    skv_error err;
    *out = (answers){.vocab = skv_engine_vocab(engine)};
    make_repeating_ids(ids, IDS, out->vocab);
    for (size_t t = 0; sizes[t]; t++) {
        const size_t n = (size_t)(sizes[t] - '0');
        skv_span spans[SEQUENCES];
        assert_true(n <= SEQUENCES);
        for (; n_there < n; n_there++) {
            sequences[n_there] = start(engine, n_there, n_there > 0 ? 3 + n_there : prompt, out);
        }
        for (size_t i = 0; i < n; i++) {
            spans[i] = (skv_span){sequences[i], &ids[7 * i + t], 1, SKV_WANT_LAST};
        }
        if (skv_step(engine, spans, n, add_row, out, &err) != SKV_OK) fail_msg("%s", err.text);
    }
    for (size_t i = 0; i < n_there; i++) skv_sequence_free(sequences[i]);
}

static void its_steps_have_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        const scenario *s = &scenarios[i];
        const size_t n_prompt = s->prompt ? s->prompt : LONG_PROMPT;
        static answers with, again, without;
        skv_engine *engine = open_engine(s->model, s->eviction, s->kv);
        skv_cuda_graphs *graphs = device_of(engine)->graphs;
        answer(engine, s->sizes, n_prompt, &with);
        const uint64_t n_recorded = graphs->n_recorded, n_played = graphs->n_played;
        graphs->off = true;
        answer(engine, s->sizes, n_prompt, &without);
        assert_int_equal(graphs->n_played, n_played);
        graphs->off = false;
        answer(engine, i == 0 ? s->sizes : "", n_prompt, &again);
        print_message("%-16s %zu rows; %zu recordings, played %zu times, then %zu\n", s->name,
                      with.n, (size_t)n_recorded, (size_t)n_played,
                      (size_t)(graphs->n_played - n_played));
        assert_true(n_recorded > 0 && n_played >= n_recorded);
        assert_true(i > 0 || graphs->n_played - n_played >= strlen(s->sizes));
        assert_int_equal(with.n, without.n);
        assert_memory_equal(with.rows, without.rows, with.n * sizeof *with.rows);
        assert_memory_equal(again.rows, without.rows, again.n * sizeof *with.rows);
        skv_engine_close(engine);
    }
}

/* ---- whatever steps are made of ---- */

enum { LIVE = 4, ROUNDS = 7, REPEATS = 3, JOINS = 12, EVICTED = 44, ROOM = 24 };

/* Sequences that come, branch off, go back and leave, by numbers of `rng`. Their tokens do not
 * depend on results. */
typedef struct mixed {
    skv_engine *engine;
    bool evicts; /* prompts come alone, and lose rows */
    skv_sequence *at[LIVE];
    size_t n_joins[LIVE]; /* tokens of a prompt for the next step; 0: it has been read */
    size_t n_begun, n_branches, n_back, n_left;
    skv_rng rng;
    int32_t ids[IDS];
    answers *out;
} mixed;

static size_t below(mixed *m, size_t n)
{
    return (size_t)skv_rng_below(&m->rng, n);
}

/* The bits of a pick, which are those of the logits it was made from. */
static void add_pick(void *user, const skv_wish_owner *owner, const skv_picked *p)
{
    mixed *m = user;
    uint64_t hash = skv_mix64((uint64_t)p->id + owner->i_span * 4096 + owner->i_row * 65536);
    const double numbers[] = {(double)p->logit, p->norm, (double)p->top[p->n_top - 1].logit};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        uint64_t bits;
        memcpy(&bits, &numbers[i], sizeof bits);
        hash = skv_mix64(hash ^ bits);
    }
    assert_true(m->out->n < ROWS_MAX);
    m->out->rows[m->out->n++] = hash;
}

/* Two draws, as of answers that branch off there. */
static bool wish_two(void *user, skv_wishes *to)
{
    static const skv_sampling sampling = {.temperature = 1.5, .top_p = 1, .repetition_penalty = 1};
    mixed *m = user;
    for (size_t i = 0; i < 2; i++) {
        to->picks[to->n++] = (skv_pick_row){
            .n_top = 8, .norm = true, .sampling = &sampling, .u = skv_rng_uniform(&m->rng)};
    }
    return true;
}

static void add_logits(void *user, size_t i_span, size_t i_token, const float *logits)
{
    add_row(((mixed *)user)->out, i_span, i_token, logits);
}

static void begin_sequence(mixed *m, size_t i)
{
    const size_t from = below(m, LIVE);
    skv_error err;
    m->n_begun++;
    if (m->at[from] && m->n_joins[from] == 0) {
        const size_t n = skv_sequence_length(m->at[from]);
        m->at[i] = new_sequence(m->engine);
        m->n_branches++;
        if (skv_sequence_share(m->at[i], m->at[from], n, &err) != SKV_OK) fail_msg("%s", err.text);
    } else if (m->evicts) {
        m->at[i] = start(m->engine, i, EVICTED + below(m, 8), m->out);
    } else {
        m->at[i] = new_sequence(m->engine);
        m->n_joins[i] = 1 + below(m, JOINS);
    }
}

/* One sequence comes, branches off another, goes back, or leaves. */
static void change(mixed *m)
{
    const size_t i = below(m, LIVE), how = below(m, 3);
    if (!m->at[i]) {
        begin_sequence(m, i);
        return;
    }
    const size_t n = skv_sequence_length(m->at[i]);
    if (how == 0 || n + ROOM > CONTEXT) {
        skv_sequence_free(m->at[i]);
        m->at[i] = NULL;
        m->n_left++;
    } else if (n > 4 && !m->evicts) {
        assert_true(skv_sequence_truncate(m->at[i], n - 1 - below(m, 3)) > 0);
        m->n_back++;
    }
}

/* A few steps of the same sequences, so that lists repeat themselves. */
static void step_some(mixed *m, bool draws)
{
    const skv_step_sink picks = {.on_wish = wish_two, .on_picked = add_pick, .user = m};
    const skv_step_sink rows = {.on_row = add_logits, .user = m};
    const size_t rests = below(m, 2 * LIVE), drafts = below(m, 2 * LIVE);
    for (size_t k = 0; k < REPEATS; k++) {
        skv_span spans[LIVE];
        size_t n = 0;
        skv_error err;
        for (size_t i = 0; i < LIVE; i++) {
            if (!m->at[i] || (i == rests && m->n_joins[i] == 0)) continue;
            const size_t n_new = m->n_joins[i] > 0 ? m->n_joins[i] : i == drafts ? 3 : 1;
            const int32_t *ids = m->ids + 7 * i + k;
            spans[n++] =
                (skv_span){m->at[i], ids, n_new, m->n_joins[i] == 0 ? SKV_WANT_ALL : SKV_WANT_LAST};
            m->n_joins[i] = 0;
        }
        if (n == 0) return;
        const skv_step_sink *sink = draws ? &picks : &rows;
        if (skv_engine_step(m->engine, spans, n, sink, &err) != SKV_OK) fail_msg("%s", err.text);
    }
}

static void run_mixed(skv_engine *engine, bool evicts, uint64_t seed, answers *out)
{
    mixed m = {.engine = engine, .evicts = evicts, .out = out};
    *out = (answers){.vocab = skv_engine_vocab(engine)};
    make_repeating_ids(m.ids, IDS, out->vocab);
    skv_rng_init(&m.rng, seed);
    for (size_t i = 0; i < ROUNDS; i++) {
        change(&m);
        change(&m);
        step_some(&m, i % 3 < 2);
    }
    for (size_t i = 0; i < LIVE; i++) skv_sequence_free(m.at[i]);
    print_message("%zu begun, %zu of them branches, %zu went back, %zu left\n", m.n_begun,
                  m.n_branches, m.n_back, m.n_left);
    assert_true(m.n_branches > 0 && m.n_begun > m.n_branches && m.n_left > 0);
    assert_true(m.n_back > 0 || evicts);
}

static void mixed_steps_have_the_same_bits(void **state)
{
    static const char *const evictions[] = {NULL, "snapkv:40,8,5"};
    (void)state;
    for (size_t i = 0; i < sizeof evictions / sizeof *evictions; i++) {
        static answers with, without;
        skv_engine *engine = open_engine(MODELS "llama3-v4", evictions[i], SKV_KV_BF16);
        skv_cuda_graphs *graphs = device_of(engine)->graphs;
        run_mixed(engine, i > 0, 7 + i, &with);
        const uint64_t n_played = graphs->n_played;
        print_message("%-14s %zu rows and picks; %zu of %zu lists were played\n",
                      i ? evictions[i] : "mixed", with.n, (size_t)n_played,
                      (size_t)graphs->n_lists);
        graphs->off = true;
        run_mixed(engine, i > 0, 7 + i, &without);
        assert_int_equal(graphs->n_played, n_played);
        assert_true(n_played > ROUNDS);
        assert_int_equal(with.n, without.n);
        assert_memory_equal(with.rows, without.rows, with.n * sizeof *with.rows);
        skv_engine_close(engine);
    }
}

/* ---- what the bits of a row depend on ---- */

enum { SHORT = 40, LONGER = 130, OTHERS = 2 };

/* A prompt of n tokens, read in one step, or in a piece of `first` tokens and the rest. */
static skv_sequence *read_in_two(skv_engine *engine, size_t n, size_t first, answers *out)
{
    int32_t ids[IDS];
    skv_error err;
    skv_sequence *s = new_sequence(engine);
    make_repeating_ids(ids, IDS, out->vocab);
    for (size_t i = 0; i < n;) {
        const size_t piece = i == 0 ? first : n - first;
        const skv_span span = {s, ids + i, piece, i + piece < n ? SKV_WANT_NONE : SKV_WANT_LAST};
        if (skv_step(engine, &span, 1, add_row, out, &err) != SKV_OK) fail_msg("%s", err.text);
        i += piece;
    }
    return s;
}

/* The bits of logits behind the last token. */
static uint64_t bits_in_two(skv_engine *engine, size_t n, size_t first)
{
    static answers out;
    out = (answers){.vocab = skv_engine_vocab(engine)};
    skv_sequence_free(read_in_two(engine, n, first, &out));
    assert_int_equal(out.n, 1);
    return out.rows[0];
}

/* The bits of logits behind a token that n others stand before, in a step with one token of each of
 * n_others sequences and n_prompt of a new one. */
static uint64_t bits_beside(skv_engine *engine, size_t n, size_t n_others, size_t n_prompt)
{
    static answers out;
    skv_sequence *sequences[OTHERS + 2];
    skv_span spans[OTHERS + 2];
    int32_t ids[IDS];
    size_t n_spans = 0;
    skv_error err;
    assert_true(n_others <= OTHERS);
    out = (answers){.vocab = skv_engine_vocab(engine)};
    make_repeating_ids(ids, IDS, out.vocab);
    for (size_t i = 0; i <= n_others; i++) {
        const size_t length = i == 0 ? n : 5 + i;
        sequences[i] = read_in_two(engine, length, length, &out);
        spans[n_spans++] = (skv_span){sequences[i], &ids[i], 1, SKV_WANT_LAST};
    }
    sequences[n_spans] = new_sequence(engine);
    spans[n_spans] = (skv_span){sequences[n_spans], ids, n_prompt, SKV_WANT_NONE};
    out.n = 0;
    if (skv_step(engine, spans, n_spans + (n_prompt > 0), add_row, &out, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    for (size_t i = 0; i <= n_spans; i++) skv_sequence_free(sequences[i]);
    return out.rows[0];
}

/* The table of docs/explanation/backend.md. Two query heads share a KV head, so 8 tokens are 16
 * pairs. Products of the stand-in for cuBLASLt do not depend on other rows. */
static void rows_depend_on_their_kernel_of_attention(void **state)
{
    skv_engine *engine = open_engine(MODELS "llama3-v4", NULL, SKV_KV_BF16);
    (void)state;
    const uint64_t whole = bits_in_two(engine, SHORT, SHORT);
    assert_true(bits_in_two(engine, SHORT, 30) == whole);
    assert_true(bits_in_two(engine, SHORT, SHORT - 9) == whole);
    assert_true(bits_in_two(engine, SHORT, SHORT - 8) != whole); /* attention_decode */
    const uint64_t alone = bits_beside(engine, SHORT, 0, 0);
    assert_true(bits_beside(engine, SHORT, OTHERS, 0) == alone);
    assert_true(bits_beside(engine, SHORT, OTHERS, 20) == alone);
    const uint64_t portions = bits_beside(engine, LONGER, 0, 0);
    assert_true(bits_beside(engine, LONGER, OTHERS, 8) == portions);
    skv_engine_close(engine);
    engine = open_engine(MODELS "llama3-v4", NULL, SKV_KV_F32); /* one kernel of attention */
    assert_true(bits_in_two(engine, SHORT, SHORT - 8) == bits_in_two(engine, SHORT, SHORT));
    assert_true(bits_beside(engine, SHORT, OTHERS, 9) == bits_beside(engine, SHORT, 0, 0));
    skv_engine_close(engine);
}

/* ---- answers with drafts ---- */

enum { ANSWER = 16 };

typedef struct text {
    int32_t ids[ANSWER];
    size_t n;
} text;

static bool keep_id(void *user, int32_t id)
{
    text *a = user;
    if (a->n == ANSWER) return false;
    a->ids[a->n++] = id;
    return true;
}

static void generate(skv_engine *engine, const char *how, text *out)
{
    const skv_sampling sampling = {
        .temperature = 0.7, .top_p = 1, .repetition_penalty = 1, .seed = 5};
    int32_t prompt[40];
    skv_speculation speculation;
    skv_sampler *sampler = NULL;
    skv_error err;
    skv_sequence *s = new_sequence(engine);
    skv_generation g = {.max_tokens = ANSWER, .ignore_eos = true, .on_token = keep_id, .user = out};
    *out = (text){.n = 0};
    make_repeating_ids(prompt, 40, skv_engine_vocab(engine));
    assert_int_equal(skv_sampler_create(&sampling, skv_engine_vocab(engine), &sampler, &err),
                     SKV_OK);
    assert_int_equal(skv_speculation_parse(how, &speculation, &err), SKV_OK);
    if (skv_sequence_set_speculation(s, &speculation, &err) != SKV_OK) fail_msg("%s", err.text);
    g.sampler = sampler;
    if (skv_generate(engine, s, prompt, 40, &g, &err) != SKV_OK) fail_msg("%s", err.text);
    skv_sampler_free(sampler);
    skv_sequence_free(s);
}

static void its_answers_with_drafts_are_the_same(void **state)
{
    static const char *const how[] = {"none", "text:6"};
    skv_engine *engine = open_engine(MODELS "qwen3-v4", NULL, SKV_KV_BF16);
    skv_cuda_graphs *graphs = device_of(engine)->graphs;
    (void)state;
    for (size_t i = 0; i < sizeof how / sizeof *how; i++) {
        const uint64_t n_played = graphs->n_played;
        text with, without;
        generate(engine, how[i], &with);
        print_message("%-8s %zu tokens, recordings were played %zu times\n", how[i], with.n,
                      (size_t)(graphs->n_played - n_played));
        assert_true(graphs->n_played > n_played);
        graphs->off = true;
        generate(engine, how[i], &without);
        graphs->off = false;
        assert_int_equal(with.n, ANSWER);
        assert_memory_equal(with.ids, without.ids, sizeof with.ids);
    }
    skv_engine_close(engine);
}

/* ---- calls ---- */

/* Of the driver and cuBLASLt that put work into the stream. */
static struct {
    skv_cuda_api api;
    skv_cuda_blas blas;
    bool chained;
    size_t n_launches, n_products, n_recordings, n_copies, n_waits;
} counted;

static skv_cu_result count_launch(const skv_cu_launch *how, skv_cu_function f, void **args,
                                  void **extra)
{
    counted.n_launches++;
    assert_int_equal(how->n_attributes, counted.chained);
    return counted.api.launch(how, f, args, extra);
}

static skv_cu_result count_recording(skv_cu_recording at, skv_cu_stream stream)
{
    counted.n_recordings++;
    return counted.api.recording_launch(at, stream);
}

static skv_cu_result count_put(skv_cu_address to, const void *from, size_t n, skv_cu_stream stream)
{
    counted.n_copies++;
    return counted.api.put(to, from, n, stream);
}

static skv_cu_result count_get(void *to, skv_cu_address from, size_t n, skv_cu_stream stream)
{
    counted.n_copies++;
    return counted.api.get(to, from, n, stream);
}

static skv_cu_result count_wait(skv_cu_stream stream)
{
    counted.n_waits++;
    return counted.api.stream_wait(stream);
}

static int count_product(skv_blas_handle handle, skv_blas_desc desc, const void *alpha,
                         const void *A, skv_blas_layout a, const void *B, skv_blas_layout b,
                         const void *beta, const void *C, skv_blas_layout c, void *D,
                         skv_blas_layout d, const skv_blas_algorithm *algorithm, void *workspace,
                         size_t n_workspace, skv_cu_stream stream)
{
    counted.n_products++;
    return counted.blas.multiply(handle, desc, alpha, A, a, B, b, beta, C, c, D, d, algorithm,
                                 workspace, n_workspace, stream);
}

static void count_calls(skv_cuda_device *device)
{
    counted.api = device->api;
    counted.blas = device->blas;
    counted.chained = device->chained;
    device->api.launch = count_launch;
    device->api.recording_launch = count_recording;
    device->api.put = count_put;
    device->api.get = count_get;
    device->api.stream_wait = count_wait;
    device->blas.multiply = count_product;
}

/* Calls of a token of an answer, the tenth. */
static size_t calls_of_a_token(skv_engine *engine, const char *what)
{
    int32_t ids[IDS];
    skv_sequence *s = new_sequence(engine);
    static answers rows;
    skv_error err;
    size_t n = 0;
    rows = (answers){.vocab = skv_engine_vocab(engine)};
    make_repeating_ids(ids, IDS, rows.vocab);
    for (size_t t = 0; t < 10; t++) {
        const skv_span span = {s, &ids[t], 1, SKV_WANT_LAST};
        counted.n_launches = counted.n_products = counted.n_recordings = 0;
        counted.n_copies = counted.n_waits = 0;
        assert_int_equal(skv_step(engine, &span, 1, add_row, &rows, &err), SKV_OK);
        n = counted.n_launches + counted.n_products + counted.n_recordings + counted.n_copies +
            counted.n_waits;
    }
    print_message("%s: %zu calls: %zu launches, %zu products, %zu recordings, %zu copies, %zu "
                  "waits\n",
                  what, n, counted.n_launches, counted.n_products, counted.n_recordings,
                  counted.n_copies, counted.n_waits);
    skv_sequence_free(s);
    return n;
}

static void a_token_takes_few_calls(void **state)
{
    skv_engine *engine = open_engine(MODELS "llama3-v4", NULL, SKV_KV_BF16);
    skv_cuda_device *device = device_of(engine);
    (void)state;
    count_calls(device);
    const size_t with = calls_of_a_token(engine, "recorded");
    device->graphs->off = true;
    const size_t without = calls_of_a_token(engine, "one by one");
    assert_int_equal(counted.n_recordings, 0);
    assert_true(with <= 5 && without > 20);
    skv_engine_close(engine);
}

static skv_cu_result refuse_capture(skv_cu_stream stream, int mode)
{
    (void)stream, (void)mode;
    return 801;
}

static void a_driver_that_cannot_record_is_asked_once(void **state)
{
    static answers with, without;
    skv_engine *engine = open_engine(MODELS "llama3-v4", NULL, SKV_KV_BF16);
    skv_cuda_device *device = device_of(engine);
    (void)state;
    answer(engine, "1111", 20, &with);
    assert_true(device->graphs->n_recorded == 1 && !device->graphs->off);
    skv_engine_close(engine);
    engine = open_engine(MODELS "llama3-v4", NULL, SKV_KV_BF16);
    device = device_of(engine);
    device->api.capture_begin = refuse_capture;
    answer(engine, "1111", 20, &without);
    assert_true(device->graphs->n_recorded == 0 && device->graphs->off);
    assert_memory_equal(with.rows, without.rows, with.n * sizeof *with.rows);
    skv_engine_close(engine);
}

/* ---- lists of launches ---- */

enum { N = 32, SHAPES = SKV_CUDA_RECORDINGS + 6 };

static void open_alone(skv_cuda_device *device)
{
    skv_error err;
    if (skv_cuda_device_open(device, 0, image, &err) != SKV_OK) fail_msg("%s", err.text);
}

/* y += factor */
static skv_cuda_move_args add_to(float *y, const float *x, float factor)
{
    return (skv_cuda_move_args){.y = skv_cuda_scratch(y, SKV_CUDA_F32, N),
                                .x = skv_cuda_scratch((void *)(uintptr_t)x, SKV_CUDA_F32, N),
                                .n = N,
                                .op = SKV_CUDA_ADD,
                                .factor = factor};
}

static void there_are_so_many_recordings(void **state)
{
    skv_cuda_device device;
    skv_error err;
    void *at = NULL;
    float x[2 * N];
    size_t n_there = 0;
    (void)state;
    open_alone(&device);
    assert_int_equal(skv_cuda_new(&device, sizeof x, &at, &err), SKV_OK);
    for (size_t i = 0; i < 2 * N; i++) x[i] = i < N ? 1 : 0;
    skv_cuda_put(&device, at, x, sizeof x);
    assert_int_equal(skv_cuda_graphs_open(&device, &err), SKV_OK);
    for (size_t i = 0; i < 2 * SHAPES; i++) {
        const skv_cuda_move_args args = add_to((float *)at + N, at, (float)(i / 2 + 1));
        skv_cuda_graphs_begin(&device);
        for (size_t k = 0; k < 4; k++) {
            skv_cuda_launch(&device, SKV_CUDA_skv_move_rows, (skv_cuda_grid){.x = 1}, &args);
        }
        skv_cuda_get(&device, x, at, sizeof x);
    }
    assert_int_equal(skv_cuda_wait(&device, &err), SKV_OK);
    for (size_t i = 0; i < N; i++) {
        assert_true(x[N + i] == (float)(4 * SHAPES * (SHAPES + 1))); /* 8 (1 + .. + SHAPES) */
    }
    for (size_t i = 0; i < SKV_CUDA_RECORDINGS; i++)
        n_there += (bool)device.graphs->recordings[i].at;
    assert_int_equal(device.graphs->n_recorded, SHAPES);
    assert_int_equal(n_there, SKV_CUDA_RECORDINGS);
    skv_cuda_graphs_close(&device);
    skv_cuda_delete(&device, at);
    skv_cuda_device_close(&device);
}

/* Work that is not listed comes behind what is; put_first comes before. */
static void lists_keep_their_order(void **state)
{
    skv_cuda_device device;
    skv_error err;
    void *at = NULL;
    float x[2 * N], y[2 * N];
    (void)state;
    open_alone(&device);
    assert_int_equal(skv_cuda_new(&device, sizeof x, &at, &err), SKV_OK);
    assert_int_equal(skv_cuda_graphs_open(&device, &err), SKV_OK);
    for (size_t round = 0; round < 3; round++) {
        skv_cuda_move_args args = add_to((float *)at + N, at, 1);
        for (size_t i = 0; i < 2 * N; i++) x[i] = i < N ? 0 : 5;
        skv_cuda_put(&device, at, x, sizeof x);
        skv_cuda_graphs_begin(&device);
        for (size_t k = 0; k < 4; k++) {
            skv_cuda_launch(&device, SKV_CUDA_skv_move_rows, (skv_cuda_grid){.x = 1}, &args);
        }
        args.factor = 99;
        for (size_t i = 0; i < N; i++) x[i] = (float)round;
        skv_cuda_put_first(&device, at, x, N * sizeof *x);
        skv_cuda_copy(&device, at, (float *)at + N, N * sizeof *x);
        skv_cuda_launch(&device, SKV_CUDA_skv_move_rows, (skv_cuda_grid){.x = 1}, &args);
        skv_cuda_get(&device, y, at, sizeof y);
        const float sum = (float)(5 + 4 * round);
        assert_true(y[0] == sum && y[N] == sum + 99 * sum);
    }
    assert_int_equal(device.graphs->n_played, 2);
    assert_int_equal(skv_cuda_wait(&device, &err), SKV_OK);
    skv_cuda_graphs_close(&device);
    skv_cuda_delete(&device, at);
    skv_cuda_device_close(&device);
}

/* ---- the fake driver ---- */

/* A driver drops the recording when it is asked for anything else meanwhile; ours only refuses. */
static skv_cu_recording record_one(skv_cuda_device *d, float *y, const float *x, bool emulated)
{
    skv_cuda_move_args args = add_to(y, x, 2);
    skv_cu_graph graph = NULL;
    skv_cu_recording out = NULL;
    assert_int_equal(d->api.capture_begin(d->stream, SKV_CU_CAPTURE_RELAXED), 0);
    skv_cuda_launch(d, SKV_CUDA_skv_move_rows, (skv_cuda_grid){.x = 1}, &args);
    args.factor = 1000;
    if (emulated) assert_true(d->api.stream_wait(d->stream) != 0);
    assert_int_equal(d->api.capture_end(d->stream, &graph), 0);
    assert_int_equal(d->api.recording_make(&out, graph, 0), 0);
    assert_int_equal(d->api.graph_delete(graph), 0);
    return out;
}

/* In a process of its own, which it ends. */
static void check_freed(skv_cuda_device *d, skv_cu_recording recording)
{
    int status = 0;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)close(2);
        (void)d->api.recording_launch(recording, d->stream);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void the_fake_driver_records_as_a_driver_does(void **state)
{
    skv_cuda_device d;
    skv_error err;
    char name[64] = "";
    void *x = NULL, *y = NULL;
    float got[N];
    (void)state;
    open_alone(&d);
    assert_int_equal(d.api.device_name(name, (int)sizeof name, 0), 0);
    for (size_t i = 0; i < N; i++) got[i] = 3;
    assert_int_equal(skv_cuda_new(&d, sizeof got, &x, &err), SKV_OK);
    assert_int_equal(skv_cuda_new(&d, sizeof got, &y, &err), SKV_OK);
    skv_cuda_put(&d, x, got, sizeof got);
    const bool emulated = strcmp(name, "emulated GPU") == 0;
    const skv_cu_recording recording = record_one(&d, y, x, emulated);
    skv_cuda_get(&d, got, y, sizeof got);
    assert_true(got[0] == 0 && got[N - 1] == 0); /* nothing has run */
    assert_int_equal(d.api.recording_launch(recording, d.stream), 0);
    assert_int_equal(d.api.recording_launch(recording, d.stream), 0);
    skv_cuda_get(&d, got, y, sizeof got);
    assert_true(got[0] == 12 && got[N - 1] == 12); /* arguments as they were */
    skv_cuda_delete(&d, x);
    if (emulated) check_freed(&d, recording);
    assert_int_equal(d.api.recording_delete(recording), 0);
    skv_cuda_delete(&d, y);
    skv_cuda_device_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_steps_have_the_same_bits),
        cmocka_unit_test(mixed_steps_have_the_same_bits),
        cmocka_unit_test(rows_depend_on_their_kernel_of_attention),
        cmocka_unit_test(its_answers_with_drafts_are_the_same),
        cmocka_unit_test(a_token_takes_few_calls),
        cmocka_unit_test(a_driver_that_cannot_record_is_asked_once),
        cmocka_unit_test(there_are_so_many_recordings),
        cmocka_unit_test(lists_keep_their_order),
        cmocka_unit_test(the_fake_driver_records_as_a_driver_does),
    };
    void *loaded = image = device_image();
    const int n_failed = cmocka_run_group_tests_name("CUDA graphs", tests, NULL, NULL);
    free(loaded);
    return n_failed;
}
