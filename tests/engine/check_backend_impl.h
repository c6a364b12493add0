/* What the checks of a back end share: see check_backend.h. */
#ifndef SKV_TESTS_CHECK_BACKEND_IMPL_H
#define SKV_TESTS_CHECK_BACKEND_IMPL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/rng.h"
#include "check_backend.h"

enum {
    CHECK_ROWS = 40,      /* most rows of a step */
    CHECK_K = 384,        /* longest row of a product */
    CHECK_HEADS = 8,      /* most query heads */
    CHECK_HEAD_DIM = 128, /* widest */
    CHECK_KV_ROWS = 300,  /* longest sequence */
    CHECK_EXPERTS = 6,    /* of a layer */
    CHECK_ACTIVE = 3,     /* most of a row */
    CHECK_IDS = 50,       /* that a token can have */
    CHECK_STATE_DIM = 64, /* widest key or value of a state */
    CHECK_VOCAB = 13000,  /* longest row of logits */
    CHECK_PICK_TOP = 256  /* most of the largest */
};

/* What one rounding to a format may change, as a part of the number. */
#define CHECK_F32 0x1p-23
#define CHECK_BF16 0x1p-8

/* Numbers of the back end, and what the host believes them to be. */
typedef struct check_tensor {
    skv_rows at; /* [1, n], between numbers that nobody may change */
    float *host; /* [n] */
    size_t n;
    double unit; /* what storing a number may change, as a part of it; 0: F32 */
} check_tensor;

/* It as rows of this length, or as a vector. */
static inline skv_rows check_rows(check_tensor t, size_t ld)
{
    return skv_rows_as(t.at, ld);
}

static inline skv_vec check_vec(check_tensor t)
{
    return (skv_vec){t.at.area, t.at.at};
}

typedef struct backend_check backend_check;

/* Uniform in 0..n-1, in a..b, and true in one of n cases. */
size_t check_below(backend_check *c, size_t n);
size_t check_between(backend_check *c, size_t a, size_t b);
bool check_one_in(backend_check *c, size_t n);
double check_normal(backend_check *c);

/* Memory for one case: freed at its end, never NULL. */
void *check_host(backend_check *c, size_t n_bytes);
/* The back end's, whose first element is element 0. */
skv_area *check_area(backend_check *c, skv_area_spec spec);
/* And what pages lie in; the lists of `spec` may be check_list's. */
skv_page_pool *check_pool(backend_check *c, size_t page_bytes, size_t n_pages);
skv_slots *check_slots(backend_check *c, const skv_slots_spec *spec);
skv_table *check_table(backend_check *c, const skv_slots *slots);
/* A step of up to CHECK_ROWS rows, with this many angles, which is begun and ended here; or ends
 * with the case. */
skv_backend_step *check_new_step(backend_check *c, size_t angle_columns);
void check_begin_described(backend_check *c, skv_backend_step *step,
                           const skv_backend_step_spec *spec);
void check_end_step(backend_check *c, skv_backend_step *step);
skv_angles *check_angles(backend_check *c, const skv_angles_spec *spec);
/* A step of one row without keys and values is under way. */
void check_begin_bare(backend_check *c, skv_backend_step *step);
/* Normal numbers of this size: floats, and operands that may also be activations. */
check_tensor check_random(backend_check *c, size_t n, double size);
check_tensor check_operand(backend_check *c, size_t n, double size);
/* Puts what t.host is now, which becomes what can be stored; or gets out [n_rows, n]. */
void check_put(backend_check *c, check_tensor t);
void check_get(backend_check *c, skv_rows rows, size_t n_rows, size_t n, float *out);
/* n_ascending numbers below n, in host memory. */
uint32_t *check_ascending(backend_check *c, size_t n_ascending, size_t n);

/* A copy of n_bytes at `from` that is gone after check_done; NULL for NULL. */
void *check_list(backend_check *c, const void *from, size_t n_bytes);
/* The operation has returned. */
void check_done(backend_check *c);

/* Every number of t is within bound[i] of want[i]; both [t.n]. Where bound is NULL: t is want. */
void check_near(backend_check *c, check_tensor t, const double *want, const double *bound);
/* Number i of n is within `bound` of `want`; true if it is. */
bool check_number(backend_check *c, size_t i, size_t n, double got, double want, double bound);
/* Two pieces of the host's memory are equal. */
void check_same(backend_check *c, const void *got, const void *want, size_t n_bytes);

skv_backend *check_backend_of(const backend_check *c);
/* Whether the back end has such a shape without experts, whose limits are those of the checks. */
bool check_fits(const backend_check *c, skv_backend_shape shape);
/* Whether experts may have such weights. */
bool check_fits_experts(const backend_check *c, skv_weight_type weights);
/* Weights, and keys and values, that it has. */
skv_weight_type check_weights(const backend_check *c);
skv_kv_type check_kv(const backend_check *c);
bool check_has_states(const backend_check *c);
/* The operation that is checked from here on, in a message's words. */
void check_begin(backend_check *c, const char *op);

/* A norm's weight, offset and eps, or none; over n numbers. `*weight` is the host's copy. */
skv_norm check_norm(backend_check *c, size_t n, const float **weight);
/* out [n] = the norm of x [n], and what rounding may do to each in size[n]. */
void check_normed(const skv_norm *norm, const float *weight, const float *x, size_t n, double *out,
                  double *size);

/* What stands for a sum over ranks: each number and a half of it, and its place. */
void check_ranks_sum(void *ctx, float *x, size_t n);

/* The checks, a case each. */
void check_memory(backend_check *c);
void check_row_operations(backend_check *c);
void check_linear(backend_check *c);
void check_experts(backend_check *c);
void check_saved_rows(backend_check *c);
void check_sets(backend_check *c);
void check_embed(backend_check *c);
void check_embed_gate(backend_check *c);
void check_place(backend_check *c);
void check_attention(backend_check *c);
void check_votes(backend_check *c);
void check_pages(backend_check *c);
void check_compact(backend_check *c);
void check_turn(backend_check *c);
void check_states(backend_check *c);
void check_pick(backend_check *c);

#endif
