package org.flinkskills.bridge;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.IntSupplier;
import java.util.function.LongSupplier;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.MetricGroup;

/**
 * The operator's metrics: counters {@code turns}, {@code failures} (turns that ended in an error
 * record) and {@code workerRestarts}, gauges {@code inFlight} and {@code pending}, and what the
 * workers report: gauges {@code worker.<index>.<name>}, and counters and histograms in groups of
 * their labels, such as {@code skill.<name>.commands}. They are listed in
 * docs/reference/metrics.md. Custom metrics are in the group {@code agent.<id>.user}, their gauges
 * in {@code worker.<index>.agent.<id>.user}.
 */
final class AgentMetrics {
  private final Counter turns;
  private final Counter failures;
  final Counter workerRestarts;

  /** Turns that have resumed after a wait. */
  final Counter resumed;

  /** Waits that have timed out. */
  final Counter timedOut;

  /** Answers that no turn uses. */
  final Counter unusedAnswers;

  private final MetricGroup group;
  private final Map<String, Number> figures = new ConcurrentHashMap<>();
  private final Map<List<String>, Counter> counters = new HashMap<>();
  private final Map<List<String>, SampledHistogram> histograms = new HashMap<>();
  private final Map<List<String>, Number> levels = new ConcurrentHashMap<>();
  private final Map<List<String>, ValueHistogram> values = new HashMap<>();

  AgentMetrics(MetricGroup group, IntSupplier inFlight, IntSupplier pending) {
    this.group = group;
    turns = group.counter("turns");
    failures = group.counter("failures");
    workerRestarts = group.counter("workerRestarts");
    resumed = group.counter("resumed");
    timedOut = group.counter("timedOut");
    unusedAnswers = group.counter("unusedAnswers");
    group.gauge("inFlight", (Gauge<Integer>) inFlight::getAsInt);
    group.gauge("pending", (Gauge<Integer>) pending::getAsInt);
  }

  /** Add the gauges of turns that wait. */
  void waiting(IntSupplier turns, LongSupplier oldestMs) {
    group.gauge("waiting", (Gauge<Integer>) turns::getAsInt);
    group.gauge("oldestWait", (Gauge<Long>) oldestMs::getAsLong);
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
    for (WorkerReport.Level level : report.levels()) {
      level(worker, level);
    }
    for (WorkerReport.Values more : report.values()) {
      values
          .computeIfAbsent(
              path(more.name(), more.labels()),
              path -> labelled(more.labels()).histogram(more.name(), new ValueHistogram()))
          .update(more.count(), more.samples());
    }
  }

  private void level(int worker, WorkerReport.Level level) {
    List<String> labels = new ArrayList<>(List.of("worker", Integer.toString(worker)));
    labels.addAll(level.labels());
    List<String> path = path(level.name(), labels);
    if (levels.put(path, level.value()) == null) {
      labelled(labels).gauge(level.name(), (Gauge<Number>) () -> levels.get(path));
    }
  }

  private static List<String> path(String name, List<String> labels) {
    List<String> path = new ArrayList<>(labels);
    path.add(name);
    return path;
  }

  /**
   * The group of labels, keys and values in turn, by which reporters know them as such. A key with
   * an empty value is a group without a value.
   */
  private MetricGroup labelled(List<String> labels) {
    MetricGroup found = group;
    for (int i = 0; i + 1 < labels.size(); i += 2) {
      String value = labels.get(i + 1);
      String key = labels.get(i);
      found = value.isEmpty() ? found.addGroup(key) : found.addGroup(key, value);
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
