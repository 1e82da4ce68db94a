package org.flinkskills.bridge;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.IntSupplier;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.MetricGroup;

/**
 * The operator's metrics: counters {@code turns}, {@code failures} (turns that ended in an error
 * record) and {@code workerRestarts}, gauges {@code inFlight} and {@code pending}, and what the
 * workers report, as gauges {@code worker.<index>.<name>}.
 */
final class AgentMetrics {
  final Counter turns;
  final Counter failures;
  final Counter workerRestarts;

  private final MetricGroup group;
  private final Map<String, Number> figures = new ConcurrentHashMap<>();

  AgentMetrics(MetricGroup group, IntSupplier inFlight, IntSupplier pending) {
    this.group = group;
    turns = group.counter("turns");
    failures = group.counter("failures");
    workerRestarts = group.counter("workerRestarts");
    group.gauge("inFlight", (Gauge<Integer>) inFlight::getAsInt);
    group.gauge("pending", (Gauge<Integer>) pending::getAsInt);
  }

  /** Takes a worker's latest figures; a name that is new becomes a gauge. */
  void workerFigures(int worker, Map<String, Number> latest) {
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
