/* Curves: points where the log has them, restarts, and logs that hold nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "skv/curve.h"
#include "train/curve_draw.h"

static char *draw(const char *log)
{
    skv_buf out;
    skv_error err = {0};
    skv_buf_init(&out, 1 << 24);
    if (skv_curve_draw(log, strlen(log), "log", "A < B", &out, &err) != SKV_OK) {
        fail_msg("%s", err.text);
    }
    return out.data;
}

static void draws_points(void **state)
{
    (void)state;
    char *svg = draw("{\"step\": 0, \"loss\": 4, \"lr\": 0.001}\n"
                     "{\"event\": \"checkpoint\"}\nnot json\n"
                     "{\"step\": 10, \"loss\": 0, \"lr\": 0}");
    assert_non_null(strstr(svg, "A &lt; B"));
    assert_non_null(strstr(svg, "step 10: loss 0.0000"));
    /* The first and last point of the loss: corners of its panel. */
    assert_non_null(strstr(svg, "points=\"88.0,72.0 736.0,340.0\""));
    assert_non_null(strstr(svg, "</svg>"));
    skv_buf owner = {.data = svg};
    skv_buf_release(&owner);
}

static void a_restart_takes_steps_again(void **state)
{
    (void)state;
    char *svg = draw("{\"step\": 1, \"loss\": 4, \"lr\": 1}\n{\"step\": 2, \"loss\": 9, "
                     "\"lr\": 1}\n{\"step\": 2, \"loss\": 3, \"lr\": 1}\n"
                     "{\"step\": 3, \"loss\": 2, \"lr\": 1}\n");
    assert_null(strstr(svg, ">9<"));
    skv_buf owner = {.data = svg};
    skv_buf_release(&owner);
}

static void many_points_make_a_short_file(void **state)
{
    (void)state;
    skv_buf log, out;
    skv_buf_init(&log, 1 << 24);
    skv_buf_init(&out, 1 << 24);
    for (int i = 0; i < 20000; i++) {
        (void)skv_buf_printf(&log, "{\"step\": %d, \"loss\": %d, \"lr\": 0.5}\n", i, i % 7);
    }
    assert_int_equal(skv_curve_draw(log.data, log.size, "log", "t", &out, NULL), SKV_OK);
    assert_true(out.size < 60000);
    skv_buf_release(&log);
    skv_buf_release(&out);
}

static void refuses_an_empty_log(void **state)
{
    (void)state;
    skv_buf out;
    skv_error err = {0};
    skv_buf_init(&out, 1 << 20);
    assert_int_equal(skv_curve_draw("{}\n", 3, "run.jsonl", "t", &out, &err), SKV_FORMAT);
    assert_string_equal(err.text, "run.jsonl: no line with step, loss and lr");
    assert_int_equal(skv_curve_write("/nowhere/a", "/nowhere/b", "t", &err), SKV_IO);
    skv_buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_points),
        cmocka_unit_test(a_restart_takes_steps_again),
        cmocka_unit_test(many_points_make_a_short_file),
        cmocka_unit_test(refuses_an_empty_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
