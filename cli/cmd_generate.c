/* swiftkv generate: continues a prompt, printing text as it is generated, or one JSON object. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "runtime.h"
#include "skv/grammar.h"
#include "text_out.h"

/* ---- the constraint on the answer ---- */

typedef struct constraint {
    skv_grammar *grammar;
    skv_token_table *table;
    skv_matcher *matcher; /* NULL: the answer is free */
} constraint;

static int compile(constraint *c, skv_grammar_kind kind, const char *text, size_t n)
{
    skv_error err = {0};
    return cli_check(skv_grammar_compile(kind, text, n, NULL, &c->grammar, &err), &err);
}

static int compile_file(constraint *c, skv_grammar_kind kind, const char *path)
{
    cli_bytes text = {0};
    int status = cli_read_file(path, &text);
    if (status == CLI_DONE) status = compile(c, kind, text.data, text.n);
    cli_bytes_release(&text);
    return status;
}

static int constraint_compile(constraint *c, const cli_options *o)
{
    if (o->json_object) return compile(c, SKV_GRAMMAR_JSON_OBJECT, "", 0);
    if (o->regex) return compile(c, SKV_GRAMMAR_REGEX, o->regex, strlen(o->regex));
    if (o->schema_file) return compile_file(c, SKV_GRAMMAR_JSON_SCHEMA, o->schema_file);
    if (o->grammar_file) return compile_file(c, SKV_GRAMMAR_GBNF, o->grammar_file);
    return CLI_DONE;
}

static int constraint_start(constraint *c, const cli_model *model)
{
    if (!c->grammar) return CLI_DONE;
    if (!model->vocab) return cli_fail("%s: no tokenizer to follow a grammar", model->path);
    size_t n_ends;
    const int32_t *ends = skv_engine_eos(model->engine, &n_ends);
    skv_error err = {0};
    skv_status status = skv_token_table_create(model->vocab, ends, n_ends, &c->table, &err);
    if (status == SKV_OK)
        status = skv_matcher_create(c->grammar, c->table, NULL, &c->matcher, &err);
    return cli_check(status, &err);
}

static void constraint_release(constraint *c)
{
    skv_matcher_free(c->matcher);
    skv_token_table_free(c->table);
    skv_grammar_free(c->grammar);
    *c = (constraint){0};
}

/* ---- generation ---- */

enum { DEFAULT_TOKENS = 128 };

typedef struct generation {
    const cli_options *options;
    cli_model model;
    cli_ids prompt, ids;
    cli_ids drafts;  /* pairs: tokens of a draft, and how many were right */
    size_t n_tokens; /* most to generate */
    skv_sequence *sequence;
    skv_sampler *sampler;
    constraint constraint;
    cli_text_out out; /* without a stream when there is no tokenizer */
    cli_progress progress;
    skv_generation_stats stats;
    FILE *kept;       /* --dump-kept */
    int status;       /* of the callbacks */
    bool interrupted; /* by Ctrl-C; the answer so far is printed */
} generation;

static int read_prompt(generation *g)
{
    const cli_options *o = g->options;
    int status =
        o->ids_file ? cli_model_describe(&g->model, o) : cli_model_describe_text(&g->model, o);
    if (status != CLI_DONE) return status;
    if (o->ids_file) {
        status = cli_read_ids(o->ids_file, g->model.info.vocab, &g->prompt);
    } else {
        cli_bytes text = {0};
        status = cli_input_text(o, &text);
        if (status == CLI_DONE) {
            status = cli_encode(&g->model, &text, true, o->parse_special, &g->prompt);
        }
        cli_bytes_release(&text);
        const int32_t bos = g->prompt.n == 0 ? skv_vocab_bos(g->model.vocab) : -1;
        if (bos >= 0) cli_ids_add(&g->prompt, bos);
    }
    if (status == CLI_DONE && g->prompt.n == 0) return cli_fail_empty(o);
    return status;
}

/* How many tokens to generate; a model is trained for its context, so a prompt beyond it is an
 * error, while running past it on request is only worth a note. */
static int fit_context(generation *g)
{
    const cli_options *o = g->options;
    const bool given = o->context != 0;
    const size_t limit = given ? o->context : g->model.info.context;
    const bool wished = o->n_tokens != CLI_NOT_GIVEN;
    g->n_tokens = wished ? o->n_tokens : DEFAULT_TOKENS;
    if (limit == 0) return CLI_DONE;
    const char *whose = given ? "--ctx" : "the model's context";
    if (g->prompt.n > limit || (!wished && g->prompt.n == limit)) {
        return cli_fail("prompt: %zu tokens, %s is %zu", g->prompt.n, whose, limit);
    }
    if (g->n_tokens <= limit - g->prompt.n) return CLI_DONE;
    if (!wished) {
        g->n_tokens = limit - g->prompt.n;
    } else if (given) {
        return cli_fail("prompt and -n: %zu + %zu tokens, --ctx is %zu", g->prompt.n, g->n_tokens,
                        limit);
    } else {
        cli_warn("prompt and -n: %zu + %zu tokens, the model's context is %zu", g->prompt.n,
                 g->n_tokens, limit);
    }
    return CLI_DONE;
}

static int start(generation *g)
{
    const cli_options *o = g->options;
    skv_engine_options options = cli_engine_options(o);
    const size_t needed = g->prompt.n + g->n_tokens;
    options.kv_tokens = o->kv_tokens != 0 ? o->kv_tokens : needed;
    options.kv_sequences = 1;
    if (options.context == 0) options.context = needed;
    const int status = cli_model_start(&g->model, &options);
    if (status != CLI_DONE) return status;
    if (o->context > 0) {
        cli_note_length(&g->model, "--ctx", o->context);
    } else {
        cli_note_length(&g->model, "a prompt of", g->prompt.n);
    }
    skv_error err = {0};
    skv_status made = skv_sequence_create(g->model.engine, 0, &g->sequence, &err);
    if (made == SKV_OK) {
        made =
            skv_sampler_create(&o->sampling, skv_engine_vocab(g->model.engine), &g->sampler, &err);
    }
    if (made != SKV_OK) return cli_check(made, &err);
    const int constrained = constraint_start(&g->constraint, &g->model);
    if (constrained != CLI_DONE || !g->model.vocab) return constrained;
    return cli_text_out_open(&g->out, g->model.vocab, &g->prompt, &o->stops,
                             o->json ? NULL : stdout);
}

static void on_progress(void *user, size_t done, size_t total)
{
    generation *g = user;
    cli_progress_tokens(&g->progress, done, total);
}

static void on_draft(void *user, size_t n_drafted, size_t n_right)
{
    generation *g = user;
    cli_ids_add(&g->drafts, (int32_t)n_drafted);
    cli_ids_add(&g->drafts, (int32_t)n_right);
}

static bool on_token(void *user, int32_t id)
{
    generation *g = user;
    cli_progress_end(&g->progress);
    cli_ids_add(&g->ids, id);
    if (g->model.vocab) {
        g->status = cli_text_out_push(&g->out, id);
    } else if (!g->options->json) {
        if (g->ids.n > 1) putchar(' ');
        skv_put_integer(stdout, id);
        fflush(stdout);
    }
    return g->status == CLI_DONE && !g->out.stopped && !cli_interrupted(g->options->interrupt);
}

static int run(generation *g)
{
    const bool drafts = g->options->json && cli_speculation_of(g->options).source != SKV_DRAFT_NONE;
    const skv_generation wanted = {.max_tokens = g->n_tokens,
                                   .sampler = g->sampler,
                                   .stats = &g->stats,
                                   .ignore_eos = g->options->ignore_eos,
                                   .matcher = g->constraint.matcher,
                                   .on_token = on_token,
                                   .on_draft = drafts ? on_draft : NULL,
                                   .on_progress = on_progress,
                                   .user = g};
    skv_error err = {0};
    cli_progress_begin(&g->progress, "reading the prompt");
    cli_interrupt_watch(g->options->interrupt, g->model.engine);
    const skv_status status =
        skv_generate(g->model.engine, g->sequence, g->prompt.at, g->prompt.n, &wanted, &err);
    g->interrupted = cli_interrupted(g->options->interrupt);
    cli_interrupt_unwatch(g->options->interrupt);
    cli_progress_end(&g->progress);
    if (g->status != CLI_DONE) return g->status;
    if (g->model.vocab) {
        const int finished = cli_text_out_finish(&g->out);
        if (finished != CLI_DONE) return finished;
    }
    return g->interrupted ? CLI_DONE : cli_check(status, &err);
}

/* Steps after the first token: the one that made the ending id counts too. */
static size_t decode_steps(const generation *g)
{
    const size_t n = g->ids.n + (g->stats.ended ? 1 : 0);
    return n > 0 ? n - 1 : 0;
}

static double per_second(size_t n, uint64_t ns)
{
    return n > 0 && ns > 0 ? (double)n * 1e9 / (double)ns : (double)NAN;
}

static const char *finish_of(const generation *g)
{
    if (g->interrupted) return "interrupted";
    if (g->stats.ended) return "eos";
    return g->out.stopped ? "stop" : "length";
}

static void print_json(const generation *g)
{
    const skv_generation_stats *s = &g->stats;
    skv_json_out json = {.stream = stdout};
    skv_json_out_open(&json, '{');
    skv_json_out_put_ids(&json, "ids", g->ids.at, g->ids.n);
    skv_json_out_key(&json, "text");
    skv_json_out_text(&json, g->out.text.data, g->out.text.n);
    skv_json_out_put_integer(&json, "prompt_tokens", g->prompt.n);
    skv_json_out_put_integer(&json, "completion_tokens", g->ids.n);
    skv_json_out_put_number(&json, "ttft_ms", (double)s->ttft_ns * 1e-6);
    skv_json_out_put_number(&json, "prefill_tok_s", per_second(g->prompt.n, s->ttft_ns));
    skv_json_out_put_number(&json, "decode_tok_s", per_second(decode_steps(g), s->decode_ns));
    skv_json_out_put_integer(&json, "kv_bytes", skv_sequence_kv_bytes(g->sequence));
    skv_json_out_put_text(&json, "finish", finish_of(g));
    cli_json_put_drafts(&json, s->drafts);
    if (g->drafts.n > 0) skv_json_out_put_ids(&json, "drafts", g->drafts.at, g->drafts.n);
    cli_json_put_work(&json, "prompt_work", &s->prompt_work);
    cli_json_put_work(&json, "work", &s->work);
    cli_json_put_traffic(&json, g->model.engine);
    skv_json_out_close(&json, '}');
    putchar('\n');
}

/* Text ends with a newline of its own or gets one, and a person gets the figures. */
static void print_end(const generation *g)
{
    const cli_bytes *text = &g->out.text;
    if (text->n == 0 || text->data[text->n - 1] != '\n') putchar('\n');
    if (!cli_terminal()) return;
    fflush(stdout);
    fprintf(stderr, "[%zu prompt tokens", g->prompt.n);
    if (g->ids.n > 0)
        fprintf(stderr, ", first token after %.0f ms", (double)g->stats.ttft_ns * 1e-6);
    fprintf(stderr, "; %zu generated", g->ids.n);
    const double rate = per_second(decode_steps(g), g->stats.decode_ns);
    if (!isnan(rate)) fprintf(stderr, ", %.1f tokens/s", rate);
    fprintf(stderr, "]\n");
}

/* ---- which rows stayed ---- */

static void put_head(skv_json_out *json, const generation *g, size_t layer, size_t head, size_t n)
{
    size_t *rows = cli_alloc(n, sizeof *rows);
    (void)skv_sequence_kept(g->sequence, layer, head, rows, n);
    skv_json_out_open(json, '[');
    for (size_t i = 0; i < n; i++) skv_json_out_integer(json, (int64_t)rows[i]);
    skv_json_out_close(json, ']');
    free(rows);
}

/* Before there is an answer, which would be lost with a file that cannot be. */
static int open_kept(generation *g)
{
    const char *path = g->options->kept_file;
    if (!path) return CLI_DONE;
    g->kept = fopen(path, "w");
    return !g->kept ? cli_fail("%s: %s", path, strerror(errno)) : CLI_DONE;
}

/* Writes the kept rows of the prompt and of the answer, [layer][kv head][rows]. */
static int dump_kept(generation *g)
{
    FILE *file = g->kept;
    if (!file) return CLI_DONE;
    skv_json_out json = {.stream = file};
    skv_json_out_open(&json, '[');
    for (size_t i = 0; i < g->model.info.layers; i++) {
        skv_json_out_open(&json, '[');
        for (size_t h = 0;; h++) {
            const size_t n = skv_sequence_kept(g->sequence, i, h, NULL, 0);
            if (n == 0) break;
            put_head(&json, g, i, h, n);
        }
        skv_json_out_close(&json, ']');
    }
    skv_json_out_close(&json, ']');
    fputc('\n', file);
    const bool failed = ferror(file) != 0;
    g->kept = NULL;
    if (fclose(file) == 0 && !failed) return CLI_DONE;
    return cli_fail("%s: cannot write", g->options->kept_file);
}

static void release(generation *g)
{
    if (g->kept) (void)fclose(g->kept);
    cli_text_out_close(&g->out);
    constraint_release(&g->constraint);
    skv_sampler_free(g->sampler);
    skv_sequence_free(g->sequence);
    cli_model_close(&g->model);
    cli_ids_release(&g->prompt);
    cli_ids_release(&g->ids);
    cli_ids_release(&g->drafts);
}

int cli_run_generate(const cli_options *options)
{
    generation g = {.options = options};
    int status = constraint_compile(&g.constraint, options);
    if (status == CLI_DONE) status = read_prompt(&g);
    if (status == CLI_DONE) status = fit_context(&g);
    if (status == CLI_DONE) status = start(&g);
    if (status == CLI_DONE) status = open_kept(&g);
    if (status == CLI_DONE) status = run(&g);
    if (status == CLI_DONE && options->json) {
        print_json(&g);
    } else if (status == CLI_DONE) {
        print_end(&g);
    }
    if (status == CLI_DONE) status = dump_kept(&g);
    if (status == CLI_DONE && g.interrupted) {
        status = cli_fail("interrupted after %zu tokens", g.ids.n);
    }
    release(&g);
    return status;
}
