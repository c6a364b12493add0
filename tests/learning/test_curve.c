/* Curves: points where the log has them, restarts, and logs that hold nothing. */
#define _XOPEN_SOURCE 700 /* mkdtemp, nftw */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "skv/curve.h"
#include "temp_folder.h"

static int make_folder(void **state)
{
    return temp_folder_make(state, "curve");
}

/* The chart of a log, free with skv_free. */
static char *draw_n(const char *folder, const char *log, size_t n, size_t *size)
{
    skv_error err = {0};
    char *log_path = skv_path_join(folder, "log.jsonl"), *path = skv_path_join(folder, "a.svg");
    char *svg = NULL;
    assert_int_equal(skv_file_write(log_path, log, n, &err), SKV_OK);
    if (skv_curve_write(log_path, path, "A < B", &err) != SKV_OK) fail_msg("%s", err.text);
    assert_int_equal(skv_file_read(path, 1 << 24, &svg, size, &err), SKV_OK);
    skv_free(log_path);
    skv_free(path);
    return svg;
}

static char *draw(const char *folder, const char *log)
{
    size_t size;
    return draw_n(folder, log, strlen(log), &size);
}

static void draws_points(void **state)
{
    char *svg = draw(*state, "{\"step\": 0, \"loss\": 4, \"lr\": 0.001}\n"
                             "{\"event\": \"checkpoint\"}\nnot json\n"
                             "{\"step\": 10, \"loss\": 0, \"lr\": 0}");
    assert_non_null(strstr(svg, "A &lt; B"));
    assert_non_null(strstr(svg, "step 10: loss 0.0000"));
    /* The first and last point of the loss: corners of its panel. */
    assert_non_null(strstr(svg, "points=\"88.0,72.0 736.0,340.0\""));
    assert_non_null(strstr(svg, "</svg>"));
    skv_free(svg);
}

static void a_restart_takes_steps_again(void **state)
{
    char *svg = draw(*state, "{\"step\": 1, \"loss\": 4, \"lr\": 1}\n{\"step\": 2, \"loss\": 9, "
                             "\"lr\": 1}\n{\"step\": 2, \"loss\": 3, \"lr\": 1}\n"
                             "{\"step\": 3, \"loss\": 2, \"lr\": 1}\n");
    assert_null(strstr(svg, ">9<"));
    skv_free(svg);
}

static void many_points_make_a_short_file(void **state)
{
    size_t size;
    skv_buf log;
    skv_buf_init(&log, 1 << 24);
    for (int i = 0; i < 20000; i++) {
        (void)skv_buf_printf(&log, "{\"step\": %d, \"loss\": %d, \"lr\": 0.5}\n", i, i % 7);
    }
    skv_free(draw_n(*state, log.data, log.size, &size));
    assert_true(size < 60000);
    skv_buf_release(&log);
}

static void refuses_an_empty_log(void **state)
{
    skv_error err = {0};
    char expected[4200], *path = skv_path_join(*state, "run.jsonl");
    (void)snprintf(expected, sizeof expected, "%s: no line with step, loss and lr", path);
    assert_int_equal(skv_file_write(path, "{}\n", 3, &err), SKV_OK);
    assert_int_equal(skv_curve_write(path, "/nowhere/b", "t", &err), SKV_FORMAT);
    assert_string_equal(err.text, expected);
    assert_int_equal(skv_curve_write("/nowhere/a", "/nowhere/b", "t", &err), SKV_IO);
    skv_free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_points),
        cmocka_unit_test(a_restart_takes_steps_again),
        cmocka_unit_test(many_points_make_a_short_file),
        cmocka_unit_test(refuses_an_empty_log),
    };
    return cmocka_run_group_tests(tests, make_folder, temp_folder_drop);
}
