/* Mixing and packing: see data.h. */
#include "data/data.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/size.h"
#include "data/data_doc.h"
#include "data/data_file.h"

enum {
    ROOM_MIN = 16,    /* tokens of a row that are still worth filling with text */
    EMPTY_MAX = 1000, /* documents without tokens in a row of them */
    ROW_MAX = 1 << 20
};
#define BATCH_MAX ((size_t)1 << 27)

typedef struct source {
    skv_data_kind kind;
    double weight;
    skv_train_learn learn;
    int32_t begin; /* the token that begins documents within a piece of a file; -1: none */
    skv_data_file file;
    skv_documents *documents; /* owned; GENERATED */
    uint64_t position;        /* of the next document */
    uint64_t n_tokens;        /* so far */
    bool full;                /* nothing of it fits into this batch any more */
} source;

struct skv_data {
    skv_data_writer writer;
    source sources[SKV_TRAIN_DATA_MAX];
    size_t n_sources;
    size_t rows, row_tokens;
    bool once;
    double fuse;
    int32_t begin, end;
    uint64_t seed, n_batches;
    size_t *used;           /* owned; [rows] tokens of a row that are taken */
    int32_t *ids, *targets; /* owned; [rows * row_tokens] */
    uint32_t *positions, *doc_start;
    skv_data_tokens tokens; /* of one document */
    skv_document doc;
};

/* ---- opening ---- */

skv_train_data skv_train_data_default(const char *file)
{
    skv_train_data data = {
        .file = file, .weight = 1, .temperature = 1, .documents = skv_documents_default()};
    data.documents.tokens_min = 64;
    data.documents.tokens_max = 0;
    return data;
}

/* By the name's ending: all else is text. */
static skv_data_kind kind_of(const char *path)
{
    static const struct {
        const char *ending;
        skv_data_kind kind;
    } known[] = {{".jsonl", SKV_DATA_JSONL},
                 {".json", SKV_DATA_IDS},
                 {".u16", SKV_DATA_TOKENS16},
                 {".u32", SKV_DATA_TOKENS32}};
    const size_t n = strlen(path);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const size_t n_ending = strlen(known[i].ending);
        if (n > n_ending && strcmp(path + n - n_ending, known[i].ending) == 0) return known[i].kind;
    }
    return SKV_DATA_TEXT;
}

static skv_data_file_form form_of(skv_data_kind kind)
{
    switch (kind) {
    case SKV_DATA_TEXT: return SKV_DATA_FILE_TEXT;
    case SKV_DATA_TOKENS16: return SKV_DATA_FILE_U16;
    case SKV_DATA_TOKENS32: return SKV_DATA_FILE_U32;
    case SKV_DATA_IDS: return SKV_DATA_FILE_JSON_IDS;
    case SKV_DATA_JSONL:
    case SKV_DATA_GENERATED: break;
    }
    return SKV_DATA_FILE_LINES;
}

static bool needs_tokenizer(skv_data_kind kind)
{
    return kind == SKV_DATA_TEXT || kind == SKV_DATA_JSONL || kind == SKV_DATA_GENERATED;
}

/* Counts the tokens of turn marks with this model, so that generated documents keep their
 * length. */
static skv_status count_turns(const skv_data_writer *w, skv_documents *documents, skv_error *err)
{
    const skv_buf *const turn[] = {&w->to_answer, &w->answer_start, &w->to_question};
    const skv_buf *const frame[] = {&w->head, &w->tail};
    const skv_encode_options special = {.parse_special = true};
    skv_ids ids = {0};
    skv_status status = SKV_OK;
    size_t n_turn = 0;
    for (size_t i = 0; i < 5 && status == SKV_OK; i++) {
        const skv_buf *text = i < 3 ? turn[i] : frame[i - 3];
        if (i == 3) n_turn = ids.n;
        if (text->size == 0) continue;
        status = skv_tokenizer_encode(w->tokenizer, text->data, text->size, special, &ids, err);
    }
    const size_t n_frame = ids.n - n_turn;
    skv_ids_release(&ids);
    if (status == SKV_OK) skv_documents_set_turns(documents, n_turn + 1, n_frame + 1);
    return status;
}

static skv_status open_source(skv_data *data, const skv_train_data *o, uint64_t seed,
                              skv_error *err)
{
    source *s = &data->sources[data->n_sources];
    const skv_data_kind kind = o->file ? kind_of(o->file) : SKV_DATA_GENERATED;
    *s = (source){.kind = kind, .weight = o->weight, .learn = o->learn, .begin = -1};
    SKV_REQUIRE(o->file || o->self_tokens == 0, err, SKV_ARGUMENT,
                "data: source %zu: the teacher's own text has not been written", data->n_sources);
    SKV_REQUIRE(isfinite(o->weight) && o->weight > 0, err, SKV_RANGE,
                "data: source %zu: weight %g, expected more than 0", data->n_sources, o->weight);
    SKV_REQUIRE(data->writer.tokenizer || !needs_tokenizer(kind), err, SKV_UNSUPPORTED,
                "%s: this model has no tokenizer, so its data are token ids",
                o->file ? o->file : "data: generated documents");
    data->n_sources++;
    if (o->self_tokens > 0) s->begin = data->begin;
    if (kind != SKV_DATA_GENERATED) {
        return skv_data_file_open(o->file, form_of(kind), seed, &s->file, err);
    }
    skv_documents_options documents = o->documents;
    SKV_REQUIRE(data->row_tokens >= SKV_DOC_ROOM_MIN, err, SKV_RANGE,
                "data: generated documents in rows of %zu tokens, expected %d or more",
                data->row_tokens, SKV_DOC_ROOM_MIN);
    if (documents.tokens_max == 0) documents.tokens_max = data->row_tokens;
    documents.tokens_max = skv_min_size(documents.tokens_max, data->row_tokens);
    documents.tokens_min = skv_min_size(documents.tokens_min, documents.tokens_max);
    SKV_TRY(skv_documents_create(&documents, data->writer.tokenizer, &s->documents, err));
    return count_turns(&data->writer, s->documents, err);
}

static skv_status allocate(skv_data *data, skv_error *err)
{
    const size_t n = data->rows * data->row_tokens;
    data->used = skv_alloc_zero(data->rows, sizeof *data->used);
    data->ids = skv_alloc(n, sizeof *data->ids);
    data->targets = skv_alloc(n, sizeof *data->targets);
    data->positions = skv_alloc(n, sizeof *data->positions);
    data->doc_start = skv_alloc(n, sizeof *data->doc_start);
    SKV_REQUIRE(data->used && data->ids && data->targets && data->positions && data->doc_start, err,
                SKV_MEMORY, "data: no memory for batches of %zu tokens", n);
    return SKV_OK;
}

static skv_status open_all(skv_data *data, const skv_data_options *o, skv_error *err)
{
    SKV_TRY(skv_data_writer_init(&data->writer, o->tokenizer, o->vocab, err));
    SKV_TRY(allocate(data, err));
    for (size_t i = 0; i < o->n_sources; i++) {
        SKV_TRY(open_source(data, &o->sources[i], skv_mix64(o->seed + i), err));
    }
    return SKV_OK;
}

skv_status skv_data_open(const skv_data_options *o, skv_data **out, skv_error *err)
{
    SKV_REQUIRE(o->n_sources > 0 && o->n_sources <= SKV_TRAIN_DATA_MAX, err, SKV_RANGE,
                "data: %zu sources, expected 1 to %d", o->n_sources, SKV_TRAIN_DATA_MAX);
    SKV_REQUIRE(o->row_tokens >= ROOM_MIN && o->row_tokens <= ROW_MAX, err, SKV_RANGE,
                "data: rows of %zu tokens, expected %d to %d", o->row_tokens, ROOM_MIN, ROW_MAX);
    SKV_REQUIRE(o->rows > 0 && o->rows <= BATCH_MAX / o->row_tokens, err, SKV_RANGE,
                "data: %zu rows of %zu tokens", o->rows, o->row_tokens);
    skv_data *data = skv_alloc_zero(1, sizeof *data);
    SKV_REQUIRE(data, err, SKV_MEMORY, "data: no memory");
    data->rows = o->rows;
    data->row_tokens = o->row_tokens;
    data->once = o->once;
    data->fuse = o->fuse;
    data->begin = o->begin;
    data->end = o->end;
    data->seed = o->seed;
    skv_document_init(&data->doc);
    skv_status status = open_all(data, o, err);
    if (status != SKV_OK) {
        skv_data_close(data);
        return status;
    }
    *out = data;
    return SKV_OK;
}

void skv_data_close(skv_data *data)
{
    if (!data) return;
    for (size_t i = 0; i < data->n_sources; i++) {
        skv_data_file_close(&data->sources[i].file);
        skv_documents_close(data->sources[i].documents);
    }
    skv_data_writer_release(&data->writer);
    skv_data_tokens_release(&data->tokens);
    skv_document_release(&data->doc);
    skv_free(data->used);
    skv_free(data->ids);
    skv_free(data->targets);
    skv_free(data->positions);
    skv_free(data->doc_start);
    skv_free(data);
}

/* ---- packing ---- */

/* The source that lags its share most; NULL when the batch is full for all. */
static source *next_source(skv_data *data)
{
    source *best = NULL;
    for (size_t i = 0; i < data->n_sources; i++) {
        source *s = &data->sources[i];
        if (s->full) continue;
        if (!best || (double)s->n_tokens / s->weight < (double)best->n_tokens / best->weight) {
            best = s;
        }
    }
    return best;
}

/* The first row that has this many tokens left; `rows` when there is none. */
static size_t row_with(const skv_data *data, size_t room)
{
    size_t row = 0;
    while (row < data->rows && data->row_tokens - data->used[row] < room) row++;
    return row;
}

static size_t most_room(const skv_data *data)
{
    size_t room = 0;
    for (size_t i = 0; i < data->rows; i++) {
        room = skv_max_size(room, data->row_tokens - data->used[i]);
    }
    return room;
}

/* The next document of a source into data->tokens; s->full when none fits. */
static skv_status take(skv_data *data, source *s, skv_error *err)
{
    skv_data_tokens_clear(&data->tokens);
    if (s->kind == SKV_DATA_JSONL) {
        const size_t room = most_room(data);
        bool taken;
        SKV_TRY(skv_data_file_take(&s->file, &data->writer, &s->position, room,
                                   room == data->row_tokens, &taken, &data->tokens, err));
        s->full = !taken;
        return SKV_OK;
    }
    const bool generated = s->kind == SKV_DATA_GENERATED;
    const size_t row = row_with(data, generated ? SKV_DOC_ROOM_MIN : ROOM_MIN);
    s->full = row == data->rows;
    if (s->full) return SKV_OK;
    const size_t room = data->row_tokens - data->used[row];
    if (!generated) {
        bool taken;
        return skv_data_file_take(&s->file, &data->writer, &s->position, room, true, &taken,
                                  &data->tokens, err);
    }
    SKV_TRY(skv_documents_make_within(s->documents, s->position, room, &data->doc, err));
    s->position++;
    SKV_TRY(skv_data_put_document(&data->writer, &data->doc, &data->tokens, err));
    data->tokens.ids.n = skv_min_size(data->tokens.ids.n, room);
    return SKV_OK;
}

static skv_status check_ids(const skv_data *data, const source *s, skv_error *err)
{
    const skv_ids *ids = &data->tokens.ids;
    for (size_t i = 0; i < ids->n; i++) {
        SKV_REQUIRE(ids->data[i] >= 0 && (size_t)ids->data[i] < data->writer.vocab, err, SKV_RANGE,
                    "%s: token %d, the vocabulary has %zu", s->file.path ? s->file.path : "data",
                    (int)ids->data[i], data->writer.vocab);
    }
    return SKV_OK;
}

/* Whether token i of the current document is learnt. The token that begins the next document is
 * not: the end of this one does not predict it. */
static bool is_learnt(const skv_data *data, const source *s, size_t i)
{
    const int32_t *ids = data->tokens.ids.data;
    if (s->begin >= 0 && ids[i] == s->begin && ids[i - 1] == data->end) {
        return false;
    }
    switch (s->learn) {
    case SKV_LEARN_ALL: return true;
    case SKV_LEARN_NONE: return false;
    case SKV_LEARN_ANSWERS: break;
    }
    return data->tokens.loss[i] != 0;
}

/* Copies the document at hand into the first row that holds it. */
static void place(skv_data *data, source *s)
{
    const size_t n = data->tokens.ids.n, row = row_with(data, n);
    const size_t start = row * data->row_tokens + data->used[row];
    const int32_t *ids = data->tokens.ids.data;
    size_t first = 0;
    for (size_t i = 0; i < n; i++) {
        if (s->begin >= 0 && ids[i] == s->begin) first = i;
        data->ids[start + i] = ids[i];
        data->targets[start + i] = i + 1 < n && is_learnt(data, s, i + 1) ? ids[i + 1] : -1;
        data->positions[start + i] = (uint32_t)(i - first);
        data->doc_start[start + i] = (uint32_t)(start + first);
    }
    data->used[row] += n;
    s->n_tokens += n;
}

/* Which rows are fused is a function of the seed and the row's index in the run. */
static void fuse_rows(skv_data *data)
{
    for (size_t row = 0; row < data->rows; row++) {
        const uint64_t drawn =
            skv_mix64(data->seed ^ skv_mix64(data->n_batches * data->rows + row));
        if ((double)(drawn >> 11) * 0x1p-53 >= data->fuse) continue;
        for (size_t i = 0; i < data->used[row]; i++) {
            data->positions[row * data->row_tokens + i] = (uint32_t)i;
            data->doc_start[row * data->row_tokens + i] = (uint32_t)(row * data->row_tokens);
        }
    }
}

/* Fills the rest of a row with tokens that see only themselves and teach nothing. */
static void pad(skv_data *data)
{
    for (size_t row = 0; row < data->rows; row++) {
        for (size_t i = data->used[row]; i < data->row_tokens; i++) {
            const size_t at = row * data->row_tokens + i;
            data->ids[at] = 0;
            data->targets[at] = -1;
            data->positions[at] = 0;
            data->doc_start[at] = (uint32_t)at;
        }
    }
}

/* Where a file is read once only, and has been. */
static bool at_end(const skv_data *data, const source *s)
{
    return data->once && s->kind != SKV_DATA_GENERATED &&
           skv_data_file_epoch(&s->file, s->position) > 0;
}

static skv_status next_batch(void *ctx, skv_train_batch *batch, skv_error *err)
{
    skv_data *data = ctx;
    memset(data->used, 0, data->rows * sizeof *data->used);
    for (size_t i = 0; i < data->n_sources; i++) data->sources[i].full = false;
    size_t n_empty = 0;
    source *s;
    while ((s = next_source(data))) {
        s->full = at_end(data, s);
        if (!s->full) SKV_TRY(take(data, s, err));
        if (s->full) continue;
        const bool empty = data->tokens.ids.n == 0;
        n_empty = empty ? n_empty + 1 : 0;
        SKV_TRY(check_ids(data, s, err));
        SKV_REQUIRE(n_empty < EMPTY_MAX, err, SKV_FORMAT, "%s: %d documents without a token",
                    s->file.path ? s->file.path : "data", EMPTY_MAX);
        if (!empty) place(data, s);
    }
    fuse_rows(data);
    pad(data);
    data->n_batches++;
    *batch = (skv_train_batch){.n_tokens = data->rows * data->row_tokens,
                               .ids = data->ids,
                               .targets = data->targets,
                               .positions = data->positions,
                               .doc_start = data->doc_start};
    return SKV_OK;
}

/* ---- state ---- */

static void save(const void *ctx, uint64_t state[SKV_BATCH_STATE_WORDS])
{
    static_assert(2 + 2 * SKV_TRAIN_DATA_MAX <= SKV_BATCH_STATE_WORDS, "all sources fit");
    const skv_data *data = ctx;
    memset(state, 0, SKV_BATCH_STATE_WORDS * sizeof state[0]);
    state[0] = data->n_batches;
    state[1] = data->n_sources;
    for (size_t i = 0; i < data->n_sources; i++) {
        state[2 + 2 * i] = data->sources[i].position;
        state[3 + 2 * i] = data->sources[i].n_tokens;
    }
}

static skv_status restore(void *ctx, const uint64_t state[SKV_BATCH_STATE_WORDS], skv_error *err)
{
    skv_data *data = ctx;
    SKV_REQUIRE(state[1] == data->n_sources, err, SKV_ARGUMENT,
                "data: the saved run had %llu sources, this one has %zu",
                (unsigned long long)state[1], data->n_sources);
    data->n_batches = state[0];
    for (size_t i = 0; i < data->n_sources; i++) {
        data->sources[i].position = state[2 + 2 * i];
        data->sources[i].n_tokens = state[3 + 2 * i];
    }
    return SKV_OK;
}

skv_batch_source skv_data_source(skv_data *data)
{
    return (skv_batch_source){.ctx = data, .next = next_batch, .save = save, .restore = restore};
}

bool skv_data_done(const skv_data *data)
{
    for (size_t i = 0; i < data->n_sources; i++) {
        if (!at_end(data, &data->sources[i])) return false;
    }
    return true;
}
