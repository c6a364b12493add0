/*
 * Running a grammar: positions, made as they are needed and kept.
 *
 * A configuration is a state and a stack of return states; a position is the set of all
 * configurations that the bytes read so far can have led to, so ambiguity costs nothing but a
 * larger set. Stacks are linked frames, and both frames and positions are interned: equal ones have
 * one index. Transitions are remembered, so a step from a known position costs one look-up a byte.
 *
 *     position -> (frame, state) (frame, state) ...     frame -> return state, frame below
 *
 * The bottom of a stack (frame 0) may be the bottom of the grammar, or of anything: in a position
 * that began in the middle of a rule, `ends` means that the rule may have ended.
 *
 * Everything is bounded. Frames of a stack and configurations of a position beyond their bound are
 * dropped, always the same ones. A step that needs more edges or memory than allowed fails. `limit`
 * names the bound. A position records how close to the bounds it came, so that code that works on
 * parts of a position can tell whether the whole would meet one.
 *
 * A step is not interrupted, so its bound is small. Its work is added to `uncounted`, which callers
 * move to their budget between steps. A step that failed for want of memory can be retried after
 * skv_parse_tidy.
 */
#ifndef SKV_GRAMMAR_PARSE_SPACE_H
#define SKV_GRAMMAR_PARSE_SPACE_H

#include "grammar/grammar_impl.h"
#include "skv/budget.h"

enum {
    SKV_PARSE_DEPTH_SOFT = 192,   /* frames from which no rule that nests is called */
    SKV_PARSE_DEPTH_MAX = 256,    /* frames of a stack */
    SKV_PARSE_CONFIGS_MAX = 1024, /* configurations of a position */
};

#define SKV_PARSE_EDGES_MAX ((size_t)1 << 18)   /* edges looked at by one step */
#define SKV_PARSE_BYTES_MAX ((size_t)64 << 20)  /* memory of a space */
#define SKV_PARSE_BYTES_TIDY ((size_t)16 << 20) /* above which unused positions are dropped */
/*
 * The load of a step is the largest of its shares of three bounds: configurations kept, states
 * looked at, edges followed. Loads are additive: a step from the union of several positions has at
 * most the sum of the loads of steps from each of them.
 */
#define SKV_PARSE_LOAD_MAX ((uint32_t)SKV_PARSE_CONFIGS_MAX)
#define SKV_FRAME_BOTTOM ((uint32_t)0)
#define SKV_PLACE_DEAD ((uint32_t)0) /* the position without configurations */

/* From SKV_LIMIT_EDGES on they hold for one call only, and fail it. */
typedef enum skv_parse_limit {
    SKV_LIMIT_NONE,
    SKV_LIMIT_DEPTH,
    SKV_LIMIT_CONFIGS,
    SKV_LIMIT_EDGES,
    SKV_LIMIT_MEMORY, /* of this space, or of the machine */
    SKV_LIMIT_ACCOUNT /* of all spaces together */
} skv_parse_limit;

typedef struct skv_frame {
    uint32_t below, state; /* where to go on when the rule ends */
    uint32_t depth;
    uint32_t link; /* to the next frame of the same hash; 0: none */
} skv_frame;

/* Sorted by frame, then by state. */
typedef struct skv_config {
    uint32_t frame, state;
} skv_config;

typedef struct skv_place {
    uint32_t first, n; /* configurations, all with an edge that reads a byte */
    uint32_t hash;
    uint32_t link;  /* to the next position of the same hash; 0: none */
    bool ends;      /* the rule at the bottom may end here */
    uint8_t cut;    /* skv_parse_limit that a step from here has met */
    uint16_t load;  /* of the steps that led here, the largest: see SKV_PARSE_LOAD_MAX */
    uint16_t depth; /* of the deepest frame that they pushed */
} skv_place;

/* The working memory of one step. */
typedef struct skv_parse_scratch {
    skv_config *at;  /* owned, [capacity]: those found so far */
    uint32_t *slots; /* owned, [2 * capacity] index + 1 of `at`, 0: free */
    size_t n;
    size_t edges;   /* looked at */
    uint32_t depth; /* of the deepest frame pushed */
    bool ends;
} skv_parse_scratch;

typedef struct skv_parse_space {
    const skv_grammar *g;                /* borrowed */
    skv_account *account;                /* borrowed; NULL: none. Has skv_parse_space_bytes */
    skv_frame *frames;                   /* owned, [n_frames] */
    skv_place *places;                   /* owned, [n_places] */
    skv_config *configs;                 /* owned, [n_configs] */
    uint32_t *next;                      /* owned, [n_places * n_classes] */
    uint32_t *frame_heads, *place_heads; /* owned, [n_heads] hash tables of chains */
    size_t n_frames, n_places, n_configs;
    size_t frames_capacity, places_capacity, configs_capacity;
    size_t n_heads; /* a power of two */
    skv_parse_scratch scratch;
    uint64_t uncounted;    /* units of work that no budget has seen yet */
    skv_parse_limit limit; /* the gravest one that the call has met */
} skv_parse_space;

/** Returns false if out of memory: `limit` tells whether it was the account's. */
SKV_MUST_CHECK bool skv_parse_space_init(skv_parse_space *space, const skv_grammar *g,
                                         skv_account *account);
void skv_parse_space_release(skv_parse_space *space);
size_t skv_parse_space_bytes(const skv_parse_space *space);

/** Moves the uncounted units to a budget; false when it is used up. NULL: there is no limit. */
static inline bool skv_parse_spend(skv_parse_space *space, skv_budget *budget)
{
    uint64_t n = space->uncounted;
    space->uncounted = 0;
    return !budget || skv_budget_work(budget, n);
}

/** One line for a limit. */
const char *skv_parse_limit_text(skv_parse_limit limit);

/** The position at the begin of the grammar. */
uint32_t skv_parse_start(skv_parse_space *space);
/** The position where the rule of `frame`, not the bottom, has just ended. */
uint32_t skv_parse_return(skv_parse_space *space, uint32_t frame);
/** The position of these states, all of them kept by an earlier position, on the bottom. */
uint32_t skv_parse_at(skv_parse_space *space, const uint32_t *states, size_t n);
/** Computes a transition that skv_parse_next has not cached. */
uint32_t skv_parse_step(skv_parse_space *space, uint32_t place, uint8_t byte);

/** The position after one more byte; SKV_PLACE_DEAD when it does not fit. */
static inline uint32_t skv_parse_next(skv_parse_space *space, uint32_t place, uint8_t byte)
{
    uint32_t next = space->next[place * space->g->n_classes + space->g->classes[byte]];
    return next != UINT32_MAX ? next : skv_parse_step(space, place, byte);
}

/**
 * Drops all positions except those of `kept` (n pointers), and updates the kept indices. Returns
 * false and changes nothing if out of memory.
 */
SKV_MUST_CHECK bool skv_parse_tidy(skv_parse_space *space, uint32_t **kept, size_t n);
/** Gives the memory back that nothing is kept in. */
void skv_parse_shrink(skv_parse_space *space);
/** Bytes of the arrays that something is kept in. */
size_t skv_parse_used_bytes(const skv_parse_space *space);

#endif
