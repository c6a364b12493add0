/*
 * swiftkv compare: the same prompts read by a SwiftKV model and by the teacher that it was made
 * from: both answers, time to the first token, memory for keys and values.
 */
#include <string.h>

#include "common/json_out.h"
#include "report.h"
#include "runtime.h"
#include "skv/documents.h"

enum { QUESTIONS = 5, DOCUMENT_TOKENS = 2048, ANSWER_TOKENS = 64, SHOWN = 160 };
enum { DOCUMENT_TOKENS_MIN = 48 };
/* Below it, other work on the machine outweighs the methods. */
#define SHORT_MS 20.0
static const char default_task[] = "report";

/* The two ways of reading, teacher first; with KV Prediction the base is first. */
enum { TEACHER, SWIFTKV, WAYS };
static const char *const swiftkv_names[WAYS] = {"teacher", "swiftkv"};
static const char *const kvpred_names[WAYS] = {"base", "kvpred"};

typedef struct answer {
    cli_ids ids; /* the ending one excepted */
    cli_bytes text;
    double ttft_ms;
    size_t kv_bytes;
} answer;

typedef struct question {
    cli_bytes prompt, expected; /* expected.data NULL: unknown */
    char task[32];
    cli_ids ids; /* of the whole conversation */
} question;

typedef struct totals {
    size_t n, n_same, n_right[WAYS], n_known;
    double ttft_ms[WAYS], kv_bytes[WAYS];
    double least, most; /* of the questions' ratios of times */
} totals;

typedef struct comparison {
    const cli_options *options;
    cli_model model;
    skv_prefill prefill[WAYS];
    const char *const *way_names;   /* [WAYS] */
    skv_documents *documents;       /* NULL: the prompt of the command line */
    size_t length;                  /* of these, in tokens */
    size_t chosen;                  /* the context that the length was chosen for; 0: it was not */
    cli_ids *generated;             /* filled by on_token */
    cli_progress progress, reading; /* of the questions, of a prompt */
    skv_json_out json;
    totals totals;
} comparison;

/* ---- questions ---- */

static void take_text(const json_t *object, const char *key, cli_bytes *out)
{
    const json_t *value = json_object_get(object, key);
    out->n = json_string_length(value);
    out->data = cli_alloc(out->n + 1, 1);
    if (out->n > 0) memcpy(out->data, json_string_value(value), out->n);
}

static int make_document(comparison *c, size_t i, question *q)
{
    skv_error err = {0};
    char *line;
    size_t n;
    const int status = cli_check(skv_documents_json(c->documents, i, true, &line, &n, &err), &err);
    if (status != CLI_DONE) return status;
    json_t *object = json_loadb(line, n, 0, NULL);
    skv_text_free(line);
    take_text(object, "prompt", &q->prompt);
    take_text(object, "answer", &q->expected);
    const char *task = json_string_value(json_object_get(object, "task"));
    (void)snprintf(q->task, sizeof q->task, "%s", task ? task : "");
    json_decref(object);
    return CLI_DONE;
}

/* As a message where the model has a chat template, else as it is. */
static int encode(const comparison *c, question *q)
{
    const char *source = skv_vocab_chat_template(c->model.vocab);
    if (!source) return cli_encode(&c->model, &q->prompt, true, false, &q->ids);
    cli_bytes template_text = {.data = cli_alloc(strlen(source) + 1, 1), .n = strlen(source)};
    memcpy(template_text.data, source, template_text.n);
    json_t *vars = json_object();
    json_object_set_new(
        vars, "messages",
        json_pack("[{s:s, s:s%}]", "role", "user", "content", q->prompt.data, q->prompt.n));
    json_object_set_new(vars, "add_generation_prompt", json_true());
    const int status = cli_encode_chat(&c->model, &template_text, vars, false, &q->ids);
    json_decref(vars);
    cli_bytes_release(&template_text);
    return status;
}

static int make_question(comparison *c, size_t i, question *q)
{
    *q = (question){.task = ""};
    int status = c->documents ? make_document(c, i, q) : cli_input_text(c->options, &q->prompt);
    if (status == CLI_DONE) status = encode(c, q);
    if (status == CLI_DONE && q->ids.n == 0) status = cli_fail_empty(c->options);
    return status;
}

/* Generated documents have the length of --lengths, so the error names that option. */
static int check_length(const comparison *c, const question *q)
{
    skv_engine_stats stats;
    skv_engine_get_stats(c->model.engine, &stats);
    if (!c->documents || q->ids.n <= stats.context) return CLI_DONE;
    return cli_fail("--lengths %zu: the prompt has %zu tokens, but the context is %zu", c->length,
                    q->ids.n, stats.context);
}

static void release_question(question *q)
{
    cli_bytes_release(&q->prompt);
    cli_bytes_release(&q->expected);
    cli_ids_release(&q->ids);
}

/* ---- answers ---- */

static size_t answer_tokens(const cli_options *o)
{
    return o->n_tokens != CLI_NOT_GIVEN ? o->n_tokens : ANSWER_TOKENS;
}

static bool on_token(void *user, int32_t id)
{
    comparison *c = user;
    cli_ids_add(c->generated, id);
    return !cli_interrupted(c->options->interrupt);
}

static void on_progress(void *user, size_t done, size_t total)
{
    comparison *c = user;
    cli_progress_tokens(&c->reading, done, total);
}

static int generate(comparison *c, const question *q, skv_sequence *sequence, skv_sampler *sampler,
                    answer *out)
{
    skv_error err = {0};
    skv_generation_stats stats;
    const skv_generation wanted = {.max_tokens = answer_tokens(c->options),
                                   .sampler = sampler,
                                   .on_token = on_token,
                                   .on_progress = on_progress,
                                   .user = c,
                                   .stats = &stats};
    c->generated = &out->ids;
    cli_progress_begin(&c->reading, "reading the prompt");
    const skv_status status =
        skv_generate(c->model.engine, sequence, q->ids.at, q->ids.n, &wanted, &err);
    cli_progress_end(&c->reading);
    out->ttft_ms = (double)stats.ttft_ns * 1e-6;
    out->kv_bytes = skv_sequence_kv_bytes(sequence);
    if (cli_interrupted(c->options->interrupt)) return cli_fail("interrupted");
    return cli_check(status, &err);
}

static int ask(comparison *c, const question *q, skv_prefill prefill, answer *out)
{
    *out = (answer){.ttft_ms = 0.0};
    const skv_sampling greedy = skv_sampling_default();
    skv_error err = {0};
    skv_sequence *sequence = NULL;
    skv_sampler *sampler = NULL;
    skv_status made = skv_sequence_create_as(c->model.engine, prefill, 0, &sequence, &err);
    if (made == SKV_OK) {
        made = skv_sampler_create(&greedy, skv_engine_vocab(c->model.engine), &sampler, &err);
    }
    int status = cli_check(made, &err);
    if (status == CLI_DONE) status = generate(c, q, sequence, sampler, out);
    skv_sampler_free(sampler);
    skv_sequence_free(sequence);
    if (status != CLI_DONE) return status;
    return cli_check(skv_vocab_decode(c->model.vocab, (skv_id_piece){out->ids.at, out->ids.n},
                                      (skv_decode_options){0}, &out->text.data, &out->text.n, &err),
                     &err);
}

static void release_answer(answer *a)
{
    cli_ids_release(&a->ids);
    cli_bytes_release(&a->text);
}

/* ---- output ---- */

static void trim(const cli_bytes *text, const char **at, size_t *n)
{
    static const char blank[] = " \n\t\r";
    *at = text->data ? text->data : "";
    *n = text->n;
    while (*n > 0 && strchr(blank, (*at)[0])) ++*at, --*n;
    while (*n > 0 && strchr(blank, (*at)[*n - 1])) --*n;
}

static bool same_text(const cli_bytes *a, const cli_bytes *b)
{
    const char *x, *y;
    size_t n, m;
    trim(a, &x, &n);
    trim(b, &y, &m);
    return n == m && memcmp(x, y, n) == 0;
}

/* Prints one line of a text; of a long text the end, which contains the question. */
static void print_line(const cli_bytes *text, bool end)
{
    const char *at;
    size_t n;
    trim(text, &at, &n);
    if (end) {
        for (size_t i = n; i > 0; i--) {
            if (at[i - 1] != '\n') continue;
            at += i;
            n -= i;
            break;
        }
    }
    const bool cut = n > SHOWN;
    for (size_t i = 0; i < (cut ? SHOWN : n); i++) putchar(at[i] == '\n' ? ' ' : at[i]);
    if (cut) printf(" ...");
}

static void print_text(const comparison *c, size_t i, const question *q, const answer answers[WAYS])
{
    printf("%zu. ", i + 1);
    if (q->task[0] != 0) printf("[%s] ", q->task);
    print_line(&q->prompt, true);
    printf("  (%zu tokens)\n", q->ids.n);
    if (q->expected.data) {
        printf("     expected  ");
        print_line(&q->expected, false);
        putchar('\n');
    }
    for (size_t w = 0; w < WAYS; w++) {
        printf("   %7.0f ms  %-8s ", answers[w].ttft_ms, c->way_names[w]);
        print_line(&answers[w].text, false);
        putchar('\n');
    }
    fflush(stdout);
}

static void print_json(comparison *c, const question *q, const answer answers[WAYS])
{
    skv_json_out *json = &c->json;
    skv_json_out_open(json, '{');
    if (q->task[0] != 0) skv_json_out_put_text(json, "task", q->task);
    skv_json_out_put_integer(json, "prompt_tokens", q->ids.n);
    if (q->expected.data) skv_json_out_put_text(json, "expected", q->expected.data);
    for (size_t w = 0; w < WAYS; w++) {
        skv_json_out_put_open(json, c->way_names[w], '{');
        skv_json_out_key(json, "text");
        skv_json_out_text(json, answers[w].text.data, answers[w].text.n);
        skv_json_out_put_number(json, "ttft_ms", answers[w].ttft_ms);
        skv_json_out_put_integer(json, "kv_bytes", answers[w].kv_bytes);
        skv_json_out_close(json, '}');
    }
    skv_json_out_put_bool(json, "same", same_text(&answers[TEACHER].text, &answers[SWIFTKV].text));
    skv_json_out_close(json, '}');
}

static void count(totals *t, const question *q, const answer answers[WAYS])
{
    t->n++;
    t->n_same += same_text(&answers[TEACHER].text, &answers[SWIFTKV].text);
    t->n_known += !!q->expected.data;
    for (size_t w = 0; w < WAYS; w++) {
        t->ttft_ms[w] += answers[w].ttft_ms;
        t->kv_bytes[w] += (double)answers[w].kv_bytes;
        if (q->expected.data) t->n_right[w] += same_text(&answers[w].text, &q->expected);
    }
    const double ratio = answers[TEACHER].ttft_ms / answers[SWIFTKV].ttft_ms;
    if (t->n == 1 || ratio < t->least) t->least = ratio;
    if (t->n == 1 || ratio > t->most) t->most = ratio;
}

/* Prints the ratio of the times, if it is meaningful. */
static void print_speed(const totals *t)
{
    const double n = (double)t->n, teacher = t->ttft_ms[TEACHER] / n,
                 swiftkv = t->ttft_ms[SWIFTKV] / n;
    if (teacher < SHORT_MS || swiftkv < SHORT_MS) {
        printf("The times are too short to compare: below %.0f ms chance decides. Longer prompts, "
               "or a larger model, tell.\n",
               SHORT_MS);
    } else if (t->n > 1) {
        printf("First token: %.2f times as fast (%.2f to %.2f by question).\n", teacher / swiftkv,
               t->least, t->most);
    } else {
        printf("First token: %.2f times as fast, by one question.\n", teacher / swiftkv);
    }
}

static void print_totals(const comparison *c)
{
    const totals *t = &c->totals;
    const skv_model_info *info = &c->model.info;
    const double n = (double)t->n;
    if (info->kv_prediction) {
        printf("\n%s: %zu layers read prompts for its %zu", c->model.path, info->auxiliary_layers,
               info->layers);
    } else {
        printf("\n%s: of layers 0 to %zu, those from %zu on take their keys and values from layer "
               "%zu's output",
               c->model.path, info->layers - 1, info->swiftkv_layers, info->swiftkv_layers - 1);
    }
    if (info->group > 1) printf(", %zu of them share one cache", info->group);
    printf("\n\n%-10s %14s %16s", "", "first token", "keys and values");
    if (t->n_known > 0) printf(" %14s", "right answers");
    for (size_t w = 0; w < WAYS; w++) {
        printf("\n%-10s %11.0f ms %12.2f MiB", c->way_names[w], t->ttft_ms[w] / n,
               t->kv_bytes[w] / n / (1 << 20));
        if (t->n_known > 0) printf(" %9zu of %zu", t->n_right[w], t->n_known);
    }
    printf("\n\nKeys and values: %.2f times the memory.\n",
           t->kv_bytes[SWIFTKV] / t->kv_bytes[TEACHER]);
    print_speed(t);
    printf("The same words in %zu of %zu answers.\n", t->n_same, t->n);
}

/* ---- the command ---- */

/* Returns the length of --lengths or, by default, the length that the model was trained for, minus
 * the answer and an eighth for the question and the chat template. */
static size_t choose_length(comparison *c)
{
    const cli_options *o = c->options;
    const skv_model_info *info = &c->model.info;
    if (o->lengths.n > 0) return o->lengths.at[0];
    size_t context = info->trained < info->context ? info->trained : info->context;
    if (o->context > 0 && o->context < context) context = o->context;
    const size_t other = context / 8 + answer_tokens(o);
    size_t length = context > other ? context - other : 0;
    if (length < DOCUMENT_TOKENS_MIN) length = DOCUMENT_TOKENS_MIN;
    if (length >= DOCUMENT_TOKENS) return DOCUMENT_TOKENS;
    c->chosen = context;
    return length;
}

static int open_documents(comparison *c)
{
    const cli_options *o = c->options;
    if (o->prompt || o->file) return CLI_DONE;
    c->length = choose_length(c);
    skv_documents_options how = skv_documents_default();
    how.tasks = o->tasks ? o->tasks : default_task;
    how.tokens_min = how.tokens_max = c->length;
    how.seed = o->sampling.seed;
    how.prose = o->prose;
    how.vocab = c->model.path;
    how.held_out = true;
    skv_error err = {0};
    return cli_check(skv_documents_open(&how, &c->documents, &err), &err);
}

static int start(comparison *c)
{
    const cli_options *o = c->options;
    const bool predicts = c->model.info.kv_prediction;
    skv_engine_options options = cli_engine_options(o);
    c->way_names = predicts ? kvpred_names : swiftkv_names;
    options.with_teacher = true;
    const int status = cli_model_start(&c->model, &options);
    if (status != CLI_DONE) return status;
    cli_note_length(&c->model, "--ctx", o->context);
    skv_engine_stats stats;
    skv_engine_get_stats(c->model.engine, &stats);
    c->prefill[TEACHER] = predicts ? SKV_PREFILL_FULL : SKV_PREFILL_TEACHER;
    c->prefill[SWIFTKV] = stats.prefill;
    return CLI_DONE;
}

/* Both ways of one question; `warm`: only so that the next one finds everything in place. */
static int compare(comparison *c, size_t i, bool warm)
{
    question q;
    answer answers[WAYS] = {{.ttft_ms = 0.0}};
    int status = make_question(c, i, &q);
    if (status == CLI_DONE) status = check_length(c, &q);
    if (status == CLI_DONE && warm && c->options->context == 0) {
        cli_note_length(&c->model, "a prompt of", q.ids.n);
    }
    for (size_t w = 0; w < WAYS && status == CLI_DONE; w++) {
        status = ask(c, &q, c->prefill[w], &answers[w]);
    }
    cli_progress_end(&c->progress);
    if (status == CLI_DONE && !warm) {
        count(&c->totals, &q, answers);
        if (c->options->json) {
            print_json(c, &q, answers);
        } else {
            print_text(c, i, &q, answers);
        }
    }
    for (size_t w = 0; w < WAYS; w++) release_answer(&answers[w]);
    release_question(&q);
    return status;
}

static int compare_all(comparison *c)
{
    const cli_options *o = c->options;
    size_t n = o->count != CLI_NOT_GIVEN ? o->count : QUESTIONS;
    if (!c->documents) n = 1;
    cli_progress_begin(&c->progress, "warming up");
    cli_interrupt_watch(o->interrupt, c->model.engine);
    int status = compare(c, 0, true);
    if (status == CLI_DONE && o->json) skv_json_out_open(&c->json, '[');
    if (status == CLI_DONE && c->chosen > 0 && !o->json) {
        printf("chosen: --lengths %zu, for a context of %zu\n\n", c->length, c->chosen);
    }
    cli_progress_begin(&c->progress, "comparing");
    for (size_t i = 0; i < n && status == CLI_DONE; i++) {
        cli_progress_items(&c->progress, "questions", i, n);
        status = compare(c, i, false);
    }
    cli_interrupt_unwatch(o->interrupt);
    if (status != CLI_DONE) return status;
    if (o->json) {
        skv_json_out_close(&c->json, ']');
        putchar('\n');
    } else {
        print_totals(c);
    }
    return CLI_DONE;
}

int cli_run_compare(const cli_options *options)
{
    comparison c = {.options = options, .json = {.stream = stdout}};
    int status = cli_model_describe_text(&c.model, options);
    if (status == CLI_DONE) status = open_documents(&c);
    if (status == CLI_DONE) status = start(&c);
    if (status == CLI_DONE) status = compare_all(&c);
    skv_documents_close(c.documents);
    cli_model_close(&c.model);
    return status;
}
