/* The table of formats and the scoring of their answers: see format.h. */
#include "eval/format.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* ---- judging ---- */

/* The likeliest choice by `score`, the first of equals, among one set. */
static const skv_eval_request *best_choice(const skv_eval_example *e, bool second_set, bool by_byte)
{
    const skv_eval_request *best = NULL;
    double top = -HUGE_VAL;
    for (size_t i = 0; i < e->n_requests; i++) {
        const skv_eval_request *q = &e->requests[i];
        if (q->is_second_set != second_set) continue;
        const double score = by_byte && q->bytes > 0 ? q->logprob / q->bytes : q->logprob;
        if (best && !(score > top)) continue;
        best = q;
        top = score;
    }
    return best;
}

static void judge_choices(skv_eval_example *e)
{
    skv_eval_set(e, SKV_METRIC_ACC, best_choice(e, false, false)->is_true, 1);
    if (!e->format->has_norm) return;
    skv_eval_set(e, SKV_METRIC_ACC_NORM, best_choice(e, false, true)->is_true, 1);
}

/* mc1: the likeliest answer is the true one. mc2: the share of probability on true ones. */
static void judge_truthful(skv_eval_example *e)
{
    skv_eval_set(e, SKV_METRIC_MC1, best_choice(e, false, false)->is_true, 1);
    const double top = best_choice(e, true, false)->logprob;
    double all = 0, truth = 0;
    for (size_t i = 0; i < e->n_requests; i++) {
        const skv_eval_request *q = &e->requests[i];
        if (!q->is_second_set) continue;
        const double p = exp(q->logprob - top);
        all += p;
        if (q->is_true) truth += p;
    }
    skv_eval_set(e, SKV_METRIC_MC2, truth / all, 1);
}

static void judge_word(skv_eval_example *e)
{
    skv_eval_set(e, SKV_METRIC_ACC, e->requests[0].greedy, 1);
    skv_eval_set(e, SKV_METRIC_PERPLEXITY, -e->requests[0].logprob, 1);
}

static void judge_text(skv_eval_example *e)
{
    double nll = 0, n = 0, bytes = 0;
    for (size_t i = 0; i < e->n_requests; i++) {
        nll -= e->requests[i].logprob;
        n += (double)(e->requests[i].ids.n - e->requests[i].n_context);
        bytes += e->requests[i].bytes;
    }
    skv_eval_set(e, SKV_METRIC_PERPLEXITY, nll, n);
    skv_eval_set(e, SKV_METRIC_BITS_PER_BYTE, nll / log(2), bytes);
}

#define FORMAT(title, maker, ...) .name = (title), .make = (maker), .fields = {__VA_ARGS__}

static const skv_eval_format formats[] = {
    {FORMAT("lines", skv_format_make_register, "prompt", "expected_number"), .cue = "", .lead = " ",
     .max_new = 32, .rule = SKV_ANSWER_LAST_NUMBER},
    {FORMAT("document", skv_format_make_document, "prompt", "answer"), .cue = "\n", .lead = "",
     .stop_text = "\n", .rule = SKV_ANSWER_EXACT},
    {FORMAT("pairs", skv_format_make_pairs, "ordered_kv_records", "key", "value"), .cue = "",
     .lead = " ", .stop_text = "\n", .max_new = 64, .rule = SKV_ANSWER_CONTAINS},
    {FORMAT("sentences", skv_format_make_pair, "sentence_good", "sentence_bad"),
     .judge = judge_choices},
    {FORMAT("partial", skv_format_make_partial, "context_options", "continuation", "gold"),
     .judge = judge_choices},
    {FORMAT("choices", skv_format_make_choices, "query", "choices", "gold"), .judge = judge_choices,
     .has_norm = true},
    {FORMAT("last-word", skv_format_make_word, "context", "continuation"), .judge = judge_word},
    {FORMAT("aliases", skv_format_make_aliases, "context", "answer", "aliases"), .cue = "",
     .lead = " ", .stop_text = "\n", .max_new = 32, .rule = SKV_ANSWER_WORDS},
    {FORMAT("letters", skv_format_make_letters, "question", "choice0", "answer"),
     .judge = judge_choices},
    {FORMAT("sums", skv_format_make_sum, "question", "answer"), .cue = "", .lead = " ",
     .stop_text = "Question:", .max_new = 320, .rule = SKV_ANSWER_MARKED_NUMBER},
    {FORMAT("truthful", skv_format_make_truthful, "question", "mc1_targets", "mc2_targets"),
     .judge = judge_truthful},
    {FORMAT("text", skv_format_make_text, "text"), .judge = judge_text},
};

/* ---- finding and using them ---- */

enum { N_FORMATS = sizeof formats / sizeof formats[0] };

const skv_eval_format *skv_eval_format_find(const char *name)
{
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
    }
    return NULL;
}

static bool has_fields(const json_t *record, const skv_eval_format *format)
{
    for (size_t i = 0; i < SKV_EVAL_FIELDS_MAX && format->fields[i]; i++) {
        if (!json_object_get(record, format->fields[i])) return false;
    }
    return true;
}

const skv_eval_format *skv_eval_format_of(const json_t *record)
{
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (has_fields(record, &formats[i])) return &formats[i];
    }
    return NULL;
}

skv_status skv_eval_make(const skv_eval_maker *m, const skv_eval_format *format,
                         const json_t *record, const char *where, skv_eval_example *e,
                         skv_error *err)
{
    skv_json_reader r = {record, where, err, SKV_OK};
    e->format = format;
    format->make(m, format, &r, e);
    return r.status;
}

/* Decodes the generated text, up to the text that ends an answer. */
static skv_status read_answer(const skv_eval_prompter *p, skv_eval_example *e, skv_error *err)
{
    const skv_eval_request *q = &e->requests[0];
    char *said;
    size_t n;
    SKV_TRY(skv_vocab_decode(p->vocab, (skv_id_piece){q->answer.data, q->answer.n},
                             (skv_decode_options){0}, &said, &n, err));
    const size_t n_space = strspn(said, " \n");
    const char *stop = q->stop_text ? strstr(said + n_space, q->stop_text) : NULL;
    skv_free(e->said);
    e->said = skv_strndup(said, stop ? (size_t)(stop - said) : strlen(said));
    skv_text_free(said);
    SKV_REQUIRE(e->said, err, SKV_MEMORY, "no memory for an answer");
    return SKV_OK;
}

skv_status skv_eval_judge(const skv_eval_prompter *p, skv_eval_example *e, skv_error *err)
{
    if (e->format->judge) {
        e->format->judge(e);
        return SKV_OK;
    }
    bool right;
    SKV_TRY(read_answer(p, e, err));
    SKV_TRY(skv_answer_check(e->format->rule, e->said, e->answers, e->n_answers, &right, err));
    skv_eval_set(e, SKV_METRIC_EXACT_MATCH, right, 1);
    return SKV_OK;
}
