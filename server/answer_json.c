/* Pieces of responses: see answer_json.h. */
#include "answer_json.h"

#include <string.h>

void answer_usage(out_text *out, const skv_job_stats *stats)
{
    out_format(out,
               "{\"prompt_tokens\":%zu,\"completion_tokens\":%zu,\"total_tokens\":%zu,"
               "\"prompt_tokens_details\":{\"cached_tokens\":%zu}}",
               stats->prompt_tokens, stats->completion_tokens,
               stats->prompt_tokens + stats->completion_tokens, stats->cached_tokens);
}

static void add_rate(out_text *out, const char *name, size_t n, uint64_t ns)
{
    out_format(out, ",\"%s_n\":%zu,\"%s_ms\":%.3f,\"%s_per_second\":", name, n, name,
               (double)ns * 1e-6, name);
    out_number(out, ns > 0 ? (double)n / ((double)ns * 1e-9) : 0);
}

void answer_timings(out_text *out, const skv_job_stats *stats)
{
    out_format(out, "{\"queue_ms\":%.3f,\"cache_n\":%zu,\"preemptions\":%zu",
               (double)stats->queue_ns * 1e-6, stats->cached_tokens, stats->preemptions);
    const size_t computed = stats->prefilled_tokens > stats->cached_tokens
                                ? stats->prefilled_tokens - stats->cached_tokens
                                : 0;
    add_rate(out, "prompt", computed, stats->prefill_ns);
    add_rate(out, "predicted", stats->completion_tokens, stats->decode_ns);
    out_str(out, "}");
}

void answer_progress(out_text *out, const generation *g, const skv_job_stats *stats)
{
    out_format(out, "{\"total\":%zu,\"cache\":%zu,\"processed\":%zu,\"time_ms\":%.0f}",
               stats->prompt_tokens, stats->cached_tokens, stats->prefilled_tokens,
               (double)(skv_now_ns() - g->start_ns) * 1e-6);
}

const char *answer_finish(skv_finish finish)
{
    return finish == SKV_FINISH_STOP ? "stop" : "length";
}

/* The text of one token inside a text: what it adds behind itself, since a first space may be lost
 * at the beginning. To be freed with skv_text_free; *from is where the text begins. NULL: none. */
static char *token_text(const exchange *ex, int32_t id, size_t *from, size_t *n)
{
    const skv_vocab *vocab = ex->server->vocab;
    const int32_t twice[] = {id, id};
    char *text = NULL, *one = NULL;
    size_t n_text = 0;
    if (vocab == NULL || skv_vocab_decode(vocab, &id, 1, true, &one, from, NULL) != SKV_OK) {
        return NULL;
    }
    skv_text_free(one);
    if (skv_vocab_decode(vocab, twice, 2, true, &text, &n_text, NULL) != SKV_OK) return NULL;
    if (*from > n_text) *from = n_text;
    *n = n_text - *from;
    return text;
}

void answer_token(const exchange *ex, out_text *out, int32_t id)
{
    size_t from = 0, n = 0;
    char *text = token_text(ex, id, &from, &n);
    if (text != NULL) {
        out_json(out, text + from, n);
    } else {
        out_format(out, "\"token_id:%d\"", id);
    }
    skv_text_free(text);
}

static void add_chat_token(const exchange *ex, out_text *out, int32_t id, double logprob)
{
    size_t from = 0, n = 0;
    char *text = token_text(ex, id, &from, &n);
    out_str(out, "{\"token\":");
    if (text != NULL) {
        out_json(out, text + from, n);
    } else {
        out_format(out, "\"token_id:%d\"", id);
    }
    out_str(out, ",\"logprob\":");
    out_number(out, logprob);
    out_str(out, ",\"bytes\":[");
    for (size_t i = 0; text != NULL && i < n; i++) {
        out_format(out, i > 0 ? ",%u" : "%u", (unsigned)(unsigned char)text[from + i]);
    }
    out_str(out, "]");
    skv_text_free(text);
}

void answer_chat_logprob(const exchange *ex, out_text *out, const skv_output *token)
{
    add_chat_token(ex, out, token->id, token->logprob);
    out_str(out, ",\"top_logprobs\":[");
    for (size_t i = 0; i < token->n_top; i++) {
        if (i > 0) out_str(out, ",");
        add_chat_token(ex, out, token->top[i].id, token->top[i].logprob);
        out_str(out, "}");
    }
    out_str(out, "]}");
}

bool answer_failed(const skv_output *end, api_error *error)
{
    if (end->finish == SKV_FINISH_STOP || end->finish == SKV_FINISH_LENGTH) return false;
    (void)api_fail(error, 503, NULL, "%.*s", (int)end->n_text, end->text);
    error->retry_after_s = 1;
    return true;
}
