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
 * The operator's metrics: counters {@code turns}, {@code failures} (turns that ended in an error
 * record) and {@code workerRestarts}, gauges {@code inFlight} and {@code pending}, and what the
 * workers report: gauges {@code worker.<index>.<name>}, and counters and histograms in groups of
 * their labels, such as {@code skill.<name>.commands}. They are listed in
 * docs/reference/metrics.md.
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

  /** Counts a turn; a failed one has ended in an error record. */
  void ended(boolean failed) {
    turns.inc();
    if (failed) {
      failures.inc();
    }
  }

  /** Takes a worker's report; a name that is new becomes a metric. */
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

  /** The group of labels, keys and values in turn, by which reporters know them as such. */
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
