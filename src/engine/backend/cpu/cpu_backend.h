/* The operations of the CPU back end, file by file, for its table. */
#ifndef SKV_CPU_BACKEND_H
#define SKV_CPU_BACKEND_H

#include "backend/cpu/cpu_state.h"
#include "backend/devices.h"

/* cpu_backend.c */
SKV_MUST_CHECK skv_status skv_backend_cpu_create(const skv_backend_options *options,
                                                 skv_backend **out, skv_error *err);
/** Its kind's `find`: this processor is always there. */
bool skv_cpu_find(char *found, size_t room, skv_bytes *memory, skv_bytes *available);

/* cpu_areas.c */
skv_status skv_cpu_areas_create(skv_backend *base, const skv_area_spec *specs, size_t n,
                                skv_area **out, skv_error *err);
void skv_cpu_areas_free(skv_backend *base, skv_area **areas, size_t n);
skv_bytes skv_cpu_areas_bytes(const skv_backend *base, const skv_area_spec *specs, size_t n);
skv_mapped skv_cpu_map(skv_backend *base, skv_rows rows, size_t n_rows, size_t n,
                       skv_map_access access);
void skv_cpu_unmap(skv_backend *base, skv_mapped mapped);

/* cpu_pages.c */
/** Adds the functions of pools, slots and tables to the table. */
void skv_cpu_add_pages(skv_backend *base);
/** Copies K (which = 0) or V (1) of row `row` of the head at `from` to row i of that at `to`. */
void skv_cpu_move_half(unsigned char *to, size_t i, const unsigned char *from, size_t row,
                       size_t which, skv_kv_type type, size_t head_dim);

/* cpu_turn.c */
void skv_cpu_pages_turn(skv_backend *base, skv_page_pool *pool, skv_kv_type type,
                        const skv_turn_job *jobs, size_t n);

/* cpu_step.c */
/** Its functions of steps and angles. */
void skv_cpu_add_steps(skv_backend *base);

/* cpu_weights.c */
skv_bytes skv_cpu_linear_bytes(const skv_backend *base, const skv_linear_spec *spec);
skv_status skv_cpu_linear_create(skv_backend *base, const skv_linear_spec *spec, skv_linear **out,
                                 skv_error *err);
void skv_cpu_linear_free(skv_backend *base, skv_linear *w);

/* cpu_linear.c */
void skv_cpu_linear(skv_backend *base, const skv_linear_args *args);
void skv_cpu_experts_linear(skv_backend *base, const skv_experts_args *args);
/** Bytes that each product keeps while it runs. */
size_t skv_cpu_product_bytes(void);
/** Bytes of one thread's scratch for products of up to max_K columns. */
size_t skv_cpu_linear_scratch(const skv_cpu_backend *be, size_t max_K);
/** Bytes of the packed rows of a product, or of those of a group of products. */
size_t skv_cpu_packed_bytes(const skv_cpu_backend *be, const skv_backend_limits *limits);

/* cpu_experts.c */
skv_status skv_cpu_experts_create(skv_backend *base, const skv_linear *const *w, size_t n,
                                  skv_experts **out, skv_error *err);
void skv_cpu_experts_free(skv_backend *base, skv_experts *experts);
void skv_cpu_route(skv_backend *base, const skv_route_args *args);
/** Room for the choices of `route`, which `release` gives back. Bytes are 0 without experts. */
SKV_MUST_CHECK bool skv_cpu_routes_init(skv_cpu_routes *routes, const skv_backend_limits *limits);
void skv_cpu_routes_release(skv_cpu_routes *routes);
size_t skv_cpu_routes_bytes(const skv_backend_limits *limits);

/* cpu_attention.c */
void skv_cpu_attention(skv_backend *base, const skv_attention_args *args);
/** How many tasks and floats of portions any attention within the limits can need. */
size_t skv_cpu_attention_tasks(const skv_cpu_backend *be, const skv_backend_limits *limits);
size_t skv_cpu_attention_partials(const skv_cpu_backend *be, const skv_backend_limits *limits);
size_t skv_cpu_attention_task_bytes(void);

/* cpu_evict.c */
void skv_cpu_votes(skv_backend *base, const skv_votes_args *args);
/** Bytes of one thread's scratch for votes. */
size_t skv_cpu_votes_scratch(const skv_cpu_backend *be, size_t head_dim);

/* cpu_rows.c */
void skv_cpu_place(skv_backend *base, const skv_place_args *args);
void skv_cpu_mix(skv_backend *base, const skv_mix_args *args);
void skv_cpu_norm(skv_backend *base, const skv_norm_args *args);
void skv_cpu_norm_add(skv_backend *base, const skv_norm_add_args *args);
void skv_cpu_glu(skv_backend *base, const skv_glu_args *args);
void skv_cpu_embed_gate(skv_backend *base, const skv_embed_gate_args *args);
void skv_cpu_sum(skv_backend *base, skv_rows x, size_t n_rows, size_t n);
void skv_cpu_copy_rows(skv_backend *base, skv_rows to, skv_rows from, size_t n_rows, size_t n);
void skv_cpu_scale(skv_backend *base, skv_rows x, size_t n_rows, size_t n, float factor);
void skv_cpu_softcap(skv_backend *base, skv_rows x, size_t n_rows, size_t n, float cap);

void skv_cpu_gated_norm(skv_backend *base, const skv_gated_norm_args *args);

/* cpu_states.c */
skv_bytes skv_cpu_states_bytes(const skv_backend *base, const skv_states_spec *spec);
skv_status skv_cpu_states_create(skv_backend *base, const skv_states_spec *spec, skv_states **out,
                                 skv_error *err);
void skv_cpu_states_free(skv_backend *base, skv_states *states);
void skv_cpu_state_copy(skv_backend *base, skv_states *to, size_t i, const skv_states *from,
                        size_t j);
void skv_cpu_state_clear(skv_backend *base, skv_states *states, size_t i);
void skv_cpu_state_read(skv_backend *base, unsigned char *host, const skv_states *states, size_t i);
bool skv_cpu_state_write(skv_backend *base, skv_states *states, size_t i, const unsigned char *host,
                         size_t n_past);

/* cpu_conv.c */
void skv_cpu_conv(skv_backend *base, const skv_conv_args *args);
/** The first i with rows[i] >= row, or n_rows; rows NULL: i is row i. */
size_t skv_cpu_first_wanted(const uint32_t *rows, size_t n_rows, size_t row);

/* cpu_scan.c */
void skv_cpu_scan(skv_backend *base, const skv_scan_args *args);
/** Bytes of one thread's scratch. */
size_t skv_cpu_scan_scratch(const skv_backend_limits *limits);

/* cpu_pick.c */
void skv_cpu_pick(skv_backend *base, skv_backend_step *step, skv_rows logits, size_t V,
                  const skv_pick_row *rows, size_t n, size_t first);
skv_picked skv_cpu_picked_row(skv_backend *base, const skv_backend_step *step, size_t i);
/** Bytes of the desks of all threads. */
size_t skv_cpu_pick_bytes(const skv_cpu_backend *be, const skv_backend_limits *limits);
void skv_cpu_lay_out_desks(skv_cpu_backend *be, unsigned char *memory);

/* cpu_saved_rows.c */
size_t skv_cpu_row_bytes(const skv_backend *base, skv_weight_type type, size_t K);
void skv_cpu_save_rows(skv_backend *base, skv_weight_type type, unsigned char *host, skv_rows x,
                       size_t n, size_t K, skv_norm norm);
void skv_cpu_load_rows(skv_backend *base, skv_weight_type type, skv_rows x,
                       const unsigned char *host, size_t n, size_t K);

#endif
