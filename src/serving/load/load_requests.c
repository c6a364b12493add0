/* Arrivals, prompts and bodies: see load_requests.h. Each is worked out when it is wanted, so a run
 * of any length takes no memory for them. */
#include "load_requests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_out.h"

/* ---- arrivals ---- */

/* Seconds of the run for a second of the trace. */
static double trace_scale(const load_options *o, const load_trace *trace, size_t n)
{
    const double span = trace->rows[n - 1].at_s;
    if (o->rate <= 0) return o->time_scale;
    return span > 0 ? (double)(n - 1) / o->rate / span : 0;
}

arrival_clock arrival_clock_begin(const load_options *options)
{
    arrival_clock clock = {.options = options, .n_total = options->n_requests};
    const load_trace *trace = options->trace;
    if (trace) {
        if (trace->n < clock.n_total) clock.n_total = trace->n;
        if (clock.n_total > 0) clock.scale = trace_scale(options, trace, clock.n_total);
    }
    uint64_t seed = options->seed;
    clock.random_gaps = load_draw(&seed);
    clock.random_lengths = load_draw(&seed);
    return clock;
}

static double gap(arrival_clock *clock)
{
    const load_options *o = clock->options;
    switch (o->arrivals) {
    case LOAD_POISSON: return -log1p(-load_draw_share(&clock->random_gaps)) / o->rate;
    case LOAD_FIXED: return 1 / o->rate;
    default: return 0;
    }
}

static size_t scaled(uint32_t n, double scale)
{
    const double value = round(n * scale);
    return value < 1 ? 1 : (size_t)value;
}

bool arrival_clock_next(arrival_clock *clock, load_arrival *out)
{
    const load_options *o = clock->options;
    if (clock->n_told == clock->n_total) return false;
    *out = (load_arrival){.index = clock->n_told++};
    if (out->index > 0) clock->at_s += gap(clock);
    if (!o->trace) {
        const uint64_t which = load_draw(&clock->random_lengths) % o->n_prompt_lengths;
        out->n_prompt = o->prompt_lengths[which];
        out->n_output = o->output_tokens;
    } else {
        const load_trace_row *row = &o->trace->rows[out->index];
        if (o->arrivals == LOAD_TRACE) clock->at_s = row->at_s * clock->scale;
        out->n_prompt = scaled(row->n_prompt, o->length_scale);
        out->n_output = scaled(row->n_output, o->length_scale);
        out->n_blocks = row->n_blocks;
        out->blocks = row->n_blocks > 0 ? o->trace->blocks + row->first_block : NULL;
        out->block_tokens = scaled(TRACE_BLOCK_TOKENS, o->length_scale);
    }
    out->at_s = clock->at_s;
    return o->seconds <= 0 || out->at_s <= o->seconds;
}

/* ---- pieces ---- */

static void add_ids(skv_buf *out, size_t vocab, uint64_t key, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        (void)skv_buf_printf(out, "%llu,", (unsigned long long)(load_draw(&key) % vocab));
    }
}

static bool is_inside(const load_options *o, size_t at)
{
    return at < o->n_text && ((unsigned char)o->text[at] & 0xc0) == 0x80;
}

/* From a place of the text that `key` draws, around its end if need be; characters stay whole. */
static void add_text(skv_buf *out, const load_options *o, uint64_t key, size_t n_tokens)
{
    const double wanted = ceil((double)n_tokens * o->bytes_per_token);
    size_t left = wanted < 1 ? 1 : (size_t)wanted;
    const size_t reach = left < o->n_text ? o->n_text - left : o->n_text - 1;
    size_t at = (size_t)(load_draw(&key) % (reach + 1));
    while (is_inside(o, at)) at++;
    while (left > 0 && !out->failed) {
        if (at >= o->n_text) at = 0;
        size_t n = o->n_text - at < left ? o->n_text - at : left;
        left -= n;
        while (left == 0 && is_inside(o, at + n)) n++;
        (void)skv_buf_append(out, o->text + at, n);
        at += n;
    }
}

/* Two numbers make one, so that requests, blocks and runs with other seeds do not meet. */
static uint64_t key_of(uint64_t seed, uint64_t kind, uint64_t number)
{
    uint64_t state = seed;
    state = load_draw(&state) ^ kind;
    state = load_draw(&state) ^ number;
    return load_draw(&state);
}

static void add_pieces(const load_options *o, const load_arrival *a, skv_buf *out)
{
    for (size_t done = 0, i = 0; done < a->n_prompt; i++) {
        const bool is_block = i < a->n_blocks;
        const size_t left = a->n_prompt - done;
        const size_t n = is_block && a->block_tokens < left ? a->block_tokens : left;
        const uint64_t key =
            is_block ? key_of(o->seed, 1, a->blocks[i]) : key_of(o->seed, 2, a->index);
        if (o->text) {
            add_text(out, o, key, n);
        } else {
            add_ids(out, o->vocab, key, n);
        }
        done += n;
    }
}

/* ---- bodies ---- */

static bool is_given(const load_options *o, const char *field)
{
    return o->extra && json_object_get(o->extra, field);
}

static void add_prompt(const load_options *o, const load_arrival *a, skv_buf *out)
{
    if (!o->text) {
        (void)skv_buf_text(out, "\"prompt\":[");
        add_pieces(o, a, out);
        if (out->size > 0 && out->data[out->size - 1] == ',') out->size--;
        (void)skv_buf_text(out, "]");
        return;
    }
    skv_buf text;
    skv_buf_init(&text, LOAD_BODY_MAX);
    add_pieces(o, a, &text);
    (void)skv_buf_text(out,
                       o->chat ? "\"messages\":[{\"role\":\"user\",\"content\":" : "\"prompt\":");
    skv_buf_json(out, text.data ? text.data : "", text.size);
    if (o->chat) (void)skv_buf_text(out, "}]");
    out->failed = out->failed || text.failed;
    skv_buf_release(&text);
}

static void add_extra(skv_buf *out, const json_t *extra)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)extra, name, value)
    {
        char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        (void)skv_buf_text(out, ",");
        skv_buf_json_str(out, name);
        (void)skv_buf_text(out, ":");
        if (text) (void)skv_buf_text(out, text);
        out->failed = out->failed || !text;
        free(text);
    }
}

bool load_request_body(const load_options *o, const load_arrival *arrival, skv_buf *out)
{
    skv_buf_clear(out);
    (void)skv_buf_text(out, "{");
    add_prompt(o, arrival, out);
    (void)skv_buf_text(out, ",\"model\":");
    skv_buf_json_str(out, o->model);
    if (!is_given(o, "max_tokens") && !is_given(o, "max_completion_tokens")) {
        (void)skv_buf_printf(out, ",\"max_tokens\":%zu", arrival->n_output);
    }
    if (!is_given(o, "temperature")) (void)skv_buf_text(out, ",\"temperature\":0");
    if (o->ignore_eos) (void)skv_buf_text(out, ",\"ignore_eos\":true");
    if (o->method) {
        (void)skv_buf_text(out, ",\"swiftkv\":");
        skv_buf_json_str(out, o->method);
    }
    if (o->extra) add_extra(out, o->extra);
    (void)skv_buf_text(out, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    return !out->failed;
}

char *load_request_words(size_t n, uint64_t seed)
{
    static const char *const words[] = {
        "the ",     "time ",   "of ",     "a ",     "river ",   "and ",   "every ", "house ",
        "stands ",  "near ",   "water, ", "where ", "people ",  "walk ",  "in ",    "the ",
        "morning ", "light. ", "They ",   "speak ", "about ",   "work, ", "about ", "money ",
        "and ",     "what ",   "was ",    "said ",  "before. ", "Small ", "birds ", "follow "};
    char *text = malloc(n + 16);
    size_t at = 0;
    if (!text) return NULL;
    while (at < n) {
        const char *word = words[load_draw(&seed) % (sizeof words / sizeof words[0])];
        const size_t length = strlen(word);
        memcpy(text + at, word, length);
        at += length;
    }
    text[at] = 0;
    return text;
}
