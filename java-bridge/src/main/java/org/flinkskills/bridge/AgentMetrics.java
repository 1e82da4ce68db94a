package org.flinkskills.bridge;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.IntSupplier;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.MetricGroup;

/**
 * Metrics of an agent operator: counters {@code turns}, {@code failures} (turns that ended in an
 * error record) and {@code workerRestarts}, and gauges {@code inFlight} and {@code pending}.
 *
 * <p>The reports of workers add gauges {@code worker.<index>.<name>}, and counters and histograms
 * in groups of their labels, such as {@code skill.<name>.commands}. docs/reference/metrics.md lists
 * all of them.
 */
final class AgentMetrics {
  private final Counter turns;
  private final Counter failures;
  final Counter workerRestarts;

  private final MetricGroup group;
  private final Map<String, Number> figures = new ConcurrentHashMap<>();
  private final Map<List<String>, Counter> counters = new HashMap<>();
  private final Map<List<String>, SampledHistogram> histograms = new HashMap<>();

  AgentMetrics(MetricGroup group, IntSupplier inFlight, IntSupplier pending) {
    this.group = group;
    turns = group.counter("turns");
    failures = group.counter("failures");
    workerRestarts = group.counter("workerRestarts");
    group.gauge("inFlight", (Gauge<Integer>) inFlight::getAsInt);
    group.gauge("pending", (Gauge<Integer>) pending::getAsInt);
  }

  /** Count a turn. A failed turn has ended in an error record. */
  void ended(boolean failed) {
    turns.inc();
    if (failed) {
      failures.inc();
    }
  }

  /** Apply a worker's report. Register a metric for each new name. */
  void report(int worker, WorkerReport report) {
    gauges(worker, report.gauges());
    for (WorkerReport.Increase increase : report.increases()) {
      counters
          .computeIfAbsent(
              path(increase.name(), increase.labels()),
              path -> labelled(increase.labels()).counter(increase.name()))
          .inc(increase.by());
    }
    for (WorkerReport.Durations durations : report.durations()) {
      histograms
          .computeIfAbsent(
              path(durations.name(), durations.labels()),
              path ->
                  labelled(durations.labels()).histogram(durations.name(), new SampledHistogram()))
          .update(durations.count(), durations.samples());
    }
  }

  private static List<String> path(String name, List<String> labels) {
    List<String> path = new ArrayList<>(labels);
    path.add(name);
    return path;
  }

  /** Return the group of labels, which alternate between keys and values. */
  private MetricGroup labelled(List<String> labels) {
    MetricGroup found = group;
    for (int i = 0; i + 1 < labels.size(); i += 2) {
      found = found.addGroup(labels.get(i), labels.get(i + 1));
    }
    return found;
  }

  private void gauges(int worker, Map<String, Number> latest) {
    latest.forEach(
        (name, value) -> {
          String key = worker + "/" + name;
          if (figures.put(key, value) == null) {
            group
                .addGroup("worker", Integer.toString(worker))
                .gauge(name, (Gauge<Number>) () -> figures.get(key));
          }
        });
  }
}
