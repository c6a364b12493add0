/* swiftkv score: the log-probability of every token, in windows of the context. */
#include <math.h>
#include <stdlib.h>

#include "report.h"
#include "runtime.h"

typedef struct scoring {
    const cli_options *options;
    cli_model model;
    cli_ids ids;      /* as scored: window after window, each with its own BOS */
    size_t window;    /* tokens of a window, BOS included */
    double *logprobs; /* [ids.n], owned; NaN for the first of a window */
    int32_t *argmax;  /* [ids.n], owned */
    double nll;       /* mean over the scored tokens, 0 when there are none */
    size_t n_scored;
} scoring;

/* The token that the tokenizer puts before a text, -1 when it puts none. */
static int first_token(const cli_model *model, int32_t *out)
{
    const cli_bytes empty = {.data = (char[1]){0}, .n = 0};
    cli_ids ids = {0};
    const int status = cli_encode(model, &empty, true, false, &ids);
    const int32_t bos = skv_vocab_bos(model->vocab);
    *out = ids.n > 0 && ids.at[0] == bos ? bos : -1;
    cli_ids_release(&ids);
    return status;
}

/* Lays the text's tokens into windows. */
static int read_text(scoring *s)
{
    cli_bytes text = {0};
    cli_ids plain = {0};
    int32_t bos = -1;
    int status = cli_input_text(s->options, &text);
    if (status == CLI_DONE) status = cli_encode(&s->model, &text, false, false, &plain);
    if (status == CLI_DONE) status = first_token(&s->model, &bos);
    const size_t step = bos >= 0 ? s->window - 1 : s->window;
    for (size_t at = 0; status == CLI_DONE && at < plain.n; at += step) {
        if (bos >= 0) cli_ids_add(&s->ids, bos);
        cli_ids_append(&s->ids, plain.at + at, plain.n - at < step ? plain.n - at : step);
    }
    cli_ids_release(&plain);
    cli_bytes_release(&text);
    return status;
}

static int read_input(scoring *s)
{
    const cli_options *o = s->options;
    int status =
        o->ids_file ? cli_model_describe(&s->model, o) : cli_model_describe_text(&s->model, o);
    if (status != CLI_DONE) return status;
    s->window = o->context != 0 ? o->context : s->model.info.context;
    if (s->window < 2) return cli_fail("--ctx: %zu, scoring needs 2 or more", s->window);
    if (o->ids_file) {
        status = cli_read_ids(o->ids_file, s->model.info.vocab, &s->ids);
    } else {
        status = read_text(s);
    }
    if (status == CLI_DONE && s->ids.n == 0) return cli_fail_empty(o);
    return status;
}

/* How far a window is, of all windows. */
typedef struct window_watch {
    cli_progress progress;
    size_t at, total;
} window_watch;

static void tell(void *user, size_t done, size_t n)
{
    window_watch *watch = user;
    (void)n;
    cli_progress_tokens(&watch->progress, watch->at + done, watch->total);
}

static int score_windows(scoring *s)
{
    skv_engine_options options = cli_engine_options(s->options);
    options.context = s->window < s->ids.n ? s->window : s->ids.n;
    int status = cli_model_start(&s->model, &options);
    if (status == CLI_DONE) cli_note_length(&s->model, "windows of", options.context);
    s->logprobs = cli_alloc(s->ids.n, sizeof *s->logprobs);
    s->argmax = cli_alloc(s->ids.n, sizeof *s->argmax);
    skv_error err = {0};
    window_watch watch = {.total = s->ids.n};
    cli_progress_begin(&watch.progress, "scoring");
    cli_interrupt_watch(s->options->interrupt, s->model.engine);
    for (size_t at = 0; status == CLI_DONE && at < s->ids.n; at += s->window) {
        const size_t n = s->ids.n - at < s->window ? s->ids.n - at : s->window;
        char scored[64];
        const skv_scoring what = {.ids = s->ids.at + at,
                                  .n = n,
                                  .logprobs = s->logprobs + at,
                                  .argmax = s->argmax + at,
                                  .progress = tell,
                                  .user = &watch};
        watch.at = at;
        (void)snprintf(scored, sizeof scored, "%zu of %zu tokens were scored", at, s->ids.n);
        status = cli_interrupt_check(skv_score_watched(s->model.engine, &what, &err), &err, scored);
        s->logprobs[at] = (double)NAN;
    }
    cli_interrupt_unwatch(s->options->interrupt);
    cli_progress_end(&watch.progress);
    return status;
}

/* Sums window by window, so that rounding does not grow with the text. */
static void sum_up(scoring *s)
{
    double sum = 0;
    for (size_t at = 0; at < s->ids.n; at += s->window) {
        double part = 0;
        for (size_t t = at + 1; t < at + s->window && t < s->ids.n; t++) {
            part -= s->logprobs[t];
            s->n_scored++;
        }
        sum += part;
    }
    s->nll = s->n_scored > 0 ? sum / (double)s->n_scored : 0;
}

static void print_json(const scoring *s)
{
    skv_json_out json = {.stream = stdout};
    skv_json_out_open(&json, '{');
    skv_json_out_put_integer(&json, "n", s->ids.n);
    skv_json_out_put_ids(&json, "ids", s->ids.at, s->ids.n);
    skv_json_out_put_open(&json, "logprobs", '[');
    for (size_t t = 0; t < s->ids.n; t++) skv_json_out_number(&json, s->logprobs[t]);
    skv_json_out_close(&json, ']');
    skv_json_out_put_ids(&json, "argmax", s->argmax, s->ids.n);
    skv_json_out_put_number(&json, "nll", s->nll);
    skv_json_out_put_integer(&json, "scored", s->n_scored);
    skv_json_out_put_number(&json, "perplexity", exp(s->nll));
    const skv_work work = skv_engine_get_work(s->model.engine);
    cli_json_put_work(&json, "work", &work);
    skv_json_out_close(&json, '}');
    putchar('\n');
}

static void print_table(const scoring *s)
{
    printf("tokens      %zu\n", s->ids.n);
    printf("scored      %zu\n", s->n_scored);
    printf("nll         %.6f\n", s->nll);
    printf("perplexity  %.5f\n", exp(s->nll));
}

int cli_run_score(const cli_options *options)
{
    scoring s = {.options = options};
    int status = read_input(&s);
    if (status == CLI_DONE) status = score_windows(&s);
    if (status == CLI_DONE) {
        sum_up(&s);
        if (options->json) {
            print_json(&s);
        } else {
            print_table(&s);
        }
    }
    cli_model_close(&s.model);
    cli_ids_release(&s.ids);
    free(s.logprobs);
    free(s.argmax);
    return status;
}
