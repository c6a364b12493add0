/**
 * Constrained decoding: generation that must follow a grammar.
 *
 *   skv_grammar      a compiled grammar: JSON, a JSON schema, a regular expression, rules in the
 *                    GBNF notation, or a list of choices. Immutable; threads share it freely.
 *   skv_token_table  the bytes of every token of a vocabulary, as a trie. Immutable and shared.
 *   skv_matcher      the state of one answer in a grammar: determines which tokens may come next.
 *
 * A matcher and its copies share caches and belong to one thread at a time. For many answers under
 * one grammar, keep an unused matcher and copy it: its caches stay warm.
 *
 * docs/reference/grammar.md describes the supported syntax of each kind, and the limits.
 */
#ifndef SKV_GRAMMAR_H
#define SKV_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/api.h"
#include "skv/budget.h"
#include "skv/error.h"
#include "skv/text.h"

SKV_BEGIN

typedef struct skv_grammar skv_grammar;
typedef struct skv_token_table skv_token_table;
typedef struct skv_matcher skv_matcher;

typedef enum skv_grammar_kind {
    SKV_GRAMMAR_JSON_OBJECT, /* any JSON object; the text is not looked at */
    SKV_GRAMMAR_JSON_SCHEMA, /* the text is a JSON schema */
    SKV_GRAMMAR_REGEX,       /* a regular expression for the whole answer */
    SKV_GRAMMAR_GBNF,        /* rules, "root" first of all */
    SKV_GRAMMAR_CHOICE,      /* a JSON array of strings, one of which is the answer */
    SKV_GRAMMAR_PARTS        /* texts and JSON schemas put together: docs/reference/grammar.md */
} skv_grammar_kind;

/* Bytes of the text of a grammar. */
#define SKV_GRAMMAR_TEXT_MAX ((size_t)256 << 10)
/* Tokens that a matcher can take back. */
#define SKV_MATCHER_ROLLBACK_MAX 256

/* ---- grammars ---- */

/**
 * Compiles text[0..n) within a budget; NULL selects the default limits. The error names the cause
 * and its position: an unsupported keyword (SKV_UNSUPPORTED), a mistake (SKV_FORMAT), or a limit
 * (SKV_RANGE). Budget errors are those of skv_budget_check. On return the budget counts no memory
 * for this call; skv_grammar_bytes returns the size of the grammar. The call needs little stack for
 * any text.
 */
SKV_CHECKED skv_status skv_grammar_compile(skv_grammar_kind kind, const char *text, size_t n,
                                           skv_budget *budget, skv_grammar **out, skv_error *err);
/* A grammar that applies after a prefix, which `lead` describes. */
typedef struct skv_grammar_source {
    skv_grammar_kind kind;
    skv_text_piece text;
    skv_text_piece lead; /* of the kind SKV_GRAMMAR_PARTS; NULL: no prefix */
} skv_grammar_source;
/** As skv_grammar_compile, for answers that begin with a match of `lead`. */
SKV_CHECKED skv_status skv_grammar_compile_behind(const skv_grammar_source *source,
                                                  skv_budget *budget, skv_grammar **out,
                                                  skv_error *err);
/** Frees it; its matchers must have been freed. NULL is allowed. */
SKV_API void skv_grammar_free(skv_grammar *grammar);
/** Returns the size of the compiled grammar, in bytes. */
SKV_API size_t skv_grammar_bytes(const skv_grammar *grammar);

/* ---- vocabularies ---- */

/**
 * The tokens of a vocabulary; needs it only during the call. ids[0..n_ids): those that end an
 * answer, besides the vocabulary's own. They are allowed exactly where the grammar may end; other
 * special tokens only where a part names them (SKV_GRAMMAR_PARTS).
 */
SKV_CHECKED skv_status skv_token_table_create(const skv_vocab *vocab, const int32_t *ids,
                                              size_t n_ids, skv_token_table **out, skv_error *err);
/** Frees it; its matchers must have been freed. NULL is allowed. */
SKV_API void skv_token_table_free(skv_token_table *table);

/* ---- matchers ---- */

/**
 * Creates a matcher. Borrows all three arguments until the matcher is freed. table: NULL: only
 * bytes can be matched. account: counts the memory of the matcher and its copies; NULL: not
 * counted. If the account is full, a call works without its caches; it fails with SKV_MEMORY if
 * that is not enough.
 */
SKV_CHECKED skv_status skv_matcher_create(const skv_grammar *grammar, const skv_token_table *table,
                                          skv_account *account, skv_matcher **out, skv_error *err);
/** Copies a matcher with its position, its history and a finished mask. The copy is independent. */
SKV_CHECKED skv_status skv_matcher_copy(const skv_matcher *matcher, skv_matcher **out,
                                        skv_error *err);
SKV_API void skv_matcher_free(skv_matcher *matcher);
/** Returns the memory of a matcher and all its copies, in bytes. */
SKV_API size_t skv_matcher_bytes(const skv_matcher *matcher);
/** Frees the caches of the matcher and of all its copies. */
SKV_API void skv_matcher_shrink(skv_matcher *matcher);

/**
 * Sets bit id % 32 of bits[id / 32] for each token that may come next and clears all others; n_bits
 * is the number of logits, rounded up to whole words for `bits`. No bit is set if the grammar has
 * ended and the vocabulary has no token that ends an answer. Fails with SKV_FULL, naming the limit
 * that allows no token, or with SKV_RANGE for the limit on work.
 */
SKV_CHECKED skv_status skv_matcher_mask(skv_matcher *matcher, uint32_t *bits, size_t n_bits,
                                        skv_error *err);
/**
 * Computes the same mask in pieces: works until the budget is used up, and counts the work there.
 * *ready is true once the mask is finished; otherwise call again with a new budget. One step of the
 * grammar, a few milliseconds, may exceed the budget. Limiting the work for the whole mask is up to
 * the caller.
 */
SKV_CHECKED skv_status skv_matcher_prepare(skv_matcher *matcher, skv_budget *budget, bool *ready,
                                           skv_error *err);
/** Applies a finished mask: sets the logits [n] of all tokens that may not come next to minus
 * infinity. Returns false if no token may. */
SKV_API bool skv_matcher_mask_logits(const skv_matcher *matcher, float *logits, size_t n);
/** Returns a finished mask, as bits of n tokens, until the matcher changes. NULL: its table has
 * fewer. */
SKV_API const uint32_t *skv_matcher_mask_bits(const skv_matcher *matcher, size_t n);
/** Makes the logits [n] of all tokens that have no bit minus infinity. */
SKV_API void skv_mask_logits(const uint32_t *bits, float *logits, size_t n);

/**
 * Goes on by a token or by bytes; SKV_ARGUMENT, and nothing changes, where they do not fit. With a
 * budget a token is read in pieces, as skv_matcher_prepare does: if *done is false, call again with
 * the same token. The matcher moves when it is done. Without a budget (NULL) it always is, and done
 * may be NULL.
 */
SKV_CHECKED skv_status skv_matcher_accept(skv_matcher *matcher, int32_t id, skv_budget *budget,
                                          bool *done, skv_error *err);
SKV_CHECKED skv_status skv_matcher_accept_bytes(skv_matcher *matcher, const char *bytes, size_t n,
                                                skv_error *err);
/** True when the answer may end here. */
SKV_API bool skv_matcher_is_complete(const skv_matcher *matcher);
/** True when it has ended: by an ending token, or since nothing can follow. */
SKV_API bool skv_matcher_is_finished(const skv_matcher *matcher);
/** Takes back the last n calls of accept and accept_bytes; false when there were fewer, or n is
 * more than SKV_MATCHER_ROLLBACK_MAX. */
SKV_CHECKED bool skv_matcher_rollback(skv_matcher *matcher, size_t n);
/**
 * Writes the bytes that the grammar forces next to out[0..max) and returns their number; the
 * matcher does not move. They may end inside a UTF-8 character. The work is bounded: if finding
 * them takes too long, fewer are written.
 */
SKV_API size_t skv_matcher_forced(skv_matcher *matcher, char *out, size_t max);

SKV_END

#endif
