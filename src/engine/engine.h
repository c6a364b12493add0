/* The engine's own state, shared by the files of src/engine. */
#ifndef SKV_ENGINE_H
#define SKV_ENGINE_H

#include <stdatomic.h>

#include "drafts/draft.h"
#include "engine/engine_device.h"
#include "format/source.h"
#include "kv/kv_cache.h"
#include "kv/state_pool.h"
#include "model/adapter.h"
#include "model/ffn_skip.h"
#include "model/forward.h"
#include "model/model.h"
#include "prefill/early_exit.h"
#include "second_model/second_model.h"
#include "skv/combine.h"
#include "skv/skv.h"
#include "steps/step.h"

struct skv_engine {
    skv_engine_options options; /* as given, defaults resolved; pointers not kept */
    skv_source *source;         /* owned; NULL for a preset */
    skv_config *preset;         /* owned; NULL for a file */
    const skv_config *config;   /* of one of the two, or `part` */
    skv_config *part;           /* owned: of this rank; NULL: without ranks */
    skv_ranks *ranks;           /* owned; NULL: without */
    skv_pool *pool;             /* the host's threads, which the CPU's back end uses too; owned */
    skv_backend *be;            /* owned */
    skv_model model;
    skv_plan plan;
    skv_plan teacher_plan;    /* of sequences that run as the teacher; no layers: there is none */
    skv_plan spread_plans[2]; /* the same two for caches by query head; made when asked for */
    bool has_teacher;
    bool runs_swiftkv; /* the engine's own method uses the SwiftKV weights */
    skv_engine_kvpred kvpred;
    skv_engine_draft draft;        /* of options.draft_model */
    skv_adapters adapters;         /* of options.adapters */
    skv_engine_prune prune;        /* of options.pruning */
    skv_ffn_skipper ffn_skipper;   /* of options.ffn_skip */
    skv_hook early_exit;           /* of options.early_exit */
    skv_draft_costs draft_costs;   /* of steps with drafts */
    skv_draft_learnt draft_learnt; /* of sequences without a domain */
    skv_work work;                 /* of all steps; `total` is not filled */
    skv_kv_store *store;           /* owned */
    skv_table *restoring;          /* owned: of the page that boundary_rows.c restores */
    skv_state_pool states;         /* of layers that keep one */
    skv_state_pool checkpoints;    /* copies of them, which a prefix index keeps */
    skv_workspace ws;
    skv_pass_span *spans; /* owned, [step_tokens] */
    size_t workspace_bytes;
    skv_cpu_level level;
    const struct skv_matmul_form *form; /* of its products, as `cpu` named it; NULL: not at all */
    atomic_bool cancel;
};

struct skv_sequence {
    skv_engine *engine;   /* borrowed */
    const skv_plan *plan; /* borrowed: one of the engine's */
    bool unskipped;       /* its tokens run every layer */
    size_t max_tokens;
    size_t i_span;      /* its span of the step that is checked */
    size_t n_seen;      /* tokens: the position of the next one */
    int32_t *ids;       /* owned, [max_tokens], mapped */
    skv_kv_cache cache; /* cache.n_rows == n_seen, except within a step */
    size_t state;       /* one of the engine's, which stands behind row n_seen; SKV_NO_STATE */
    size_t n_sure;      /* with a state: tokens after the first n_sure can be taken back */
    skv_adapter_mix adapters;
    skv_eviction eviction;
    skv_kv_votes votes;   /* of a prompt that is on its way in and will lose rows */
    skv_pruned *pruned;   /* owned; NULL: nothing is pruned */
    skv_reader *reader;   /* owned; NULL: no auxiliary model reads its prompts */
    skv_drafter *drafter; /* owned; NULL: no drafts */
};

/** Returns the contents of a model's files. A preset (source NULL) contains everything. */
skv_model_traits skv_model_traits_of(const skv_config *config, const skv_source *source);

/** The name of "preset:NAME"; NULL for a path. */
const char *skv_preset_of(const char *path);
/** Opens a model's files, or reads the configuration of a folder without weights into *bare, which
 * skv_preset_free frees. The other result is left unchanged. */
SKV_MUST_CHECK skv_status skv_model_files_open(const char *path, skv_source **source,
                                               skv_config **bare, skv_error *err);

/** The shape of a preset on the heap; SKV_ARGUMENT with the list for an unknown name. */
SKV_MUST_CHECK skv_status skv_preset_config(const char *name, size_t kv_layers, size_t group,
                                            skv_config **out, skv_error *err);
void skv_preset_free(skv_config *config);
/** Opens an engine of a shape on the heap and takes the shape over, even on failure. `name` is the
 * preset whose auxiliary model it uses, or NULL. */
SKV_MUST_CHECK skv_status skv_engine_open_shape(skv_config *config, const char *name,
                                                const skv_engine_options *options, skv_engine **out,
                                                skv_error *err);
/** The auxiliary of "BASE+AUXILIARY", whose base's configuration is given. */
SKV_MUST_CHECK skv_status skv_preset_auxiliary(const char *name, const skv_config *base,
                                               skv_config **out, skv_error *err);

/** An empty sequence whose cache was given the rows of ids[0..n) has seen them; where layers keep a
 * state, one of the engine's checkpoints stands after them. */
void skv_sequence_adopt(skv_sequence *sequence, const int32_t *ids, size_t n, size_t checkpoint);

/* ---- take_run.c ---- */

/** Appends ids [n] to a sequence, whose rows stand in pages [n_bundles][n_pages] from `position` of
 * another text on; the model keeps no states, and nothing was pruned or evicted. SKV_FULL or
 * SKV_MEMORY: nothing has changed. */
SKV_MUST_CHECK skv_status skv_sequence_take_run(skv_sequence *sequence, const int32_t *ids,
                                                size_t n, const uint32_t *pages, size_t n_pages,
                                                size_t position, skv_error *err);

/** Whether a sequence can continue after the first n of its tokens. */
bool skv_sequence_reaches(const skv_sequence *sequence, size_t n);

/** Rows that a head of a sequence may have after a prompt of n tokens. */
size_t skv_eviction_most_rows(const skv_sequence *sequence, const skv_eviction *how, size_t n);
/** Pages that must be free for skv_sequence_evict, at most. */
size_t skv_sequence_evict_needs(const skv_sequence *sequence);
/** First of the next n tokens that has to run every layer because it votes; n: none. */
size_t skv_sequence_deep_from(const skv_sequence *sequence, size_t n);

/** The rows that a slot keeps of the n that an empty sequence's prompt has in it. */
SKV_MUST_CHECK skv_status skv_sequence_choose_slot(skv_sequence *sequence, size_t slot, size_t n,
                                                   skv_kv_choice *out, skv_error *err);

/** Whether sequences that run like this may have a source of drafts. */
SKV_MUST_CHECK skv_status skv_engine_check_speculation(const skv_engine *engine,
                                                       skv_prefill prefill,
                                                       const skv_speculation *how, skv_error *err);

/* ---- sampler.c ---- */

/** Bytes of a sampler without a look. */
size_t skv_sampler_bytes(const skv_sampling *sampling, size_t vocab);
/** A sampler without a look, for picks alone. */
SKV_MUST_CHECK skv_status skv_sampler_create_bare(const skv_sampling *sampling, size_t vocab,
                                                  skv_sampler **out, skv_error *err);
/** Whether accepted tokens may change logits. */
bool skv_sampler_has_penalties(const skv_sampler *sampler);
/** Fills in the penalties of a pick and how it draws: the next token, or the one that comes n_ahead
 * tokens later. The lists are the sampler's, until it accepts a token. */
void skv_sampler_wish(const skv_sampler *sampler, size_t n_ahead, skv_pick_row *pick);
/** The next token was picked and is taken: the one after it has another number. */
void skv_sampler_drawn(skv_sampler *sampler);

/* ---- boundary_rows.c ---- */

/** Bytes of a token's row; 0: the engine's own method makes no deep slots. */
size_t skv_boundary_row_bytes(const skv_engine *engine);
/** Tracks of the slots below l, which stand before those that the rows stand for. */
size_t skv_boundary_tracks(const skv_engine *engine);
/** The layer before which a hook of skv_engine_step sees x_l. */
size_t skv_boundary_layer(const skv_engine *engine);
/** Rows x [n, D] at boundary l as bytes; called by that sink. */
void skv_boundary_take(skv_engine *engine, skv_rows x, size_t n, unsigned char *rows);
/** Writes the deep slots of a page row: SKV_PAGE_ROWS tokens from `position` on of a sequence made
 * for `context` tokens, into pages [n_tracks]. No step may be running. */
void skv_boundary_restore(skv_engine *engine, const unsigned char *rows, size_t position,
                          size_t context, const uint32_t *pages);

#endif
