/*
 * A machine of the simulation: a server with our scheduler's rules. Answers have a token in every
 * step; prompts get the rest of its time by the scheduler's own clock (scheduler/step_clock.h), one
 * after the other, the shortest first and now and then the oldest (scheduler/turns.h).
 *
 * It differs from a server in that it knows the length of an answer when the request begins, and so
 * takes no more than its KV memory holds: nothing is preempted.
 */
#ifndef SKV_FLEET_MACHINE_H
#define SKV_FLEET_MACHINE_H

#include "blocks.h"
#include "costs.h"
#include "scheduler/step_clock.h"

typedef struct fleet_request {
    struct fleet_request *next; /* of a queue */
    double at_s, first_s;
    uint32_t n_prompt, n_output;
    uint32_t n_seen;            /* prompt tokens that are in the machine's memory */
    uint32_t n_until;           /* those that it is to read; a reader leaves the rest */
    uint32_t n_found;           /* those that some cache had */
    uint32_t n_blocks;          /* of the prompt */
    uint64_t *names;            /* owned, [n_blocks] */
    size_t i_reader, i_machine; /* i_reader SIZE_MAX: none */
} fleet_request;

typedef struct fleet_limits {
    size_t max_running, kv_tokens;
    double step_ms;
} fleet_limits;

/* An answer under way, in a heap by its last step. */
typedef struct fleet_answer {
    uint64_t last;
    fleet_request *request;
} fleet_answer;

typedef struct fleet_piece {
    fleet_request *request;
    size_t n; /* tokens of its prompt in the step under way */
} fleet_piece;

typedef struct fleet_machine {
    const fleet_costs *costs; /* borrowed, as the limits */
    const fleet_limits *limits;
    skv_step_clock clock;
    fleet_request *queue, *queue_end;
    fleet_piece *prompts; /* owned, [max_running]: those being read, the oldest first */
    size_t n_prompts;
    fleet_answer *answers; /* owned, [max_running] */
    size_t n_answers;
    double answer_reads; /* rows before the next token of each answer, added up */
    size_t kv_used;      /* tokens that requests hold or will */
    uint64_t n_steps;
    uint64_t n_composed;
    fleet_step step;
    bool in_step;
    double busy_s, step_ms;
    size_t n_requests;   /* queued and under way */
    size_t block_tokens; /* of the names */
    fleet_blocks cache;
} fleet_machine;

bool fleet_machine_init(fleet_machine *m, const fleet_costs *costs, const fleet_limits *limits,
                        size_t block_tokens);
/** Whether it could ever take the request. */
bool fleet_machine_fits(const fleet_machine *m, const fleet_request *r);
void fleet_machine_put(fleet_machine *m, fleet_request *r);
/** Begins a step; returns the seconds it takes, 0 where there is nothing to do. */
double fleet_machine_begin(fleet_machine *m);

/* The news of a step that ends: a prompt was read to n_until, and whether its answer ended. */
typedef struct fleet_told {
    void *user;
    /** Prompt tokens that went through, for the tokens that a reader sends. */
    void (*on_read)(void *user, fleet_machine *m, const fleet_request *r, size_t n);
    /** The prompt is read; false: the request leaves the machine. */
    bool (*on_first)(void *user, fleet_machine *m, fleet_request *r);
    /** The answer has its last token; the request is the caller's. */
    void (*on_end)(void *user, fleet_machine *m, fleet_request *r);
} fleet_told;

void fleet_machine_end(fleet_machine *m, const fleet_told *told);
void fleet_machine_release(fleet_machine *m);

#endif
