/* The BPE model: derives its tables from the vocabulary and merges, then turns words into ids. */
#include "text/tokenizer_word.h"

#include <string.h>

#include "base/budget_mem.h"
#include "base/mem.h"
#include "base/size.h"
#include "base/utf8.h"
#include "text/pretokenize.h"

enum {
    CACHED_BYTES = 23, /* the longest word that is cached */
    CACHED_IDS = 9,
    CACHE_TEXT_MIN = 2048, /* shorter texts do without */
    CACHE_SLOTS_MAX = 1 << 14,
    WHOLE_WORD_MAX = 1024, /* bytes; published byte-level tokens have at most 256 */
    SYMBOLS_A_CHAR = 5,    /* at most: its byte tokens, after the token of an unknown run */
    WINDOW_MIN = 1 << 16,  /* symbols; shorter words are merged as a whole */
    LOOK_BYTES = 1 << 16,  /* of stretches, about a millisecond */
    BYTES_A_UNIT = 4
};

/* Raw symbols: a code point, or a byte that is no UTF-8. Never in the pair table. */
#define RAW_CODE 0x80000000u
#define RAW_BYTE 0xc0000000u

/* 64 bytes, one line of the cache. */
struct skv_cached_word {
    uint64_t key[3]; /* the word, zero padded; its length in the last byte, never 0 */
    uint32_t ids[CACHED_IDS];
    uint32_t n;
};

void skv_bpe_model_release(skv_bpe_model *model)
{
    skv_bpe_release(&model->merges);
    skv_free(model->virtual_codes);
    *model = (skv_bpe_model){0};
}

static void find_byte_tokens(skv_bpe_model *model, const skv_vocab *vocab)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t b = 0; b < 256; b++) {
        char text[6] = {'<', '0', 'x', hex[b >> 4], hex[b & 15], '>'}, alphabet[4];
        size_t n = skv_utf8_encode(skv_alphabet_char((unsigned char)b), alphabet);
        model->byte_token[b] = skv_vocab_find(vocab, text, sizeof text);
        model->byte_symbol[b] = skv_vocab_find(vocab, alphabet, n);
        char byte = (char)b;
        if (b < 128) model->ascii[b] = skv_vocab_find(vocab, &byte, 1);
    }
}

/* The class in `cut` of a symbol's first (or last) character; -1: none of them. */
static int edge_class(const skv_bpe_model *model, const skv_vocab *vocab, uint32_t symbol,
                      bool last)
{
    if (symbol >= vocab->n_ids) {
        uint32_t code = model->virtual_codes[symbol - vocab->n_ids];
        return code < 128 ? (int)code : code == 0x2581 ? 128 : -1;
    }
    size_t n;
    const char *text = skv_vocab_text(vocab, symbol, &n);
    if (n == 0) return -1;
    unsigned char byte = (unsigned char)text[last ? n - 1 : 0];
    if (byte < 128) return byte;
    if (n < 3) return -1;
    return memcmp(last ? text + n - 3 : text, "\xe2\x96\x81", 3) == 0 ? 128 : -1;
}

/* A merge of these would be found by id although the text does not spell the token. */
static bool is_stand_in(const skv_bpe_model *model, const skv_vocab *vocab, uint32_t symbol)
{
    if (model->late_unknown || symbol >= vocab->n_ids) return false;
    size_t n;
    const char *text = skv_vocab_text(vocab, symbol, &n);
    return symbol == model->unk || skv_byte_token_value(text, n) >= 0;
}

static bool is_known(const skv_bpe_model *model, const skv_vocab *vocab, size_t class)
{
    if (class < 128) return model->ascii[class] != SKV_NO_TOKEN;
    return skv_vocab_find(vocab, "\xe2\x96\x81", 3) != SKV_NO_TOKEN;
}

/* Cuts are safe between known characters (an unknown one may fuse with its neighbour). */
static void find_cuts(skv_bpe_model *model, const skv_vocab *vocab)
{
    bool known[SKV_CUT_CLASSES];
    for (size_t a = 0; a < SKV_CUT_CLASSES; a++) known[a] = is_known(model, vocab, a);
    for (size_t a = 0; a < SKV_CUT_CLASSES; a++) {
        for (size_t b = 0; b < SKV_CUT_CLASSES; b++) model->cut[a][b] = known[a] && known[b];
    }
    for (size_t i = 0; i <= model->merges.mask; i++) {
        const skv_bpe_pair *pair = &model->merges.pairs[i];
        if (pair->id == SKV_BPE_NONE) continue;
        uint32_t left = (uint32_t)(pair->key >> 32), right = (uint32_t)pair->key;
        if (is_stand_in(model, vocab, left) || is_stand_in(model, vocab, right)) return;
        int a = edge_class(model, vocab, left, true), b = edge_class(model, vocab, right, false);
        if (a >= 0 && b >= 0) model->cut[a][b] = 0;
    }
    model->can_cut = true;
}

/* A token's symbols are not more than its bytes. Without memory words are merged as a whole. */
static void find_margin(skv_bpe_model *model, const skv_vocab *vocab)
{
    const size_t n = vocab->n_ids;
    uint32_t *lengths = skv_alloc(2 * n + 1, sizeof *lengths);
    for (size_t id = 0; lengths && id < n; id++) lengths[id] = vocab->texts[id].length;
    if (lengths) skv_bpe_find_margin(&model->merges, lengths, lengths + n, n);
    skv_free(lengths);
}

void skv_bpe_model_prepare(skv_bpe_model *model, const skv_vocab *vocab)
{
    find_byte_tokens(model, vocab);
    if (!model->merges.pairs) return;
    if (!model->byte_level) find_cuts(model, vocab);
    find_margin(model, vocab);
}

/* Without a cache it is only slower. */
static void make_cache(skv_word_work *work, size_t n_slots)
{
    const size_t n_bytes = n_slots * sizeof *work->cache;
    if (work->budget && !skv_budget_try(work->budget, n_bytes)) return;
    work->cache = skv_alloc_aligned(n_slots, sizeof *work->cache);
    if (!work->cache) {
        if (work->budget) skv_budget_give(work->budget, n_bytes);
        return;
    }
    memset(work->cache, 0, n_bytes);
    work->cache_mask = n_slots - 1;
}

void skv_word_work_init(skv_word_work *work, const skv_bpe_model *model, const skv_vocab *vocab,
                        size_t n_text, skv_budget *budget, skv_ids *out)
{
    *work = (skv_word_work){
        .model = model, .vocab = vocab, .bpe = {.budget = budget}, .budget = budget, .out = out};
    if (n_text < CACHE_TEXT_MIN) return;
    size_t n_slots = 256;
    while (n_slots < n_text / 32 && n_slots < CACHE_SLOTS_MAX) n_slots *= 2;
    make_cache(work, n_slots);
}

void skv_word_work_release(skv_word_work *work)
{
    skv_bpe_work_release(&work->bpe);
    skv_budget_free(work->budget, work->ahead, work->n_ahead, sizeof *work->ahead);
    skv_budget_free(work->budget, work->cache, work->cache_mask + 1, sizeof *work->cache);
    work->ahead = NULL;
    work->cache = NULL;
}

static skv_status no_memory(const skv_word_work *work, size_t n, skv_error *err)
{
    if (work->budget) SKV_TRY(skv_budget_check(work->budget, "tokenizing", err));
    return skv_fail(err, SKV_MEMORY, "no memory for a word of %zu bytes", n);
}

/* Up to 8 bytes as one number, without reading past them. */
static inline uint64_t load_up_to_8(const char *text, size_t n)
{
    uint64_t word = 0;
    if (n >= 8) {
        memcpy(&word, text, 8);
    } else if (n >= 4) {
        uint32_t low, high;
        memcpy(&low, text, 4);
        memcpy(&high, text + n - 4, 4);
        word = low | (uint64_t)high << (n - 4) * 8;
    } else if (n > 0) {
        word = (unsigned char)text[0] | (uint64_t)(unsigned char)text[n / 2] << n / 2 * 8 |
               (uint64_t)(unsigned char)text[n - 1] << (n - 1) * 8;
    }
    return word;
}

static struct skv_cached_word *cache_slot(const skv_word_work *work, const char *word, size_t n,
                                          uint64_t key[3])
{
    key[0] = load_up_to_8(word, n);
    key[1] = n > 8 ? load_up_to_8(word + 8, n - 8) : 0;
    key[2] = (n > 16 ? load_up_to_8(word + 16, n - 16) : 0) | (uint64_t)n << 56;
    uint64_t hash = (key[0] ^ key[2] * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ key[1] ^ hash >> 32) * 0x94d049bb133111ebu;
    return &work->cache[(hash >> 32) & work->cache_mask];
}

static skv_status append(skv_word_work *work, const uint32_t *ids, size_t n, skv_error *err)
{
    skv_ids *out = work->out;
    if (out->capacity - out->n < n || (out->max > 0 && out->max - out->n < n)) {
        for (size_t i = 0; i < n; i++) SKV_TRY(skv_ids_push(out, (int32_t)ids[i], err));
        return SKV_OK;
    }
    for (size_t i = 0; i < n; i++) out->data[out->n + i] = (int32_t)ids[i];
    out->n += n;
    return SKV_OK;
}

static uint32_t virtual_symbol(const skv_word_work *work, uint32_t code)
{
    size_t low = 0, high = work->model->n_virtual;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (work->model->virtual_codes[middle] < code)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < work->model->n_virtual && work->model->virtual_codes[low] == code;
    return found ? (uint32_t)(work->vocab->n_ids + low) : RAW_CODE | code;
}

/* The model's token of this spelling: added tokens are not the model's. */
static uint32_t find_token(const skv_word_work *work, const char *text, size_t n)
{
    uint32_t id = skv_vocab_find(work->vocab, text, n);
    bool added = id != SKV_NO_TOKEN && (work->vocab->flags[id] & SKV_TOKEN_ADDED) != 0;
    return added ? SKV_NO_TOKEN : id;
}

/* The symbol of the character text[0..n), SKV_NO_TOKEN or a raw symbol when it is no token. */
static uint32_t char_symbol(const skv_word_work *work, const char *text, size_t n, uint32_t code)
{
    if (n == 1 && (unsigned char)text[0] < 0x80) {
        uint32_t symbol = work->model->ascii[(unsigned char)text[0]];
        if (symbol != SKV_NO_TOKEN || !work->model->late_unknown) return symbol;
        return virtual_symbol(work, code);
    }
    if (code == SKV_UTF8_BAD) {
        return work->model->late_unknown ? RAW_BYTE | (unsigned char)text[0] : SKV_NO_TOKEN;
    }
    uint32_t symbol = find_token(work, text, n);
    if (symbol != SKV_NO_TOKEN || !work->model->late_unknown) return symbol;
    return virtual_symbol(work, code);
}

static bool has_byte_tokens(const skv_bpe_model *model, const char *text, size_t n)
{
    if (!model->byte_fallback) return false;
    for (size_t i = 0; i < n; i++) {
        if (model->byte_token[(unsigned char)text[i]] == SKV_NO_TOKEN) return false;
    }
    return true;
}

/* A word on its way to symbols. */
typedef struct word_reader {
    const char *word;
    size_t n, at;
    bool unknown; /* an unknown run is not written yet */
} word_reader;

/*
 * Turns characters into symbols. An unknown run is written at the next known character: byte tokens
 * in between precede it, as in the original.
 */
static size_t char_symbols(const skv_word_work *work, word_reader *r, uint32_t *symbols,
                           size_t room)
{
    const skv_bpe_model *model = work->model;
    bool unknown = r->unknown;
    size_t used = 0, length;
    for (; r->at < r->n && used + SYMBOLS_A_CHAR <= room; r->at += length) {
        uint32_t code;
        const char *word = r->word + r->at;
        length = skv_utf8_decode(word, r->n - r->at, &code);
        if (code == SKV_UTF8_BAD) length = 1;
        uint32_t symbol = char_symbol(work, word, length, code);
        if (symbol != SKV_NO_TOKEN) {
            if (unknown) symbols[used++] = model->unk;
            unknown = false;
            symbols[used++] = symbol;
        } else if (has_byte_tokens(model, word, length)) {
            for (size_t k = 0; k < length; k++) {
                symbols[used++] = model->byte_token[(unsigned char)word[k]];
            }
        } else if (model->unk != SKV_NO_TOKEN) {
            if (unknown && !model->fuse_unk) symbols[used++] = model->unk;
            unknown = true;
        }
    }
    r->unknown = unknown;
    return used;
}

static size_t byte_symbols(const skv_bpe_model *model, word_reader *r, uint32_t *symbols,
                           size_t room)
{
    size_t used = 0;
    bool unknown = r->unknown;
    for (; r->at < r->n && used + SYMBOLS_A_CHAR <= room; r->at++) {
        unsigned char byte = (unsigned char)r->word[r->at];
        uint32_t symbol = model->byte_symbol[byte];
        if (symbol != SKV_NO_TOKEN) {
            if (unknown) symbols[used++] = model->unk;
            unknown = false;
            symbols[used++] = symbol;
        } else if (model->late_unknown) {
            symbols[used++] = RAW_BYTE | byte;
        } else if (model->unk != SKV_NO_TOKEN) {
            if (unknown && !model->fuse_unk) symbols[used++] = model->unk;
            unknown = true;
        }
    }
    r->unknown = unknown;
    return used;
}

/* As many symbols of the word as there is room for; at its end all of them. */
static size_t read_symbols(const skv_word_work *work, word_reader *r, uint32_t *symbols,
                           size_t room)
{
    const skv_bpe_model *model = work->model;
    size_t used = model->byte_level ? byte_symbols(model, r, symbols, room)
                                    : char_symbols(work, r, symbols, room);
    if (r->at < r->n || !r->unknown) return used;
    symbols[used++] = model->unk;
    r->unknown = false;
    return used;
}

/* Writes symbols that are not tokens: as byte tokens, or as one unknown token for a run of them;
 * *unknown is set while such a run continues. */
static skv_status write_late(skv_word_work *work, const uint32_t *symbols, size_t n, bool *unknown,
                             skv_error *err)
{
    const skv_bpe_model *model = work->model;
    for (size_t i = 0; i < n; i++) {
        uint32_t symbol = symbols[i], ids[4];
        char bytes[4];
        size_t length;
        if (symbol < work->vocab->n_ids) {
            SKV_TRY(append(work, &symbol, 1, err));
            *unknown = false;
            continue;
        }
        if (symbol >= RAW_BYTE) {
            bytes[0] = (char)(symbol & 0xff);
            length = 1;
        } else {
            uint32_t code = symbol >= RAW_CODE ? symbol & ~RAW_CODE
                                               : model->virtual_codes[symbol - work->vocab->n_ids];
            length = skv_utf8_encode(code, bytes);
        }
        if (has_byte_tokens(model, bytes, length)) {
            for (size_t k = 0; k < length; k++) ids[k] = model->byte_token[(unsigned char)bytes[k]];
            SKV_TRY(append(work, ids, length, err));
            *unknown = false;
            continue;
        }
        if (model->unk != SKV_NO_TOKEN && !(*unknown && model->fuse_unk)) {
            SKV_TRY(append(work, &model->unk, 1, err));
        }
        *unknown = true;
    }
    return SKV_OK;
}

/* A special token is never a word. */
static uint32_t find_word(const skv_word_work *work, const char *text, size_t n)
{
    uint32_t id = find_token(work, text, n);
    bool special = id != SKV_NO_TOKEN && (work->vocab->flags[id] & SKV_TOKEN_SPECIAL) != 0;
    return special ? SKV_NO_TOKEN : id;
}

/* The token that the whole word spells, for models that ignore merges then. */
static uint32_t whole_word(const skv_word_work *work, const char *word, size_t n)
{
    if (!work->model->byte_level) return find_word(work, word, n);
    char text[2 * WHOLE_WORD_MAX];
    size_t used = 0;
    if (n > WHOLE_WORD_MAX) return SKV_NO_TOKEN;
    for (size_t i = 0; i < n; i++) {
        used += skv_utf8_encode(skv_alphabet_char((unsigned char)word[i]), text + used);
    }
    return find_word(work, text, used);
}

/* Writes merged symbols. */
static skv_status write_symbols(skv_word_work *work, size_t n, bool *unknown, skv_error *err)
{
    if (work->model->late_unknown) return write_late(work, work->bpe.symbols, n, unknown, err);
    return append(work, work->bpe.symbols, n, err);
}

/*
 * Merges a very long word window by window. From each window it writes the symbols that later text
 * cannot change, and reads the others again with the next window. A word that is cut at a boundary
 * between its symbols yields the same symbols, since no merge crosses a boundary.
 */
static skv_status merge_windows(skv_word_work *work, word_reader *r, size_t window, skv_error *err)
{
    const skv_bpe *merges = &work->model->merges;
    const size_t room = window + 2 * SYMBOLS_A_CHAR;
    bool unknown = false;
    size_t n = 0;
    if (!skv_bpe_reserve(&work->bpe, room)) return no_memory(work, r->n, err);
    if (!work->ahead) work->ahead = skv_budget_alloc_zero(work->budget, room, sizeof *work->ahead);
    if (!work->ahead) return no_memory(work, r->n, err);
    work->n_ahead = room;
    while (r->at < r->n || n > 0) {
        n += read_symbols(work, r, work->ahead + n, room - n);
        size_t n_ids = n, n_taken = n;
        memcpy(work->bpe.symbols, work->ahead, n * sizeof *work->ahead);
        bool ok = r->at == r->n ? skv_bpe_merge(merges, &work->bpe, &n_ids)
                                : skv_bpe_merge_front(merges, &work->bpe, &n_ids, &n_taken);
        if (!ok) return no_memory(work, r->n, err);
        SKV_TRY(write_symbols(work, n_ids, &unknown, err));
        n -= n_taken;
        memmove(work->ahead, work->ahead + n_taken, n * sizeof *work->ahead);
    }
    return SKV_OK;
}

static skv_status merge_word(skv_word_work *work, const char *word, size_t n, skv_error *err)
{
    const skv_bpe_model *model = work->model;
    word_reader r = {.word = word, .n = n};
    if (model->ignore_merges && !model->can_cut) {
        uint32_t id = whole_word(work, word, n);
        if (id != SKV_NO_TOKEN) return append(work, &id, 1, err);
    }
    const size_t margin = model->merges.margin, window = skv_max_size(2 * margin, WINDOW_MIN);
    if (margin > 0 && n > window) return merge_windows(work, &r, window, err);
    const size_t room = n + 2 * SYMBOLS_A_CHAR;
    if (!skv_bpe_reserve(&work->bpe, room)) return no_memory(work, n, err);
    size_t used = read_symbols(work, &r, work->bpe.symbols, room);
    bool unknown = false;
    if (!skv_bpe_merge(&model->merges, &work->bpe, &used)) return no_memory(work, n, err);
    return write_symbols(work, used, &unknown, err);
}

/* A stretch of text that no merge leaves, through the cache if it is short. */
static skv_status encode_stretch(skv_word_work *work, const char *word, size_t n, skv_error *err)
{
    if (!work->cache || n > CACHED_BYTES) return merge_word(work, word, n, err);
    uint64_t key[3];
    struct skv_cached_word *slot = cache_slot(work, word, n, key);
    if (slot->key[0] == key[0] && slot->key[1] == key[1] && slot->key[2] == key[2]) {
        return append(work, slot->ids, slot->n, err);
    }
    size_t before = work->out->n;
    SKV_TRY(merge_word(work, word, n, err));
    size_t made = work->out->n - before;
    if (made > CACHED_IDS) return SKV_OK;
    memcpy(slot->key, key, sizeof key);
    slot->n = (uint32_t)made;
    for (size_t i = 0; i < made; i++) slot->ids[i] = (uint32_t)work->out->data[before + i];
    return SKV_OK;
}

/* The class of the character at word[at] for `cut`, -1: not one of them. */
static inline int cut_class(const char *word, size_t n, size_t at, size_t *length)
{
    unsigned char byte = (unsigned char)word[at];
    *length = 1;
    if (byte < 0x80) return byte;
    if (byte == 0xe2 && n - at >= 3 && memcmp(word + at, "\xe2\x96\x81", 3) == 0) {
        *length = 3;
        return 128;
    }
    return -1;
}

static skv_status encode_by_stretches(skv_word_work *work, const char *word, size_t n,
                                      skv_error *err)
{
    size_t start = 0, looked = 0, length;
    int before = -1;
    for (size_t at = 0; at < n; at += length) {
        int class = cut_class(word, n, at, &length);
        if (at - looked >= LOOK_BYTES) {
            if (!skv_budget_look(work->budget)) return no_memory(work, n, err);
            looked = at;
        }
        if (before >= 0 && class >= 0 && work->model->cut[before][class] != 0) {
            SKV_TRY(encode_stretch(work, word + start, at - start, err));
            start = at;
        }
        before = class;
    }
    return encode_stretch(work, word + start, n - start, err);
}

static bool only_newlines(const char *word, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (word[i] != '\n') return false;
    }
    return true;
}

skv_status skv_encode_word(skv_word_work *work, const char *word, size_t n, skv_error *err)
{
    if (n == 0) return SKV_OK;
    if (work->budget && !skv_budget_work(work->budget, 1 + n / BYTES_A_UNIT))
        return no_memory(work, n, err);
    if (work->model->whole_newlines && word[0] == '\n') {
        const uint32_t id = only_newlines(word, n) ? whole_word(work, word, n) : SKV_NO_TOKEN;
        if (id != SKV_NO_TOKEN) return append(work, &id, 1, err);
    }
    if (!work->model->can_cut) return encode_stretch(work, word, n, err);
    if (work->model->ignore_merges) {
        uint32_t id = whole_word(work, word, n);
        if (id != SKV_NO_TOKEN) return append(work, &id, 1, err);
    }
    return encode_by_stretches(work, word, n, err);
}
