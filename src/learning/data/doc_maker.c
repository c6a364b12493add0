/* Generated documents: the mixture of tasks, and documents as lines of JSON. See doc_maker.h. */
#include "data/doc_maker.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "data/doc_writer.h"
#include "format/gguf.h"

enum {
    TOKENS_MIN = 32,
    TOKENS_MAX = 1 << 20,
    TEXT_MAX = 1 << 26,  /* bytes of one document */
    PROSE_MAX = 1 << 28, /* bytes */
    TASKS_TEXT_MAX = 512,
    /* The tokens of a conversation besides its texts, as in vocab_train.c: the marks of two turns
     * and the space before the answer; the marks at both ends. */
    TURN_TOKENS = 5,
    FRAME_TOKENS = 2
};

/* Questions take at most this share of a document. */
static const double question_share = 0.6;

typedef struct task_row {
    const char *name;
    skv_doc_family_fn *write;
    size_t question_tokens;   /* a question with its answer, generously */
    size_t opening_tokens;    /* the minimum of a context, to answer anything */
    double copy, lookup, all; /* weights in the stages of the curriculum */
} task_row;

/* The order of the stages makes lookup learnable at all: copying forms the attention that finds an
 * earlier occurrence, lookup uses it, the rest builds on both. */
static const task_row tasks[SKV_DOC_TASK_COUNT] = {
    [SKV_DOC_TOKENS] = {"tokens", skv_doc_write_tokens, 0, 0, 1, 0.02, 0.02},
    [SKV_DOC_REPEAT] = {"repeat", skv_doc_write_repeat, 0, 0, 0, 0.1, 0.04},
    [SKV_DOC_COPY] = {"copy", skv_doc_write_copy, 48, 24, 0, 0.1, 0.06},
    [SKV_DOC_EDIT] = {"edit", skv_doc_write_edit, 56, 24, 0, 0, 0.1},
    [SKV_DOC_LINES] = {"lines", skv_doc_write_lines, 40, 24, 0, 0.4, 0.12},
    [SKV_DOC_KV] = {"kv", skv_doc_write_kv, 40, 24, 0, 0.4, 0.1},
    [SKV_DOC_NEEDLE] = {"needle", skv_doc_write_needle, 36, 40, 0, 0, 0.1},
    [SKV_DOC_VARIABLES] = {"variables", skv_doc_write_variables, 32, 24, 0, 0, 0.08},
    [SKV_DOC_HOPS] = {"hops", skv_doc_write_hops, 36, 64, 0, 0, 0.08},
    [SKV_DOC_TABLE] = {"table", skv_doc_write_table, 32, 40, 0, 0, 0.08},
    [SKV_DOC_LABELS] = {"labels", skv_doc_write_labels, 20, 40, 0, 0, 0.08},
    [SKV_DOC_REPORT] = {"report", skv_doc_write_report, 44, 90, 0, 0, 0.08},
    [SKV_DOC_LOG] = {"log", skv_doc_write_log, 40, 40, 0, 0, 0.08},
};

struct skv_documents {
    skv_documents_options options; /* its texts are not used after opening */
    double weights[SKV_DOC_TASK_COUNT], weight_sum;
    const skv_tokenizer *tokenizer; /* borrowed from outside, or `own` */
    skv_tokenizer *own;             /* owned */
    char *prose;                    /* owned */
    size_t n_prose;
    size_t turn_tokens, frame_tokens;
};

const char *skv_doc_task_name(skv_doc_task task)
{
    return (unsigned)task < SKV_DOC_TASK_COUNT ? tasks[task].name : "unknown";
}

bool skv_doc_task_asks(skv_doc_task task)
{
    return (unsigned)task < SKV_DOC_TASK_COUNT && tasks[task].question_tokens > 0;
}

skv_documents_options skv_documents_default(void)
{
    return (skv_documents_options){.tokens_min = 128, .tokens_max = 1024, .questions_max = 24};
}

void skv_document_init(skv_document *doc)
{
    *doc = (skv_document){.n_pieces = 0};
    skv_buf_init(&doc->text, TEXT_MAX);
}

void skv_document_release(skv_document *doc)
{
    skv_buf_release(&doc->text);
    skv_free(doc->pieces);
    doc->pieces = NULL;
    doc->n_pieces = doc->pieces_capacity = 0;
}

/* ---- the mixture ---- */

static bool set_stage(skv_documents *d, const char *name)
{
    const bool copy = strcmp(name, "stage:copy") == 0, lookup = strcmp(name, "stage:lookup") == 0;
    const bool all = strcmp(name, "stage:all") == 0;
    if (!copy && !lookup && !all) return false;
    for (size_t i = 0; i < SKV_DOC_TASK_COUNT; i++) {
        d->weights[i] = copy ? tasks[i].copy : lookup ? tasks[i].lookup : tasks[i].all;
    }
    return true;
}

/* One "name" or "name=weight". */
static skv_status add_task(skv_documents *d, const char *item, size_t n, skv_error *err)
{
    const char *equals = memchr(item, '=', n);
    const size_t n_name = equals ? (size_t)(equals - item) : n;
    double weight = 1;
    if (equals) {
        char *end;
        weight = strtod(equals + 1, &end);
        SKV_REQUIRE(end == item + n && end > equals + 1 && isfinite(weight) && weight >= 0, err,
                    SKV_ARGUMENT, "tasks: \"%.*s\": not a weight", (int)n, item);
    }
    for (size_t i = 0; i < SKV_DOC_TASK_COUNT; i++) {
        if (strlen(tasks[i].name) == n_name && memcmp(tasks[i].name, item, n_name) == 0) {
            d->weights[i] = weight;
            return SKV_OK;
        }
    }
    char list[256] = "stage:copy, stage:lookup, stage:all";
    size_t n_list = strlen(list);
    for (size_t i = 0; i < SKV_DOC_TASK_COUNT && n_list < sizeof list; i++) {
        n_list += (size_t)snprintf(list + n_list, sizeof list - n_list, ", %s", tasks[i].name);
    }
    return skv_fail(err, SKV_ARGUMENT, "tasks: \"%.*s\" is none of %s", (int)n_name, item, list);
}

static skv_status set_tasks(skv_documents *d, const char *text, skv_error *err)
{
    SKV_REQUIRE(strlen(text) < TASKS_TEXT_MAX, err, SKV_ARGUMENT, "tasks: too long");
    if (!set_stage(d, text)) {
        for (const char *item = text;; item++) {
            const size_t n = strcspn(item, ",");
            SKV_TRY(add_task(d, item, n, err));
            item += n;
            if (*item == 0) break;
        }
    }
    d->weight_sum = 0;
    for (size_t i = 0; i < SKV_DOC_TASK_COUNT; i++) d->weight_sum += d->weights[i];
    SKV_REQUIRE(d->weight_sum > 0, err, SKV_ARGUMENT, "tasks: \"%s\": every weight is 0", text);
    return SKV_OK;
}

/* ---- opening ---- */

static skv_status open_vocab(skv_documents *d, const char *path, skv_error *err)
{
    if (skv_file_is_folder(path)) {
        SKV_TRY(skv_tokenizer_open_folder(path, &d->own, err));
    } else {
        skv_gguf *gguf;
        SKV_TRY(skv_gguf_open(path, &gguf, err));
        skv_status status = skv_tokenizer_open_gguf(gguf, &d->own, err);
        skv_gguf_close(gguf);
        SKV_TRY(status);
    }
    SKV_REQUIRE(d->own, err, SKV_UNSUPPORTED, "%s: this model has no tokenizer", path);
    d->tokenizer = d->own;
    return SKV_OK;
}

static skv_status fill(skv_documents *d, const skv_documents_options *o, skv_error *err)
{
    SKV_REQUIRE(o->tokens_min >= TOKENS_MIN && o->tokens_max <= TOKENS_MAX, err, SKV_RANGE,
                "documents: %zu to %zu tokens, expected %d to %d", o->tokens_min, o->tokens_max,
                TOKENS_MIN, TOKENS_MAX);
    SKV_REQUIRE(o->tokens_min <= o->tokens_max, err, SKV_RANGE, "documents: %zu to %zu tokens",
                o->tokens_min, o->tokens_max);
    SKV_REQUIRE(o->questions_max >= 1, err, SKV_RANGE, "documents: no questions");
    SKV_TRY(set_tasks(d, o->tasks ? o->tasks : "stage:all", err));
    if (!d->tokenizer && o->vocab) SKV_TRY(open_vocab(d, o->vocab, err));
    if (o->prose) SKV_TRY(skv_file_read(o->prose, PROSE_MAX, &d->prose, &d->n_prose, err));
    return SKV_OK;
}

skv_status skv_documents_create(const skv_documents_options *options,
                                const skv_tokenizer *tokenizer, skv_documents **out, skv_error *err)
{
    skv_documents *d = skv_alloc_zero(1, sizeof *d);
    SKV_REQUIRE(d, err, SKV_MEMORY, "documents: no memory");
    d->options = *options;
    d->tokenizer = tokenizer;
    skv_documents_set_turns(d, TURN_TOKENS, FRAME_TOKENS);
    skv_status status = fill(d, options, err);
    if (status != SKV_OK) {
        skv_documents_close(d);
        return status;
    }
    *out = d;
    return SKV_OK;
}

skv_status skv_documents_open(const skv_documents_options *options, skv_documents **out,
                              skv_error *err)
{
    return skv_documents_create(options, NULL, out, err);
}

void skv_documents_close(skv_documents *d)
{
    if (!d) return;
    skv_tokenizer_free(d->own);
    skv_free(d->prose);
    skv_free(d);
}

/* ---- one document ---- */

static skv_doc_task draw_task(const skv_documents *d, skv_doc_writer *w)
{
    double x = skv_rng_uniform(&w->rng) * d->weight_sum;
    size_t last = 0;
    for (size_t i = 0; i < SKV_DOC_TASK_COUNT; i++) {
        if (d->weights[i] == 0) continue;
        last = i;
        if (x < d->weights[i]) break;
        x -= d->weights[i];
    }
    return (skv_doc_task)last;
}

/* A short document may have no room for some tasks; copying is always possible. */
static skv_doc_task draw_possible_task(const skv_documents *d, skv_doc_writer *w)
{
    for (int i = 0; i < 16; i++) {
        const skv_doc_task task = draw_task(d, w);
        const size_t need = tasks[task].opening_tokens + tasks[task].question_tokens;
        if (w->budget >= w->used + need) return task;
    }
    return SKV_DOC_REPEAT;
}

/* Plans as many questions as wanted, drawn from 1 to the most that leave room for a context. */
static void plan_questions(const skv_documents *d, const task_row *task, bool evaluation,
                           skv_doc_writer *w)
{
    if (task->question_tokens == 0) return;
    const double room =
        fmin((double)w->budget * question_share, (double)w->budget - (double)task->opening_tokens);
    size_t most = room > 0 ? (size_t)(room / (double)task->question_tokens) : 1;
    most = skv_max_size(1, skv_min_size(most, d->options.questions_max));
    /* Room is kept for some; more are asked while they fit. */
    const size_t kept = evaluation ? 1 : skv_doc_scale(w, skv_ceil_div(most, 4), most);
    w->n_questions = evaluation ? 1 : d->options.questions_max;
    w->reserve = kept * task->question_tokens;
}

/* How one document differs from the others of its options. */
typedef struct make_mode {
    bool evaluation;
    bool repeat; /* the task "repeat", which is possible in any room */
    size_t room; /* tokens; 0: as in the options */
} make_mode;

static skv_status make(const skv_documents *d, uint64_t index, make_mode mode, skv_document *doc,
                       skv_error *err)
{
    const bool evaluation = mode.evaluation;
    doc->text.failed = false;
    skv_buf_clear(&doc->text);
    doc->n_pieces = 0;
    skv_doc_writer w = {.doc = doc,
                        .tokenizer = d->tokenizer,
                        .prose = {d->prose, d->n_prose},
                        .held_out = d->options.held_out,
                        .used = d->frame_tokens,
                        .turn_tokens = d->turn_tokens,
                        .err = err};
    skv_buf_init(&w.scratch, TEXT_MAX);
    skv_rng_init(&w.rng, skv_mix64(d->options.seed) + skv_mix64(~index));
    w.budget = skv_doc_scale(&w, d->options.tokens_min, d->options.tokens_max);
    if (mode.room > 0) w.budget = skv_min_size(w.budget, mode.room);
    doc->task = mode.room > 0 ? draw_possible_task(d, &w) : draw_task(d, &w);
    if (mode.repeat) doc->task = SKV_DOC_REPEAT;
    plan_questions(d, &tasks[doc->task], evaluation, &w);
    tasks[doc->task].write(&w);
    if (w.n_questions > 0 && w.n_asked == 0 && w.status == SKV_OK) {
        w.status = skv_fail(err, SKV_RANGE, "documents: %zu tokens are too few for the task \"%s\"",
                            w.budget, tasks[doc->task].name);
    }
    if (w.scratch.failed) skv_doc_failed(&w);
    doc->n_tokens = w.used;
    skv_buf_release(&w.scratch);
    skv_ids_release(&w.ids);
    skv_free(w.facts);
    skv_free(w.taken);
    return w.status;
}

skv_status skv_documents_make(const skv_documents *d, uint64_t index, skv_document *doc,
                              skv_error *err)
{
    return make(d, index, (make_mode){.room = 0}, doc, err);
}

skv_status skv_documents_make_within(const skv_documents *d, uint64_t index, size_t room,
                                     skv_document *doc, skv_error *err)
{
    assert(room >= SKV_DOC_ROOM_MIN);
    skv_status status = make(d, index, (make_mode){.room = room}, doc, err);
    if (status != SKV_RANGE) return status; /* else nothing could be asked in it after all */
    return make(d, index, (make_mode){.room = room, .repeat = true}, doc, err);
}

void skv_documents_set_turns(skv_documents *d, size_t turn_tokens, size_t frame_tokens)
{
    d->turn_tokens = turn_tokens;
    d->frame_tokens = frame_tokens;
}

/* ---- JSON ---- */

static void put_string(skv_buf *out, const skv_document *doc, const skv_piece *piece)
{
    (void)skv_buf_byte(out, '"');
    (void)skv_buf_json_text(out, doc->text.data + piece->at, piece->n);
    (void)skv_buf_byte(out, '"');
}

static void put_training(skv_buf *out, const skv_document *doc)
{
    const bool turns = doc->n_pieces > 0 && doc->pieces[0].role != SKV_PIECE_TEXT;
    (void)skv_buf_printf(out, "{\"task\": \"%s\", \"tokens\": %zu, \"%s\": [",
                         tasks[doc->task].name, doc->n_tokens, turns ? "messages" : "segments");
    for (size_t i = 0; i < doc->n_pieces; i++) {
        const skv_piece *piece = &doc->pieces[i];
        if (i > 0) (void)skv_buf_text(out, ", ");
        if (turns) {
            (void)skv_buf_printf(out, "{\"role\": \"%s\", \"content\": ",
                                 piece->role == SKV_PIECE_USER ? "user" : "assistant");
        } else {
            (void)skv_buf_printf(out, "{\"loss\": %s, \"text\": ", piece->loss ? "true" : "false");
        }
        put_string(out, doc, piece);
        (void)skv_buf_byte(out, '}');
    }
    (void)skv_buf_text(out, "]}");
}

static void put_evaluation(skv_buf *out, const skv_document *doc)
{
    (void)skv_buf_text(out, "{\"prompt\": ");
    put_string(out, doc, &doc->pieces[0]);
    (void)skv_buf_text(out, ", \"answer\": ");
    put_string(out, doc, &doc->pieces[1]);
    (void)skv_buf_printf(out, ", \"task\": \"%s\", \"length\": %zu, \"depth\": %.4f}",
                         tasks[doc->task].name, doc->n_tokens, doc->pieces[1].depth);
}

static skv_status print(const skv_documents *d, uint64_t index, bool evaluation, skv_document *doc,
                        skv_buf *out, skv_error *err)
{
    SKV_TRY(make(d, index, (make_mode){.evaluation = evaluation}, doc, err));
    SKV_REQUIRE(!evaluation || doc->n_pieces >= 2, err, SKV_ARGUMENT,
                "documents: the task \"%s\" has no questions", tasks[doc->task].name);
    if (evaluation && doc->pieces[0].role == SKV_PIECE_TEXT) {
        return skv_fail(err, SKV_ARGUMENT, "documents: the task \"%s\" has no questions",
                        tasks[doc->task].name);
    }
    if (evaluation) {
        put_evaluation(out, doc);
    } else {
        put_training(out, doc);
    }
    SKV_REQUIRE(!out->failed, err, SKV_MEMORY, "documents: no memory for a line");
    return SKV_OK;
}

skv_status skv_documents_json(const skv_documents *d, uint64_t index, bool evaluation, char **line,
                              size_t *n, skv_error *err)
{
    skv_document doc;
    skv_document_init(&doc);
    skv_buf out;
    skv_buf_init(&out, 2 * (size_t)TEXT_MAX);
    skv_status status = print(d, index, evaluation, &doc, &out, err);
    skv_document_release(&doc);
    if (status != SKV_OK) {
        skv_buf_release(&out);
        return status;
    }
    *line = out.data;
    *n = out.size;
    return SKV_OK;
}
