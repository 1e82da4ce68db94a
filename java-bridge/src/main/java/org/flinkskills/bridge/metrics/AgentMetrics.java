package org.flinkskills.bridge.metrics;

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
import org.apache.flink.metrics.SimpleCounter;

/**
 * The operator's metrics: counters {@code turns}, {@code failures} (turns that ended in an error
 * record) and {@code workerRestarts}, gauges {@code inFlight}, {@code usedCapacity} and {@code
 * pending}, and the metrics that workers report: gauges {@code worker.<index>.<name>}, and counters and histograms in groups
 * of their labels, such as {@code skill.<name>.commands}. They are listed in
 * docs/reference/telemetry.md. Custom metrics are in the group {@code agent.<id>.user}, their
 * gauges in {@code worker.<index>.agent.<id>.user}.
 */
public final class AgentMetrics {
  private final Counter turns;
  private final Counter failures;
  public final Counter workerRestarts;

  /** Turns that have resumed after a wait. */
  public final Counter resumed;

  /** Waits that have timed out. */
  public final Counter timedOut;

  /** Keys that were erased. */
  public final Counter forgotten;

  /** Answers that no turn uses. */
  public final Counter unusedAnswers;

  /**
   * Records of the control stream, and those without an effect. They are not exported without one.
   */
  public final Counter controlRecords = new SimpleCounter();

  public final Counter unusedControlRecords = new SimpleCounter();

  private final MetricGroup group;
  private final Map<List<String>, Number> gauges = new ConcurrentHashMap<>();
  private final Map<List<String>, Counter> counters = new HashMap<>();
  private final Map<List<String>, SampledHistogram> histograms = new HashMap<>();

  /**
   * Register the metrics of an operator.
   *
   * @param maxInFlight maximum number of turns in flight
   */
  public AgentMetrics(
      MetricGroup group, int maxInFlight, IntSupplier inFlight, IntSupplier pending) {
    this.group = group;
    turns = group.counter("turns");
    failures = group.counter("failures");
    workerRestarts = group.counter("workerRestarts");
    resumed = group.counter("resumed");
    timedOut = group.counter("timedOut");
    forgotten = group.counter("forgotten");
    unusedAnswers = group.counter("unusedAnswers");
    group.gauge("inFlight", (Gauge<Integer>) inFlight::getAsInt);
    group.gauge(
        "usedCapacity",
        (Gauge<Double>) () -> Math.min(1.0, inFlight.getAsInt() / (double) maxInFlight));
    group.gauge("pending", (Gauge<Integer>) pending::getAsInt);
  }

  /** Add the metrics of a control stream. */
  public void control(IntSupplier paused) {
    group.counter("controlRecords", controlRecords);
    group.counter("unusedControlRecords", unusedControlRecords);
    group.gauge("paused", (Gauge<Integer>) paused::getAsInt);
  }

  /** Add the gauges of turns that wait. */
  public void waiting(IntSupplier turns, LongSupplier oldestMs) {
    group.gauge("waiting", (Gauge<Integer>) turns::getAsInt);
    group.gauge("oldestWait", (Gauge<Long>) oldestMs::getAsLong);
  }

  /**
   * Count a turn.
   *
   * @param failed whether the turn ended in an error record
   */
  public void ended(boolean failed) {
    turns.inc();
    if (failed) {
      failures.inc();
    }
  }

  /** Add a worker's report. A new name becomes a metric. */
  public void report(int worker, WorkerReport report) {
    report
        .workerGauges()
        .forEach((name, value) -> level(worker, new WorkerReport.Level(name, List.of(), value)));
    report.gauges().forEach(level -> level(worker, level));
    for (WorkerReport.Increase increase : report.counters()) {
      counters
          .computeIfAbsent(
              path(increase.name(), increase.labels()),
              path -> groupOf(increase.labels()).counter(increase.name()))
          .inc(increase.by());
    }
    for (WorkerReport.Samples more : report.histograms()) {
      histograms
          .computeIfAbsent(
              path(more.name(), more.labels()),
              path -> groupOf(more.labels()).histogram(more.name(), new SampledHistogram()))
          .update(more.count(), more.samples());
    }
  }

  private void level(int worker, WorkerReport.Level level) {
    List<String> labels = new ArrayList<>(List.of("worker", Integer.toString(worker)));
    labels.addAll(level.labels());
    List<String> path = path(level.name(), labels);
    if (gauges.put(path, level.value()) == null) {
      groupOf(labels).gauge(level.name(), (Gauge<Number>) () -> gauges.get(path));
    }
  }

  private static List<String> path(String name, List<String> labels) {
    List<String> path = new ArrayList<>(labels);
    path.add(name);
    return path;
  }

  /**
   * Return the group of labels. Reporters export its keys and values as labels. A key with an empty
   * value is a group without a value.
   */
  private MetricGroup groupOf(List<String> labels) {
    MetricGroup found = group;
    for (int i = 0; i + 1 < labels.size(); i += 2) {
      String value = labels.get(i + 1);
      String key = labels.get(i);
      found = value.isEmpty() ? found.addGroup(key) : found.addGroup(key, value);
    }
    return found;
  }
}
