/*
 * The step of an engine. Every pass over the layers of one of its models begins with skv_step_pass,
 * whoever asks for it: ordinary steps, KV Prediction, pruning, prompts read layer by layer, and
 * rows that come back from a disk. It knows when to stop, what rows leave out and where the work is
 * counted, and names the one sink of every wanted row.
 */
#ifndef SKV_ENGINE_STEP_H
#define SKV_ENGINE_STEP_H

#include "model/forward.h"
#include "skv/skv.h"

/** A pass of an engine's model over spans that all run as `sequence` does, by its plan and with
 * what its rows leave out; NULL: by the engine's plan, and nothing is left out. `hook` may be NULL,
 * and `sink`: nothing is wanted. The caller says which spans, and what else is not the engine's
 * own. */
skv_pass skv_step_pass(skv_engine *engine, const skv_sequence *sequence, const skv_step_sink *sink,
                       const skv_hook *hook);

/** Tokens ids [n] from position `at` on of a sequence whose rows are not pruned, as a span. */
skv_pass_span skv_step_span(skv_sequence *sequence, const int32_t *ids, size_t n, size_t at);
/** What is wanted of a span, told as rows of span i_span from 0 on. */
void skv_step_want(skv_pass_span *span, skv_want want, size_t i_span);
/** Refuses ids outside the vocabulary. */
SKV_MUST_CHECK skv_status skv_engine_check_ids(const skv_engine *engine, const int32_t *ids,
                                               size_t n, skv_error *err);

/** Adds what the unmodified model takes for the last n tokens of a sequence. */
void skv_engine_count_model(skv_engine *engine, const skv_sequence *sequence, size_t n,
                            skv_want want);

/* ---- step.c ---- */

/** skv_step, with a sink. */
SKV_MUST_CHECK skv_status skv_engine_step(skv_engine *engine, const skv_span *spans, size_t n_spans,
                                          const skv_step_sink *sink, skv_error *err);

/* ---- read_prompt.c ---- */

/** skv_prompt with a sink for the last row in place of options->logits; NULL: nothing is wanted. */
SKV_MUST_CHECK skv_status skv_engine_prompt(skv_sequence *sequence, const int32_t *ids, size_t n,
                                            const skv_prompt_options *options,
                                            const skv_step_sink *sink, skv_error *err);

/* ---- prompt_layers.c ---- */

/** True when the n expected tokens do not fit into the store, and their sequence is one that can
 * read them layer by layer: empty, with rows by KV head that no other model predicts. */
bool skv_prompt_wants_layers(const skv_sequence *sequence, size_t n);
/** Reads the n expected tokens and evicts: the same rows, cache and logits, of the last token to
 * the sink (NULL: nobody wants them), as steps of step_tokens and skv_sequence_evict, to the bit;
 * of the options only the progress. On failure the sequence is empty. */
SKV_MUST_CHECK skv_status skv_prompt_by_layers(skv_sequence *sequence, const int32_t *ids, size_t n,
                                               const skv_step_sink *sink,
                                               const skv_prompt_options *options, skv_error *err);

#endif
