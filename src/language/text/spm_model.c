/*
 * tokenizer.model: SentencePiece's ModelProto, read by a small protocol buffer reader.
 *
 * ModelProto { 1: repeated piece { 1: text, 2: float score, 3: type }, 2: trainer, 3: normalizer }
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "text/tokenizer_impl.h"

enum { UNIGRAM_MODEL = 1, BPE_MODEL = 2 };
enum { NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6 };
/* User-defined pieces score so much for each byte behind the first: more than others, whose scores
 * are logarithms. */
#define USER_SCORE 0.1

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

typedef struct reader {
    const unsigned char *data;
    size_t n, at;
} reader;

/* One field: a number, or a stretch of bytes. */
typedef struct field {
    uint64_t number, value;
    unsigned wire;
    const unsigned char *bytes;
    size_t n;
} field;

typedef struct spm_spec {
    uint64_t model_type;
    bool byte_fallback, space_as_suffix;
    int32_t unk, bos, eos;
    bool add_prefix, merge_spaces, escape;
    const char *unk_surface; /* the decoded text of the unknown piece */
    size_t n_unk_surface;
    const unsigned char *charsmap;
    size_t n_charsmap;
    size_t n_pieces, n_bytes; /* of the vocabulary */
} spm_spec;

typedef struct piece {
    const char *text;
    size_t n;
    float score;
    uint64_t type;
} piece;

static bool read_varint(reader *r, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && r->at < r->n; shift += 7) {
        unsigned char byte = r->data[r->at++];
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

static bool read_fixed(reader *r, size_t n, uint64_t *out)
{
    if (r->n - r->at < n) return false;
    *out = 0;
    for (size_t i = 0; i < n; i++) *out |= (uint64_t)r->data[r->at + i] << 8 * i;
    r->at += n;
    return true;
}

/* The next field; *more is false at the end. False for bytes that are no field. */
static bool next_field(reader *r, field *f, bool *more)
{
    uint64_t tag;
    *f = (field){0};
    *more = r->at < r->n;
    if (!*more) return true;
    if (!read_varint(r, &tag)) return false;
    f->number = tag >> 3;
    f->wire = (unsigned)(tag & 7);
    if (f->number == 0) return false;
    if (f->wire == WIRE_VARINT) return read_varint(r, &f->value);
    if (f->wire == WIRE_64) return read_fixed(r, 8, &f->value);
    if (f->wire == WIRE_32) return read_fixed(r, 4, &f->value);
    if (f->wire != WIRE_BYTES || !read_varint(r, &f->value)) return false;
    if (f->value > r->n - r->at) return false;
    f->bytes = r->data + r->at;
    f->n = (size_t)f->value;
    r->at += f->n;
    return true;
}

static bool read_piece(const field *f, piece *out)
{
    reader r = {.data = f->bytes, .n = f->n};
    field inner;
    bool more;
    *out = (piece){.text = "", .type = NORMAL};
    while (next_field(&r, &inner, &more)) {
        if (!more) return true;
        if (inner.number == 1 && inner.wire == WIRE_BYTES) {
            out->text = (const char *)inner.bytes;
            out->n = inner.n;
        } else if (inner.number == 2 && inner.wire == WIRE_32) {
            uint32_t bits = (uint32_t)inner.value;
            memcpy(&out->score, &bits, sizeof bits);
        } else if (inner.number == 3 && inner.wire == WIRE_VARINT) {
            out->type = inner.value;
        }
    }
    return false;
}

static bool read_trainer(const field *f, spm_spec *spec)
{
    reader r = {.data = f->bytes, .n = f->n};
    field inner;
    bool more;
    while (next_field(&r, &inner, &more)) {
        if (!more) return true;
        if (inner.number == 44 && inner.wire == WIRE_BYTES) {
            spec->unk_surface = (const char *)inner.bytes;
            spec->n_unk_surface = inner.n;
        }
        if (inner.wire != WIRE_VARINT) continue;
        if (inner.number == 3) spec->model_type = inner.value;
        if (inner.number == 24) spec->space_as_suffix = inner.value != 0;
        if (inner.number == 35) spec->byte_fallback = inner.value != 0;
        if (inner.number == 40) spec->unk = (int32_t)(uint32_t)inner.value;
        if (inner.number == 41) spec->bos = (int32_t)(uint32_t)inner.value;
        if (inner.number == 42) spec->eos = (int32_t)(uint32_t)inner.value;
    }
    return false;
}

static bool read_normalizer(const field *f, spm_spec *spec)
{
    reader r = {.data = f->bytes, .n = f->n};
    field inner;
    bool more;
    while (next_field(&r, &inner, &more)) {
        if (!more) return true;
        if (inner.number == 2 && inner.wire == WIRE_BYTES) {
            spec->charsmap = inner.bytes;
            spec->n_charsmap = inner.n;
        }
        if (inner.wire != WIRE_VARINT) continue;
        if (inner.number == 3) spec->add_prefix = inner.value != 0;
        if (inner.number == 4) spec->merge_spaces = inner.value != 0;
        if (inner.number == 5) spec->escape = inner.value != 0;
    }
    return false;
}

/* First pass: the specifications, and how large the vocabulary is. */
static skv_status read_spec(const void *data, size_t n, const char *name, spm_spec *spec,
                            skv_error *err)
{
    reader r = {.data = data, .n = n};
    field f;
    piece p;
    bool more = true, good = true;
    *spec = (spm_spec){.model_type = UNIGRAM_MODEL,
                       .bos = 1,
                       .eos = 2,
                       .unk_surface = " \xe2\x81\x87 ", /* U+2047 */
                       .n_unk_surface = 5,
                       .add_prefix = true,
                       .merge_spaces = true,
                       .escape = true};
    while (good && (good = next_field(&r, &f, &more)) && more) {
        if (f.wire != WIRE_BYTES) continue;
        if (f.number == 1) {
            good = read_piece(&f, &p);
            spec->n_pieces++;
            spec->n_bytes += p.n;
        }
        if (f.number == 2) good = read_trainer(&f, spec);
        if (f.number == 3) good = read_normalizer(&f, spec);
    }
    SKV_REQUIRE(good, err, SKV_FORMAT, "%s: no SentencePiece model: bad field before byte %zu",
                name, r.at);
    SKV_REQUIRE(spec->n_pieces > 0, err, SKV_FORMAT, "%s: no SentencePiece model: no pieces", name);
    SKV_REQUIRE(spec->model_type == UNIGRAM_MODEL || spec->model_type == BPE_MODEL, err,
                SKV_UNSUPPORTED, "%s: SentencePiece model of type %llu", name,
                (unsigned long long)spec->model_type);
    return SKV_OK;
}

static unsigned flags_of(uint64_t type)
{
    switch (type) {
    case UNKNOWN: return SKV_TOKEN_UNKNOWN | SKV_TOKEN_SPECIAL | SKV_TOKEN_LITERAL;
    case CONTROL: return SKV_TOKEN_LITERAL | SKV_TOKEN_SPECIAL;
    case BYTE: return SKV_TOKEN_BYTE;
    case UNUSED: return SKV_TOKEN_UNUSED;
    default: return 0;
    }
}

static skv_status put_piece(skv_tokenizer *t, uint32_t id, const piece *p, skv_error *err)
{
    SKV_REQUIRE(p->n > 0, err, SKV_FORMAT, "%s: piece %u is empty", t->name, (unsigned)id);
    SKV_REQUIRE(p->type >= NORMAL && p->type <= BYTE, err, SKV_FORMAT, "%s: piece %u has type %llu",
                t->name, (unsigned)id, (unsigned long long)p->type);
    SKV_REQUIRE(!isnan(p->score), err, SKV_FORMAT, "%s: piece %u has no number as score", t->name,
                (unsigned)id);
    SKV_REQUIRE(p->type != UNUSED || t->model == SKV_MODEL_UNIGRAM, err, SKV_UNSUPPORTED,
                "%s: piece %u '%.*s' is of type unused", t->name, (unsigned)id,
                (int)skv_min_size(p->n, 64), p->text);
    SKV_REQUIRE(skv_vocab_find(&t->vocab, p->text, p->n) == SKV_NO_TOKEN, err, SKV_FORMAT,
                "%s: piece %u '%.*s' is there twice", t->name, (unsigned)id,
                (int)skv_min_size(p->n, 64), p->text);
    SKV_REQUIRE(skv_vocab_put(&t->vocab, id, p->text, p->n, flags_of(p->type)), err, SKV_FORMAT,
                "%s: piece %u does not fit", t->name, (unsigned)id);
    if (p->type == BYTE) {
        SKV_REQUIRE(skv_byte_token_value(p->text, p->n) >= 0, err, SKV_FORMAT,
                    "%s: byte piece %u is '%.*s'", t->name, (unsigned)id,
                    (int)skv_min_size(p->n, 64), p->text);
    }
    if (p->type == USER_DEFINED) {
        SKV_TRY(skv_trie_add(&t->spm.user_defined, p->text, p->n, id, err));
    }
    if (p->type == CONTROL) {
        skv_added_token token = {.id = id, .special = true};
        SKV_TRY(skv_added_put(&t->added, p->text, p->n, token, false, err));
    }
    return SKV_OK;
}

/* Second pass: the pieces, whose place is their id. */
static skv_status read_pieces(skv_tokenizer *t, const void *data, size_t n, float *scores,
                              skv_error *err)
{
    reader r = {.data = data, .n = n};
    field f;
    piece p;
    bool more;
    uint32_t id = 0;
    while (next_field(&r, &f, &more) && more) {
        if (f.number != 1 || f.wire != WIRE_BYTES || !read_piece(&f, &p)) continue;
        scores[id] = p.score;
        SKV_TRY(put_piece(t, id, &p, err));
        if (p.type == UNKNOWN) {
            SKV_REQUIRE(t->bpe.unk == SKV_NO_TOKEN, err, SKV_FORMAT,
                        "%s: pieces %u and %u are both the unknown one", t->name,
                        (unsigned)t->bpe.unk, (unsigned)id);
            t->bpe.unk = id;
        }
        id++;
    }
    SKV_REQUIRE(t->bpe.unk != SKV_NO_TOKEN, err, SKV_FORMAT, "%s: no unknown piece", t->name);
    return SKV_OK;
}

/* Scores as SentencePiece uses them: unknown far below the worst, user-defined above all that are
 * logarithms. */
static skv_status build_unigram(skv_tokenizer *t, float *scores, bool byte_fallback, skv_error *err)
{
    skv_unigram *model = &t->unigram;
    float lowest = INFINITY;
    double highest = USER_SCORE; /* from there on, as SentencePiece 0.2.3 */
    const unsigned left_out =
        SKV_TOKEN_UNKNOWN | SKV_TOKEN_LITERAL | SKV_TOKEN_BYTE | SKV_TOKEN_UNUSED;
    for (uint32_t id = 0; id < t->vocab.n_ids; id++) {
        size_t n, n_found;
        uint32_t value;
        const char *text = skv_vocab_text(&t->vocab, id, &n);
        if ((t->vocab.flags[id] & left_out) != 0) continue;
        SKV_TRY(skv_trie_add(&model->pieces, text, n, id, err));
        n_found = skv_trie_longest(&t->spm.user_defined, text, n, &value);
        if (n_found == n && value == id) continue;
        lowest = fminf(lowest, scores[id]);
        highest = fmax(highest, (double)scores[id]);
    }
    model->scores = scores;
    model->unk = t->bpe.unk;
    model->unk_score = lowest - 10.0f;
    model->byte_fallback = byte_fallback;
    skv_bpe_model_prepare(&t->bpe, &t->vocab);
    memcpy(model->byte_token, t->bpe.byte_token, sizeof model->byte_token);
    for (uint32_t id = 0; id < t->vocab.n_ids && t->spm.user_defined.n_strings > 0; id++) {
        size_t n;
        uint32_t value;
        const char *text = skv_vocab_text(&t->vocab, id, &n);
        if (skv_trie_longest(&t->spm.user_defined, text, n, &value) == n && value == id) {
            scores[id] = (float)((double)n * highest - USER_SCORE);
        }
    }
    return SKV_OK;
}

/* The id if it is a control piece, -1 otherwise. */
static int32_t control_id(const skv_tokenizer *t, int32_t id)
{
    bool good = id >= 0 && (uint32_t)id != t->bpe.unk && skv_vocab_has(&t->vocab, (uint32_t)id) &&
                (t->vocab.flags[id] & SKV_TOKEN_LITERAL) != 0;
    return good ? id : -1;
}

static skv_status build(skv_tokenizer *t, const void *data, size_t n, const spm_spec *spec,
                        skv_error *err)
{
    SKV_TRY(skv_vocab_init(&t->vocab, spec->n_pieces, spec->n_bytes, t->name, err));
    t->model = spec->model_type == BPE_MODEL ? SKV_MODEL_BPE : SKV_MODEL_UNIGRAM;
    t->spm.active = true;
    t->spm.add_prefix = spec->add_prefix;
    t->spm.merge_spaces = spec->merge_spaces;
    t->spm.escape = spec->escape;
    t->spm.space_as_suffix = spec->space_as_suffix;
    t->bpe.byte_fallback = spec->byte_fallback;
    t->bpe.fuse_unk = true;
    SKV_TRY(skv_charsmap_parse(&t->spm.charsmap, spec->charsmap, spec->n_charsmap, t->name, err));
    float *scores = skv_alloc_zero(spec->n_pieces, sizeof *scores);
    SKV_REQUIRE(scores, err, SKV_MEMORY, "%s: no memory", t->name);
    skv_status status = read_pieces(t, data, n, scores, err);
    if (status == SKV_OK && t->model == SKV_MODEL_BPE) {
        status = skv_spm_build_merges(t, scores, false, err);
    } else if (status == SKV_OK) {
        status = build_unigram(t, scores, spec->byte_fallback, err);
    }
    if (t->unigram.scores != scores) skv_free(scores);
    if (status != SKV_OK) return status;
    SKV_REQUIRE(skv_vocab_respell(&t->vocab, t->bpe.unk, spec->unk_surface, spec->n_unk_surface),
                err, SKV_MEMORY, "%s: no memory", t->name);
    t->bos = control_id(t, spec->bos);
    t->eos = control_id(t, spec->eos);
    t->prefix[0] = t->bos;
    t->n_prefix = t->bos >= 0 ? 1 : 0;
    return skv_spm_set_decoder(t, err);
}

skv_status skv_tokenizer_parse_spm(const void *data, size_t n, const char *name,
                                   skv_tokenizer **out, skv_error *err)
{
    spm_spec spec;
    skv_tokenizer *t = NULL;
    SKV_TRY(read_spec(data, n, name, &spec, err));
    SKV_TRY(skv_tokenizer_create(name, &t, err));
    skv_status status = build(t, data, n, &spec, err);
    if (status == SKV_OK)
        *out = t;
    else
        skv_tokenizer_free(t);
    return status;
}
