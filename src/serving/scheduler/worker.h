/*
 * The scheduler's own state.
 *
 * Threads: one worker thread owns all model state, and a lock guards the bounded queues. The worker
 * alone touches lanes, sequences, pages and steps. Other threads submit and cancel jobs and read
 * metrics, through the fields that `lock` guards. `texts` and `spill` have locks of their own.
 *
 *     scheduler.c   life, submission, the worker's loop
 *     lanes.c       the list of lanes, how they lose their pages, and how they end
 *     tenants.c     whose pages a job may share
 *     room.c        sequences, and room for their pages
 *     admit.c       which waiting lane gets pages
 *     masks.c       the tokens that constrained answers may continue with
 *     compose.c     the contents of the next step
 *     turns.c       whose prompt is read next
 *     advance.c     runs it: tokens are chosen, told and appended, and answers end
 *     choose.c      which token a lane goes on with
 *     drafts.c      tokens that are checked beside it
 *     output.c      the outputs for readers
 *     checkpoints.c states of hybrid models that are kept for others
 *     keep.c        the prefix cache on disk and in a store
 *     keep_pages.c  pages that are on their way there
 *     keep_rows.c   its smaller form for SwiftKV
 *     keep_states.c checkpoints there
 *     keep_pins.c   pins there
 *     rows_print.c  a fingerprint of everything that the rows on disk depend on
 *     remote.c      prompts that another server reads
 *     store_prompt.c prompts that are read for others
 *     recall.c      prompts that continue an answer (called by others)
 *     shift.c       runs of a prompt that stood elsewhere before
 *     idle_reads.c  expected prompts, read while no job waits
 */
#ifndef SKV_SERVE_WORKER_H
#define SKV_SERVE_WORKER_H

#include <string.h>

#include "engine/engine.h"
#include "kv/prefix_index.h"
#include "scheduler/draft_domains.h"
#include "scheduler/histogram.h"
#include "scheduler/idle_reads.h"
#include "scheduler/lane.h"
#include "scheduler/past_prompts.h"
#include "scheduler/step_clock.h"
#include "scheduler/text_index.h"
#include "scheduler/turns.h"

enum { SKV_SPILL_QUEUE_BYTES = 64 << 20 }; /* of the disk, and of the store, and room for states */

/* Blocks whose pages are still on their way to a queue, the oldest first. */
typedef struct skv_arrivals {
    skv_spill_item *first, *last; /* owned */
    size_t n_bytes;
} skv_arrivals;

struct skv_scheduler {
    /* Set before the worker starts; any thread reads them. */
    skv_engine *engine;     /* borrowed; its memory is the worker's */
    const skv_vocab *vocab; /* borrowed, NULL: none */
    skv_scheduler_options options;
    size_t context, step_tokens, vocab_size;
    pthread_t thread;
    skv_text_index *texts; /* owned, any thread's; NULL: none */
    skv_spill *spill;      /* owned, any thread's: the disk; NULL: none */
    skv_spill *store;      /* the same: the store that others share */

    _Atomic uint64_t beat_ns; /* the worker's last sign of life; 0: nothing to do */

    /* The queue of submitted jobs, and the numbers that other threads see: `lock` guards all of
     * it. */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    skv_lane *inbox, *inbox_last;     /* owned: submitted, not seen by the worker */
    size_t n_queued, n_queued_tokens; /* jobs that have not begun, and their prompts */
    size_t n_queued_of[SKV_TENANTS];  /* of them, by tenant */
    bool draining, stopping, nudged;  /* nudged: a job was cancelled */
    bool steps, cuts;                 /* a step is running; it was asked to end early */
    const skv_job *stepping;          /* its only job */
    uint64_t n_submitted, n_rejected;
    double seconds_a_token;
    skv_scheduler_metrics published;

    /* The worker's own, without a lock: lanes and which of them gets pages, */
    skv_lane *oldest, *youngest; /* owned: all lanes, in order of age */
    size_t n_running, n_waiting;
    size_t n_owed; /* lanes whose last token has not been told yet */
    uint64_t n_admitted, admitted_last[SKV_TENANTS]; /* by tenant: the n_admitted of its last one */
    skv_scheduler_metrics tally;

    /* pages and answers that are kept for others, */
    skv_prefix_index *prefix;   /* owned, NULL: none */
    size_t n_fetching;          /* lanes that wait for the disk or the store */
    skv_prompt_readers readers; /* servers that read prompts for this one, */
    void *readers_link;         /* owned, NULL: none */
    size_t n_reading;           /* lanes whose prompts are there */
    size_t n_storing;           /* lanes whose prompts are read for others */
    double flush_seconds;       /* left for writing at the end */
    skv_draft_domains drafts;   /* the statistics and texts of drafts */
    skv_past_prompts past;      /* for the causes of misses */
    skv_arrivals arrivals[2];   /* for the disk and for the store */
    size_t queue_bytes;         /* of each of them */
    skv_idle idle;              /* reads while no job waits; has the lock's fields too */
    unsigned char *step_rows;   /* owned, of the step's rows at boundary l; NULL: not wanted */

    /* masks, */
    skv_turns mask_turns; /* of microseconds */
    uint64_t mask_ns;     /* that masks took before this step, */
    uint64_t masks_ns;    /* and since the last one */
    size_t n_starved;     /* lanes whose mask waits for memory */

    /* and the step. */
    skv_step_clock clock;
    uint64_t step_ns; /* when the step under way began */
    uint64_t busy_ns; /* since when the worker works without a rest, or the end of the last step */
    skv_turns turns;  /* of prompt tokens */
    uint64_t n_composed;   /* steps, and attempts at one */
    skv_span *spans;       /* owned, [step_tokens] */
    skv_lane **span_lanes; /* owned, [step_tokens] */
    size_t n_spans;
    /* For constraints whose masks are not bits: */
    float *plain_mask;          /* owned, [vocab_size] */
    uint32_t *mask_bits;        /* owned, [SKV_JOB_ANSWERS_MAX][ceil(vocab_size / 32)] */
    const skv_lane *mask_owner; /* of the job whose answers have them now; NULL: they are free */
};

/* The tokens of n that fill blocks. */
static inline size_t skv_whole_blocks(size_t n)
{
    return n / SKV_PAGE_ROWS * SKV_PAGE_ROWS;
}

static inline skv_text_piece skv_text_of(const char *text)
{
    return (skv_text_piece){text, strlen(text)};
}

/* ---- lanes.c ---- */

/** Puts a lane after `after`, or first when that is NULL. */
void skv_worker_insert(skv_scheduler *s, skv_lane *lane, skv_lane *after);
/** Tells the end of a lane, keeps its full pages for others, and frees it. */
void skv_worker_end(skv_scheduler *s, skv_lane *lane, skv_finish finish, skv_text_piece text);
/** Lets others see the metrics as they stand. */
void skv_worker_publish(skv_scheduler *s);
/** A job has begun, or will not: it no longer counts as queued. */
void skv_worker_unqueue(skv_scheduler *s, const skv_job *job);

/* ---- tenants.c ---- */

/** The domain that shares a job's pages: those of its tenant and method. */
uint64_t skv_worker_domain(const skv_scheduler *s, const skv_job_params *params);
/** Its tenant alone. */
uint64_t skv_worker_owner(const skv_scheduler *s, const skv_job_params *params);

/* ---- room.c ---- */

const skv_kv_layout *skv_worker_layout(const skv_scheduler *s, const skv_job *job);
/** Makes n_pages pages free by giving up cached blocks; false when it cannot. */
bool skv_worker_make_room(skv_scheduler *s, size_t n_pages);
/** An empty sequence for an answer of a job. */
SKV_MUST_CHECK skv_status skv_worker_create_sequence(skv_scheduler *s, const skv_job_params *p,
                                                     skv_sequence **out, skv_error *err);
/** Bytes that the constraints of a lane's job hold. */
size_t skv_worker_held_bytes(const skv_lane *lane);
/** Keeps a lane's full pages for others. */
void skv_worker_remember(skv_scheduler *s, const skv_lane *lane);
/** The youngest running lane loses its pages; false when at most one is running. */
bool skv_worker_preempt(skv_scheduler *s);

/* ---- admit.c ---- */

/** Gives pages to waiting lanes as long as there are enough. */
void skv_worker_admit(skv_scheduler *s);
/** After a prompt that loses rows: keeps all of it for others, unless that takes pages of which
 * the rest of the step needs n_needed, then evicts; false: the remaining rows find no room, and
 * the lane says why it failed. */
bool skv_worker_evict(skv_scheduler *s, skv_lane *lane, size_t n_needed);
/** A new branch takes over the pages of the prompt; without room it waits for its own. */
void skv_worker_share_prompt(skv_scheduler *s, const skv_lane *from, skv_lane *fork);
/** A lane has read its prompt, and its answer has a token; without pages it goes on waiting. */
void skv_worker_begin_answer(skv_lane *lane);

/* ---- checkpoints.c ---- */

/** A lane begins after n_found of its ids, of which n_usable may come from elsewhere. */
void skv_worker_place_checkpoints(skv_scheduler *s, skv_lane *lane, size_t n_found,
                                  size_t n_usable);
/** How many of its next n ids, after n_seen, are read before its state is to be kept. */
size_t skv_worker_until_checkpoint(const skv_lane *lane, size_t n_seen, size_t n);
/** Whether the state of a lane is to be kept where it stands. */
bool skv_worker_wants_state(const skv_scheduler *s, const skv_lane *lane);
/** Keeps it; the index has the lane's blocks. */
void skv_worker_keep_state(skv_scheduler *s, skv_lane *lane);
/** The lane gives its sequence back: the state after its answer stays. */
void skv_worker_settle_state(skv_lane *lane);

/* ---- shift.c ---- */

/** Refuses cache_shift where it cannot hold. */
SKV_MUST_CHECK skv_status skv_worker_open_shift(skv_scheduler *s, skv_error *err);
/** A lane begins with what was found, and may take runs from elsewhere up to n_usable of its ids;
 * `counts`: for the first time. */
void skv_worker_begin_shift(skv_scheduler *s, skv_lane *lane, size_t n_usable, bool counts);
/** A branch has the rows of the lane that it shares. */
void skv_worker_share_shift(const skv_lane *from, skv_lane *fork);
/** How many of a lane's next n ids, after n_seen, are read before a run may begin. */
size_t skv_worker_until_run(const skv_lane *lane, size_t n_seen, size_t n);
/** Lanes that stand at a run take it. */
void skv_worker_take_runs(skv_scheduler *s);
/** Whether a lane's next rows have seen rows from elsewhere. */
bool skv_worker_is_approximate(const skv_lane *lane);

/* ---- recall.c ---- */

/** Keeps the ids of a lane's prompt and answer for requests that send them back as text. */
void skv_worker_keep_text(skv_scheduler *s, const skv_lane *lane);

/* ---- miss.c ---- */

void skv_worker_open_past(skv_scheduler *s);
/** Blocks of pinned prompts become the last that the index gives up. */
void skv_worker_touch_pinned(skv_scheduler *s);
/** The index has a lane's n rows: later prompts are compared with their ids, once the prompt is
 * among them. */
void skv_worker_note_prompt(skv_scheduler *s, const skv_lane *lane, size_t n);
/** Tells why no more than n_found tokens of a job's prompt were found, of the n_usable that may
 * be. */
void skv_worker_explain(skv_scheduler *s, skv_lane *lane, size_t n_usable, size_t n_found,
                        bool looked);

/* ---- idle_reads.c ---- */

/** With the lock held: from when on an idle read may take a step; UINT64_MAX: there is none. */
uint64_t skv_worker_idle_due(skv_scheduler *s);
/** Takes a step of an idle read, if one is due. There are no lanes. */
void skv_worker_read_idle(skv_scheduler *s);
/** There are lanes: the read that is under way gives its pages back, and goes on later. */
void skv_worker_pause_idle(skv_scheduler *s);
/** A prompt begins, of which n_found tokens came from the cache: the expected text that it
 * follows is dropped. */
void skv_worker_follow_idle(skv_scheduler *s, const skv_lane *lane, size_t n_found);
/** Drops all of them. */
void skv_worker_end_idle(skv_scheduler *s);

/* ---- keep_pins.c ---- */

/** Keeps a beginning of a text there longer than others, until a time of skv_clock_ns. */
void skv_worker_pin_kept(skv_scheduler *s, const skv_job *job, const skv_past_pin *pin,
                         const int32_t *ids);

/* ---- keep.c ---- */

/** Opens cache_dir, where there is one, and the index of texts. */
SKV_MUST_CHECK skv_status skv_worker_open_kept(skv_scheduler *s, skv_error *err);
/** Returns the spill that names blocks: the disk or the store, which agree; NULL: there is
 * neither. */
static inline skv_spill *skv_worker_names(const skv_scheduler *s)
{
    return s->spill ? s->spill : s->store;
}
/** Asks the disk and the store, one after the other, for the blocks of a lane's ids that memory
 * lacks. Returns true if the lane waits for them. */
bool skv_worker_seek(skv_scheduler *s, skv_lane *lane);
/** n_known blocks of a lane's ids are in memory; the blocks after them come from a reader. */
void skv_worker_expect_told(skv_lane *lane, size_t n_known);
/** Asks the store for the blocks that come next; false: no memory. */
SKV_MUST_CHECK bool skv_worker_fetch_told(skv_scheduler *s, skv_lane *lane,
                                          const skv_spill_name *names, size_t n);
/** Something has arrived; from any thread. `user` is the scheduler. */
void skv_worker_wake(void *user);
/** A lane was put back: the disk may have blocks that memory loses. */
void skv_worker_seek_again(skv_lane *lane);
/** A lane no longer waits for the disk, if it did. */
void skv_worker_stop_fetch(skv_scheduler *s, skv_lane *lane);
/** Takes over the blocks that have arrived. */
void skv_worker_collect(skv_scheduler *s);
/** Before pages become scarce, the oldest are written, so that giving them up costs nothing. */
void skv_worker_spill_ahead(skv_scheduler *s);
/** Sends the blocks that a lane begins with to the store, as far as its queue has room. */
void skv_worker_share(skv_scheduler *s, const skv_lane *lane);
/** The numbers of the disk and the store; from any thread. */
void skv_scheduler_disk_metrics(const skv_scheduler *s, skv_scheduler_metrics *m);
/** At the end everything is queued; closing the disk waits for the rest. */
void skv_worker_spill_all(skv_scheduler *s);

/* ---- remote.c ---- */

/** Opens options.readers, where there are any and a store. */
SKV_MUST_CHECK skv_status skv_worker_open_readers(skv_scheduler *s, skv_error *err);
void skv_worker_close_readers(skv_scheduler *s);
/** Sends a lane's prompt to a reader, once; true: the lane waits for it. */
bool skv_worker_ask_reader(skv_scheduler *s, skv_lane *lane, size_t n_usable);
/** A lane was put back. */
void skv_worker_ask_again(skv_lane *lane);
/** A lane no longer waits for a reader, if it did. */
void skv_worker_stop_reading(skv_scheduler *s, skv_lane *lane);
/** Asks the store for blocks that readers have reported, and lets lanes go on. */
void skv_worker_look_at_readers(skv_scheduler *s);

/* ---- store_prompt.c ---- */

/** Tells which blocks of prompts that are read for others have reached the store. */
void skv_worker_tell_stored(skv_scheduler *s);

/* ---- keep_pages.c ---- */

/** Whether the queue of the disk or the store has room for n_bytes, as skv_spill_wait_room. */
bool skv_worker_wait_room(skv_scheduler *s, skv_spill *to, size_t n_bytes, double seconds);
/** Whether a block of this name is on its way to that queue. */
bool skv_worker_block_comes(skv_scheduler *s, skv_spill *to, const skv_spill_name *name);
/** Copies pages [n] into an item, whose first ones they become, and queues it when they have
 * arrived. The pages may be changed or dropped at once. */
void skv_worker_put_block(skv_scheduler *s, skv_spill *to, skv_spill_item *item,
                          const uint32_t *pages, size_t n);
/** Queues what has arrived; `wait`: everything. */
void skv_worker_settle_pages(skv_scheduler *s, bool wait);

/* ---- keep_rows.c ---- */

/** Takes memory for the rows of a step, where blocks are kept in that form. */
SKV_MUST_CHECK skv_status skv_worker_open_rows(skv_scheduler *s, skv_error *err);
/** The sink of a step's hidden states; needs step_rows. Takes them as rows from `at` on and returns
 * how many it has taken. */
size_t skv_worker_take_rows(skv_scheduler *s, size_t i_layer, skv_rows x, size_t at, size_t n);
/** After a step: n rows of a lane, the first of them row step_row of the step. Blocks that they
 * complete are queued for the disk. */
void skv_worker_keep_rows(skv_scheduler *s, skv_lane *lane, size_t step_row, size_t n);
/** Whether an item is the next block that a lane waits for. */
bool skv_worker_item_fits(const skv_scheduler *s, const skv_lane *lane, const skv_spill_item *item);
/** Writes such an item into pages [n_tracks]. */
void skv_worker_fill_pages(skv_scheduler *s, const skv_lane *lane, const skv_spill_item *item,
                           const uint32_t *pages);

/* ---- keep_states.c ---- */

/** Pages of an item that a checkpoint takes; 0: there are none. */
size_t skv_worker_state_pages(const skv_scheduler *s);
/** Queues the checkpoint of a block, where it has one that is not there yet; false: the queue is
 * full. */
bool skv_worker_write_state(skv_scheduler *s, skv_spill *to, const skv_prefix_block *block,
                            double seconds);
/** Names of the states after a lane's blocks from number first + 1 to `end`, the last one first,
 * as far as the disk has them: names [end - first]. Returns how many. */
size_t skv_worker_state_names(const skv_scheduler *s, const skv_lane *lane, skv_spill *from,
                              size_t first, size_t end, skv_spill_name *names);
/** Such an item becomes the checkpoint of a block in memory; false: it is none of this lane's. */
SKV_MUST_CHECK bool skv_worker_restore_state(skv_scheduler *s, const skv_lane *lane,
                                             const skv_spill *from, const skv_spill_item *item);

/* ---- rows_print.c ---- */

/** A fingerprint of everything that the rows of the cache are a function of. Runs a prompt of
 * one page row through the engine, which must be idle. `context`: the length that sequences are
 * made for. by_content: the same wherever the same files lie; reads all of them. */
SKV_MUST_CHECK skv_status skv_rows_print(skv_engine *engine, size_t context, bool by_content,
                                         uint8_t out[SKV_SHA256_BYTES], skv_error *err);

/* ---- masks.c ---- */

/** Works on the masks that the next step needs, as long as it may; true: more of it is left. */
bool skv_worker_prepare_masks(skv_scheduler *s);
/** Whether a lane cannot choose a token yet. */
bool skv_worker_wants_mask(const skv_lane *lane);
/** Works on the mask after a drafted token, while its step runs; false: it is not ready. */
bool skv_worker_mask_draft(skv_scheduler *s, skv_lane *lane);
/** A lane's constraint, if there is one, advances by a token; the next mask is not ready. */
void skv_worker_accept_masked(skv_lane *lane, int32_t id);

/* ---- compose.c ---- */

/** Fills spans for the next step: first those of one method, then the rest; false: nothing. */
bool skv_worker_compose(skv_scheduler *s);
/** Pages that the step takes from span `first` on, for the part that has not run yet. */
size_t skv_worker_step_needs(const skv_scheduler *s, size_t first);

/* ---- choose.c ---- */

SKV_MUST_CHECK skv_status skv_worker_open_choices(skv_scheduler *s, skv_error *err);
void skv_worker_close_choices(skv_scheduler *s);
/** Whether a lane's wish needs the scheduler's room for masks. */
bool skv_worker_lacks_bits(const skv_scheduler *s, const skv_lane *lane);
/** Whether what a lane wishes for depends on the tokens before. */
bool skv_worker_depends(const skv_lane *lane);
/** Makes the lane's wish for the row after its last id, or, unless it depends on them, after
 * n_ahead drafted ones. */
void skv_worker_wish(skv_scheduler *s, skv_lane *lane, size_t n_ahead, skv_pick_row *out);
/** None of them will be told. */
void skv_worker_forget_wishes(skv_lane *lane);
/** A pick by such a wish becomes the lane's choice; NULL: it does not. If the constraint leaves
 * nothing, the answer ends if it is complete, or else the lane fails. */
void skv_worker_take_pick(const skv_scheduler *s, skv_lane *lane, const skv_picked *picked);
/** The token that was chosen, which is no longer pending. */
int32_t skv_worker_take_choice(skv_lane *lane);
/** Whether the token that was chosen ends the answer. */
bool skv_worker_ends_answer(const skv_scheduler *s, const skv_lane *lane, int32_t id);
/** The sampler and the constraint advance by the token that was taken. */
void skv_worker_accept_choice(skv_lane *lane, int32_t id);

/* ---- drafts.c ---- */

/** Drafts tokens after the ids of span_lanes [n], which have a row each in the step. */
void skv_worker_draft(skv_scheduler *s, size_t n);
/** The step has no room for a lane's draft. */
void skv_worker_undraft(skv_lane *lane);
/** Whether the token that was chosen is the next one of the draft, and the step has its row. */
bool skv_worker_drafted(const skv_lane *lane, int32_t id);
/** It is, and has become one of the lane's ids. */
void skv_worker_right(skv_lane *lane);
/** The answer has ended: later ones of its domain may be drafted from it. */
void skv_worker_keep_answer(skv_scheduler *s, const skv_lane *lane);
/** After a step: wrong drafts leave the sequence. */
void skv_worker_settle(skv_scheduler *s, skv_lane *lane);

/* ---- output.c ---- */

/** Whether the logits after prompt token t - 1 tell a token t whose reader waits for it. */
bool skv_worker_tells_prompt(const skv_lane *lane, size_t t);
/** Tells the first token of a prompt, which has no probability, once. */
void skv_worker_tell_first(const skv_scheduler *s, skv_lane *lane);
/** Tells token t, if skv_worker_tells_prompt says so. */
void skv_worker_tell_prompt(const skv_scheduler *s, skv_lane *lane, size_t t,
                            const skv_picked *picked);
/** Tells the token that was taken, with its text; the lane fails if its reader does not take it
 * in time. */
SKV_MUST_CHECK skv_status skv_worker_tell_token(skv_scheduler *s, skv_lane *lane, int32_t id,
                                                skv_error *err);
/** The same, but maybe not before skv_worker_tell_owed: of an answer that goes on whatever the text
 * is, where a device computes the next step meanwhile. */
SKV_MUST_CHECK skv_status skv_worker_tell_soon(skv_scheduler *s, skv_lane *lane, int32_t id,
                                               skv_error *err);
/** Tells the tokens that are owed; of one lane, or of all. Before another choice of a lane. */
void skv_worker_tell_owed(skv_scheduler *s, skv_lane *lane);
void skv_worker_tell_all_owed(skv_scheduler *s);
/** The remaining text at the end of an answer. */
skv_text_piece skv_worker_last_text(skv_lane *lane);
/** Adds the hidden state of token n_seen - 1 to the vector. */
void skv_worker_add_hidden(skv_lane *lane, size_t n_seen, const float *hidden);
/** A block of this name is in the store. */
void skv_worker_tell_stored_block(const skv_scheduler *s, skv_lane *lane, const uint8_t *name);
/** Tells the vector; the lane fails where it is not finite. */
void skv_worker_tell_vector(const skv_scheduler *s, skv_lane *lane);

/* ---- step_cut.c: every step of the engine stands between a beginning and skv_worker_end_step ----
 */

/** `job`: the only one of the step, NULL: none. False: the scheduler stops, and it must not run. */
bool skv_worker_begin_step(skv_scheduler *s, const skv_job *job);
/** The same for a step that reads ahead; false where there is something else to do. */
bool skv_worker_begin_idle_step(skv_scheduler *s);
/** Has the step that is running, if any, end early; the caller holds the lock. */
void skv_worker_cut_step(skv_scheduler *s);
/** A step that ended before it noticed that it was cut leaves nothing for the next one, which
 * may be another job's. */
void skv_worker_end_step(skv_scheduler *s);

/* ---- advance.c ---- */

/** Runs the composed step and the work that follows from it. */
void skv_worker_advance(skv_scheduler *s);

#endif
