/*
 * The vocabulary: id -> text and text -> id. Texts are any bytes; ids may have gaps.
 */
#ifndef SKV_TEXT_TOKENIZER_VOCAB_H
#define SKV_TEXT_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/fail.h"

enum skv_token_flags {
    SKV_TOKEN_PRESENT = 1 << 0, /* the id is in use */
    SKV_TOKEN_SPECIAL = 1 << 1, /* left out of decoded text unless asked for */
    SKV_TOKEN_BYTE = 1 << 2,    /* <0xXX> of a SentencePiece vocabulary */
    SKV_TOKEN_UNKNOWN = 1 << 3, /* stands for text that the vocabulary cannot spell */
    SKV_TOKEN_LITERAL = 1 << 4, /* decoded as spelled: control, user-defined */
    SKV_TOKEN_UNUSED = 1 << 5,  /* SentencePiece: never produced */
    SKV_TOKEN_ADDED = 1 << 6,   /* no token of the model: only found as an added token */
    SKV_TOKEN_STRIPS = 1 << 7   /* an added token that takes white space beside it */
};

#define SKV_NO_TOKEN UINT32_MAX

struct skv_vocab_text {
    uint32_t start, length; /* in `bytes` */
};

struct skv_vocab_spelling {
    char *text; /* owned; NULL: the id's own text */
    size_t n;
};

typedef struct skv_vocab {
    char *bytes; /* owned; all texts */
    size_t n_bytes, bytes_capacity;
    struct skv_vocab_text *texts;         /* owned; [n_ids] */
    uint8_t *flags;                       /* owned; [n_ids] skv_token_flags, 0 for a gap */
    struct skv_vocab_spelling *spellings; /* owned; [n_ids]; NULL: every text is its own */
    size_t n_ids;
    uint64_t *slots; /* owned; [mask + 1] high half of the hash, id + 1; 0: empty */
    size_t mask;
} skv_vocab;

/** Room for the ids below n_ids and texts of n_bytes in all; both are checked against limits. */
SKV_MUST_CHECK skv_status skv_vocab_init(skv_vocab *v, size_t n_ids, size_t n_bytes,
                                         const char *name, skv_error *err);
void skv_vocab_release(skv_vocab *v);
/**
 * Sets the text of an id that has none. False when the id or the text is taken, the id is out of
 * range, or the bytes do not fit.
 */
bool skv_vocab_put(skv_vocab *v, uint32_t id, const char *text, size_t n, unsigned flags);
/** Sets the text that the id decodes to, if it differs from its own; false when out of memory. */
SKV_MUST_CHECK bool skv_vocab_respell(skv_vocab *v, uint32_t id, const char *text, size_t n);
/** The text to decode. */
const char *skv_vocab_spelling(const skv_vocab *v, uint32_t id, size_t *n);
/** The id of a text, SKV_NO_TOKEN when there is none. */
uint32_t skv_vocab_find(const skv_vocab *v, const char *text, size_t n);

static inline bool skv_vocab_has(const skv_vocab *v, uint32_t id)
{
    return id < v->n_ids && (v->flags[id] & SKV_TOKEN_PRESENT) != 0;
}

static inline const char *skv_vocab_text(const skv_vocab *v, uint32_t id, size_t *n)
{
    *n = v->texts[id].length;
    return v->bytes + v->texts[id].start;
}

/** Mixes text[0..n) to 64 bits: multiply and fold, 8 bytes at a time. */
static inline uint64_t skv_hash_text(const char *text, size_t n)
{
    uint64_t hash = 0x9e3779b97f4a7c15u ^ n;
    uint64_t word;
    for (; n >= 8; text += 8, n -= 8) {
        memcpy(&word, text, 8);
        hash = (hash ^ word) * 0xbf58476d1ce4e5b9u;
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, text, n);
    hash = (hash ^ word) * 0x94d049bb133111ebu;
    return hash ^ hash >> 29;
}

/** The value of "<0xXX>" with two hexadecimal digits, -1 for any other text. */
int skv_byte_token_value(const char *text, size_t n);

#endif
