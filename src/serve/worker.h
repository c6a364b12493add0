/*
 * The scheduler's own state. The worker thread owns lanes, pages and steps; other threads reach it
 * through the inbox and the few fields that `lock` guards.
 *
 *     keep.c        the prefix cache on disk
 *     keep_rows.c   its smaller form for SwiftKV
 *     recall.c      prompts that continue an answer (called by others)
 *     scheduler.c   life, submission, the worker's loop
 *     admit.c       which waiting lane gets pages, and which running one loses them
 *     compose.c     what goes into the next step
 *     turns.c       whose prompt is read next
 *     advance.c     runs it: tokens are chosen, told, and answers end
 */
#ifndef SKV_SERVE_WORKER_H
#define SKV_SERVE_WORKER_H

#include <string.h>

#include "engine/engine.h"
#include "kv/prefix_index.h"
#include "serve/lane.h"
#include "serve/step_clock.h"
#include "serve/text_index.h"
#include "serve/turns.h"

enum { SKV_TENANT_TURNS = 64 };

struct skv_scheduler {
    skv_engine *engine;     /* borrowed */
    const skv_vocab *vocab; /* borrowed, NULL: none */
    skv_scheduler_options options;
    size_t context, step_tokens, vocab_size;
    pthread_t thread;
    _Atomic uint64_t beat_ns; /* the worker's last sign of life; 0: nothing to do */

    pthread_mutex_t lock; /* guards down to `published` */
    pthread_cond_t wake;
    skv_lane *inbox, *inbox_last;         /* owned: submitted, not seen by the worker */
    size_t n_queued, n_queued_tokens;     /* jobs that have not begun, and their prompts */
    size_t n_queued_of[SKV_TENANT_TURNS]; /* of them, by tenant */
    bool draining, stopping, nudged;      /* nudged: somebody was cancelled */
    const skv_job *stepping;              /* the only job of the step that is running */
    uint64_t n_submitted, n_rejected;
    double seconds_a_token;
    skv_scheduler_metrics published;

    skv_lane *oldest, *youngest; /* owned: all lanes, in order of age */
    size_t n_running, n_waiting;
    uint64_t turn, tenant_turns[SKV_TENANT_TURNS];
    skv_prefix_index *prefix; /* owned, NULL: none */
    skv_text_index *texts;    /* owned, any thread's; NULL: none */
    skv_spill *spill;         /* owned, any thread's; NULL: none */
    unsigned char *step_rows; /* owned, of the step's rows at boundary l; NULL: not wanted */
    size_t n_fetching;        /* lanes that wait for the disk */
    double flush_seconds;     /* left for writing at the end */
    skv_step_clock clock;
    uint64_t busy_ns; /* since when the worker works without a rest, or the end of the last step */
    skv_turns turns;
    skv_span *spans;       /* owned, [step_tokens] */
    skv_lane **span_lanes; /* owned, [step_tokens] */
    size_t n_spans;
    float *logits; /* owned, [vocab_size] */
    skv_scheduler_metrics tally;
};

static inline skv_text_piece skv_text_of(const char *text)
{
    return (skv_text_piece){text, strlen(text)};
}

/* ---- scheduler.c ---- */

/** Puts a lane behind `after`, or first when that is NULL. */
void skv_worker_insert(skv_scheduler *s, skv_lane *lane, skv_lane *after);
/** Tells the end of a lane, keeps its full pages for others, and frees it. */
void skv_worker_end(skv_scheduler *s, skv_lane *lane, skv_finish finish, skv_text_piece text);
/** Lets others see the metrics as they stand. */
void skv_worker_publish(skv_scheduler *s);
/** A job has begun, or will not: it no longer counts as queued. */
void skv_worker_unqueue(skv_scheduler *s, const skv_job *job);
/** Adds to a histogram. */
void skv_histogram_add(skv_histogram *histogram, uint64_t ns);

/* ---- admit.c ---- */

/** Gives pages to waiting lanes as long as there are enough. */
void skv_worker_admit(skv_scheduler *s);
/** Makes n_pages pages free by giving up cached blocks; false when it cannot. */
bool skv_worker_make_room(skv_scheduler *s, size_t n_pages);
/** The youngest running lane loses its pages; false when at most one is running. */
bool skv_worker_preempt(skv_scheduler *s);
/** Keeps what a lane has in the cache for others, and gives its pages back. */
void skv_worker_give_back(skv_scheduler *s, skv_lane *lane);
/** How a job's prompt loses rows; method NONE: it does not. */
skv_eviction skv_worker_eviction(const skv_scheduler *s, const skv_job *job);
/** Behind a prompt that loses rows: keeps all of it for others, unless that takes pages of which
 * the rest of the step needs n_needed, then evicts; false: there is no room for what stays, and the
 * lane says why it failed. */
bool skv_worker_evict(skv_scheduler *s, skv_lane *lane, size_t n_needed);
const skv_kv_layout *skv_worker_layout(const skv_scheduler *s, const skv_job *job);
/** Keeps a lane's full pages for others. */
void skv_worker_remember(skv_scheduler *s, const skv_lane *lane);

/* ---- recall.c ---- */

/** Keeps the ids of a lane's prompt and answer for who sends them back as text. */
void skv_worker_keep_text(skv_scheduler *s, const skv_lane *lane);

/* ---- keep.c ---- */

/** Opens cache_dir, where there is one, and the index of texts. */
SKV_MUST_CHECK skv_status skv_worker_open_kept(skv_scheduler *s, skv_error *err);
/** Whose pages a job may share: those of its tenant and method. */
uint64_t skv_worker_domain(const skv_scheduler *s, const skv_job_params *params);
/** Asks the disk for what memory does not have of a lane's ids; true: the lane waits for it. */
bool skv_worker_seek(skv_scheduler *s, skv_lane *lane);
/** A lane no longer waits for the disk, if it did. */
void skv_worker_stop_fetch(skv_scheduler *s, skv_lane *lane);
/** Takes over what has arrived. */
void skv_worker_collect(skv_scheduler *s);
/** Before pages become scarce, the oldest are written, so that giving them up costs nothing. */
void skv_worker_spill_ahead(skv_scheduler *s);
/** What the disk has and did; from any thread. */
void skv_scheduler_disk_metrics(const skv_scheduler *s, skv_scheduler_metrics *m);
/** At the end everything is queued; closing the disk waits for the rest. */
void skv_worker_spill_all(skv_scheduler *s);

/* ---- keep_rows.c ---- */

/** Takes memory for the rows of a step, where blocks are kept in that form. */
SKV_MUST_CHECK skv_status skv_worker_open_rows(skv_scheduler *s, skv_error *err);
/** The sink of a step's hidden states; needs step_rows. */
void skv_worker_take_rows(skv_scheduler *s, size_t i_layer, const float *x, size_t n_rows);
/** After a step: n rows of a lane, the first of them row step_row of the step. Blocks that they
 * complete are queued for the disk. */
void skv_worker_keep_rows(skv_scheduler *s, skv_lane *lane, size_t step_row, size_t n);
/** Whether an item is the block that comes next in what a lane waits for. */
bool skv_worker_item_fits(const skv_scheduler *s, const skv_lane *lane, const skv_spill_item *item);
/** Writes such an item into pages [n_tracks]. */
void skv_worker_fill_pages(skv_scheduler *s, const skv_lane *lane, const skv_spill_item *item,
                           void **pages);

/* ---- compose.c ---- */

/** Fills spans for the next step: first those of one method, then the rest; false: nothing. */
bool skv_worker_compose(skv_scheduler *s);
/** Pages that the step takes from span `first` on, for what of it has not run yet. */
size_t skv_worker_step_needs(const skv_scheduler *s, size_t first);

/* ---- advance.c ---- */

/** Runs the composed step and what follows from it. */
void skv_worker_advance(skv_scheduler *s);

#endif
