/*
 * bench_onednn [int8|bf16]...: products of oneDNN, with weights that it packed ahead, in the shapes
 * of bench_matmul's prompts. Rows are int8 codes or bfloat16 beforehand, so that nothing but the
 * product is timed. OMP_NUM_THREADS says how many threads.
 *
 *     apt-get install libdnnl-dev
 *     cc -O2 -std=c11 -o bench_onednn bench/peers/bench_onednn.c -ldnnl
 */
#define _POSIX_C_SOURCE 200809L
#include <dnnl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUNS_MAX = 200 };

static const double RUN_SECONDS = 0.3;

static void check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success) return;
    fprintf(stderr, "%s: status %d\n", what, (int)status);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static dnnl_memory_t make_memory(const dnnl_memory_desc_t *desc, dnnl_engine_t engine)
{
    dnnl_memory_t memory;
    check(dnnl_memory_create(&memory, desc, engine, DNNL_MEMORY_ALLOCATE), "memory");
    void *data;
    check(dnnl_memory_get_data_handle(memory, &data), "data");
    memset(data, 1, dnnl_memory_desc_get_size(desc));
    return memory;
}

/* y [M, N] = x [M, K] times w [K, N], w in the layout that oneDNN chose. */
static void bench(dnnl_engine_t engine, dnnl_stream_t stream, bool bf16, const dnnl_dim_t *shape)
{
    const dnnl_dim_t M = shape[0], N = shape[1], K = shape[2];
    const dnnl_data_type_t type = bf16 ? dnnl_bf16 : dnnl_s8;
    const dnnl_dims_t x_dims = {M, K}, w_dims = {K, N}, y_dims = {M, N};
    dnnl_memory_desc_t x_desc, w_desc, y_desc;
    check(dnnl_memory_desc_init_by_tag(&x_desc, 2, x_dims, type, dnnl_ab), "x");
    check(dnnl_memory_desc_init_by_tag(&w_desc, 2, w_dims, type, dnnl_format_tag_any), "w");
    check(dnnl_memory_desc_init_by_tag(&y_desc, 2, y_dims, dnnl_f32, dnnl_ab), "y");
    dnnl_matmul_desc_t product;
    check(dnnl_matmul_desc_init(&product, &x_desc, &w_desc, NULL, &y_desc), "product");
    dnnl_primitive_desc_t described;
    check(dnnl_primitive_desc_create(&described, &product, NULL, engine, NULL), "description");
    dnnl_primitive_t primitive;
    check(dnnl_primitive_create(&primitive, described), "primitive");
    const dnnl_memory_desc_t *packed =
        dnnl_primitive_desc_query_md(described, dnnl_query_weights_md, 0);
    const char *name = "";
    (void)dnnl_primitive_desc_query(described, dnnl_query_impl_info_str, 0, &name);
    dnnl_memory_t x = make_memory(&x_desc, engine), w = make_memory(packed, engine);
    dnnl_memory_t y = make_memory(&y_desc, engine);
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y}};
    double times[RUNS_MAX], total = 0;
    size_t n = 0;
    check(dnnl_primitive_execute(primitive, stream, 3, args), "execute");
    while (n < RUNS_MAX && (n < 5 || total < RUN_SECONDS)) {
        const double start = now();
        check(dnnl_primitive_execute(primitive, stream, 3, args), "execute");
        check(dnnl_stream_wait(stream), "wait");
        times[n] = now() - start;
        total += times[n++];
    }
    qsort(times, n, sizeof *times, compare);
    const double ops = 2.0 * (double)M * (double)N * (double)K;
    printf("%s %5d x %5d x %5d  %8.1f GOP/s (median)  %8.1f (best)  %s\n", bf16 ? "bf16" : "int8",
           (int)M, (int)N, (int)K, ops / times[n / 2] * 1e-9, ops / times[0] * 1e-9, name);
    dnnl_memory_destroy(x);
    dnnl_memory_destroy(w);
    dnnl_memory_destroy(y);
    dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(described);
}

int main(int argc, char **argv)
{
    static const dnnl_dim_t shapes[][3] = {{64, 8192, 2048},  {512, 2048, 2048},  {512, 8192, 2048},
                                           {512, 2048, 8192}, {2048, 8192, 2048}, {512, 576, 576}};
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    check(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine");
    check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "stream");
    for (int i = 1; i < argc; i++) {
        for (size_t j = 0; j < sizeof shapes / sizeof shapes[0]; j++) {
            bench(engine, stream, strcmp(argv[i], "bf16") == 0, shapes[j]);
        }
    }
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
    return 0;
}
