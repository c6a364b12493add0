/* The text format of Prometheus: see metric_text.h. */
#include "service/metric_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void metric_head(skv_buf *out, const metric_name *name, const char *type, const char *help)
{
    skv_buf_printf(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", name->prefix, name->name, help,
                   name->prefix, name->name, type);
}

/* "prefix_name{labels,more,last}"; any of the three may be missing. */
static void add_name(skv_buf *out, const metric_name *name, const char *suffix, const char *last)
{
    const char *const labels[] = {name->labels, name->more, last};
    const char *before = "{";
    skv_buf_printf(out, "%s%s%s", name->prefix, name->name, suffix);
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        if (!labels[i] || labels[i][0] == 0) continue;
        skv_buf_printf(out, "%s%s", before, labels[i]);
        before = ",";
    }
    if (*before == ',') skv_buf_text(out, "}");
}

void metric_sample(skv_buf *out, const metric_name *name, double value)
{
    add_name(out, name, "", NULL);
    skv_buf_printf(out, " %.15g\n", value);
}

void metric_histogram(skv_buf *out, const metric_name *name, const skv_histogram *h)
{
    uint64_t n = 0;
    for (size_t i = 0; i < SKV_HISTOGRAM_BUCKETS; i++) {
        char bound[48];
        const double most = skv_histogram_bounds()[i];
        n += h->counts[i];
        (void)snprintf(bound, sizeof bound, isinf(most) ? "le=\"+Inf\"" : "le=\"%g\"", most);
        add_name(out, name, "_bucket", bound);
        skv_buf_printf(out, " %" PRIu64 "\n", n);
    }
    add_name(out, name, "_sum", NULL);
    skv_buf_printf(out, " %.9g\n", h->sum);
    add_name(out, name, "_count", NULL);
    skv_buf_printf(out, " %" PRIu64 "\n", n);
}

double metric_kv_usage(const skv_scheduler_metrics *m)
{
    const size_t busy = m->kv_pages_used - m->kv_pages_cached;
    return m->kv_pages > 0 ? (double)busy / (double)m->kv_pages : 0;
}

void metric_label(metric_source *source, const char *before)
{
    skv_buf text = {.max = LIMIT_TEXT_BYTES};
    skv_buf_text(&text, before);
    out_json_str(&text, source->model->name);
    if (!text.failed && text.size < sizeof source->labels) {
        memcpy(source->labels, text.data, text.size);
        source->labels[text.size] = 0;
    }
    skv_buf_release(&text);
}
