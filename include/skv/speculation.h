/**
 * Speculation: a source drafts the tokens that may come next, and one step checks all of them. A
 * step reads every weight once, however few tokens it runs, so drafts that are right are nearly
 * free as long as memory bandwidth is the bottleneck.
 *
 * Answers do not change. Each drafted token is compared with the token sampled from the preceding
 * logits, using the same sampler, constraint and random numbers as without drafts. The first
 * mismatch ends the draft, and the sequence is truncated after the last accepted token.
 */
#ifndef SKV_SPECULATION_H
#define SKV_SPECULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "skv/api.h"
#include "skv/error.h"

SKV_BEGIN

typedef enum skv_drafting {
    SKV_DRAFT_NONE,
    SKV_DRAFT_TEXT,  /* the continuation of an earlier occurrence of the last tokens */
    SKV_DRAFT_SELF,  /* the exit head of a SwiftKV model, before its deep layers */
    SKV_DRAFT_AUX,   /* the auxiliary of a KV Prediction model, which has read the prompt */
    SKV_DRAFT_MODEL, /* skv_engine_options.draft_model */
    SKV_DRAFT_MTP,   /* the model's own head for further tokens, of Qwen 3.5 and Qwen3-Next; loaded
                      * by skv_engine_options.mtp */
    /* TEXT if it finds a draft, else the other source. Drafts are counted for the source that made
     * them. */
    SKV_DRAFT_TEXT_SELF,
    SKV_DRAFT_TEXT_AUX,
    SKV_DRAFT_TEXT_MODEL,
    SKV_DRAFT_TEXT_MTP,
    SKV_DRAFT_AUTO, /* the available sources, as long as they save time; possibly none */
    SKV_DRAFT_COUNT
} skv_drafting;

enum {
    SKV_DRAFT_SOURCES = SKV_DRAFT_TEXT_SELF, /* values that are one source, and NONE */
    SKV_DRAFT_MAX = 31,                      /* most tokens of a draft */
    SKV_SPECULATION_TEXT = 48
};

typedef struct skv_speculation {
    skv_drafting source;
    size_t most; /* K: tokens of a draft; 1..SKV_DRAFT_MAX */
    double sure; /* P: a draft ends before a token less probable than this; 0..1, 0 for TEXT */
} skv_speculation;

/* Tokens of one source that were checked, and that were right. */
typedef struct skv_draft_counts {
    uint64_t drafted, accepted;
} skv_draft_counts;

/** Parses "SOURCE[:K]" or "SOURCE[:K,P]", or "none"; only sources with a model take P. Fails with
 * SKV_ARGUMENT; the message names the faulty part. */
SKV_CHECKED skv_status skv_speculation_parse(const char *text, skv_speculation *out,
                                             skv_error *err);
/** Checks options that were not made by skv_speculation_parse. */
SKV_CHECKED skv_status skv_speculation_check(const skv_speculation *how, skv_error *err);
/** Writes all options in the form that skv_speculation_parse reads. */
SKV_API void skv_speculation_print(const skv_speculation *how, char out[SKV_SPECULATION_TEXT]);
/** Returns a source's name, or NULL for NONE and values out of range. */
SKV_API const char *skv_drafting_name(skv_drafting source);

SKV_END

#endif
