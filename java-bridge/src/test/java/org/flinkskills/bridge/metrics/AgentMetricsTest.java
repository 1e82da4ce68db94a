package org.flinkskills.bridge.metrics;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.Histogram;
import org.apache.flink.metrics.Metric;
import org.apache.flink.runtime.clusterframework.types.ResourceID;
import org.apache.flink.runtime.metrics.groups.AbstractMetricGroup;
import org.apache.flink.runtime.metrics.groups.TaskManagerMetricGroup;
import org.apache.flink.runtime.metrics.util.TestingMetricRegistry;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.junit.jupiter.api.Test;

class AgentMetricsTest {
  private final Map<String, Metric> registered = new HashMap<>();
  private final Map<String, String> scopes = new HashMap<>();
  private int started;
  private final AgentMetrics metrics =
      new AgentMetrics(
          TaskManagerMetricGroup.createTaskManagerMetricGroup(
              TestingMetricRegistry.builder()
                  .setRegisterConsumer(
                      (metric, name, group) -> {
                        registered.put(name + labels(group), metric);
                        scopes.put(name + labels(group), scope(group));
                      })
                  .build(),
              "host",
              ResourceID.generate()),
          20,
          () -> started,
          () -> 0);

  private static Map<String, String> labels(AbstractMetricGroup<?> group) {
    Map<String, String> labels = new TreeMap<>(group.getAllVariables());
    labels.keySet().removeAll(List.of("<host>", "<tm_id>"));
    return labels;
  }

  /** The part of the name in Prometheus that the operator's groups add. */
  private static String scope(AbstractMetricGroup<?> group) {
    return group.getLogicalScope(text -> text, '.').replaceFirst("taskmanager\\.?", "");
  }

  private void report(int worker, String json) throws Exception {
    metrics.report(worker, WorkerReport.of(new ObjectMapper().readTree(json)));
  }

  private long count(String name) {
    return ((Counter) registered.get(name)).getCount();
  }

  @Test
  void countersOfAllWorkersAddUpAndHaveTheirLabels() throws Exception {
    String name = "inputTokens{<agent>=desk, <model>=m.1}";
    report(0, "{\"counters\": [[\"inputTokens\", [\"agent\", \"desk\", \"model\", \"m.1\"], 3]]}");
    report(1, "{\"counters\": [[\"inputTokens\", [\"agent\", \"desk\", \"model\", \"m.1\"], 4]]}");
    report(0, "{\"counters\": [[\"inputTokens\", [\"agent\", \"desk\", \"model\", \"m.2\"], 0]]}");
    assertEquals(7, count(name));
    assertEquals(0, count("inputTokens{<agent>=desk, <model>=m.2}"));
  }

  @Test
  void usedCapacityIsTheShareOfTurnsInFlight() {
    Gauge<?> used = (Gauge<?>) registered.get("usedCapacity{}");
    assertEquals(0.0, used.getValue());
    started = 10;
    assertEquals(0.5, used.getValue());
    // Turns of a lost worker do not count against the limit.
    started = 30;
    assertEquals(1.0, used.getValue());
  }

  @Test
  void aCounterNeverGoesBack() throws Exception {
    report(0, "{\"counters\": [[\"steps\", [], 3], [\"steps\", [], -2]]}");
    assertEquals(3, count("steps{}"));
  }

  @Test
  void aHistogramCountsAlsoWhatItHasNoSampleOf() throws Exception {
    report(0, "{\"histograms\": [[\"toolLatency\", [\"tool\", \"price\"], 300, [1, 2, 9]]]}");
    report(0, "{\"histograms\": [[\"toolLatency\", [\"tool\", \"price\"], 1, [4]]]}");
    Histogram histogram = (Histogram) registered.get("toolLatency{<tool>=price}");
    assertEquals(301, histogram.getCount());
    assertEquals(9, histogram.getStatistics().getMax());
    assertEquals(4, histogram.getStatistics().getMean());
  }

  @Test
  void aGaugeIsOfItsWorkerAndShowsTheLastValue() throws Exception {
    report(1, "{\"eventLoopLag\": 3, \"skills\": 2}");
    report(1, "{\"eventLoopLag\": 5, \"word\": \"x\"}");
    assertEquals(5, ((Gauge<?>) registered.get("eventLoopLag{<worker>=1}")).getValue());
    assertEquals(2, ((Gauge<?>) registered.get("skills{<worker>=1}")).getValue());
  }

  @Test
  void metricsOfTheAgentsCodeAreInAGroupOfTheirOwn() throws Exception {
    String own = "[\"agent\", \"desk\", \"user\", \"\", \"tenant\", \"acme\"]";
    report(0, "{\"counters\": [[\"requests\", " + own + ", 3]]}");
    report(1, "{\"counters\": [[\"requests\", " + own + ", 4]]}");
    assertEquals(7, count("requests{<agent>=desk, <tenant>=acme}"));
    assertEquals(
        "agent.user.tenant", scopes.get("requests{<agent>=desk, <tenant>=acme}"), "logical scope");
  }

  @Test
  void aGaugeWithLabelsIsOfItsWorkerAndShowsTheLastValue() throws Exception {
    String own = "[\"agent\", \"desk\", \"user\", \"\"]";
    report(0, "{\"gauges\": [[\"backlog\", " + own + ", 3]]}");
    report(1, "{\"gauges\": [[\"backlog\", " + own + ", 9], [\"text\", [], \"x\"]]}");
    report(0, "{\"gauges\": [[\"backlog\", " + own + ", 2.5]]}");
    String name = "backlog{<agent>=desk, <worker>=%d}";
    assertEquals(2.5, ((Gauge<?>) registered.get(name.formatted(0))).getValue());
    assertEquals(9, ((Gauge<?>) registered.get(name.formatted(1))).getValue());
    assertEquals("worker.agent.user", scopes.get(name.formatted(0)));
  }

  @Test
  void aHistogramOfTheAgentsCodeHasFractions() throws Exception {
    String own = "[\"agent\", \"desk\", \"user\", \"\"]";
    report(0, "{\"values\": [[\"score\", " + own + ", 300, [0.25, 0.5, 0.75]]]}");
    report(1, "{\"values\": [[\"score\", " + own + ", 1, [4]]]}");
    Histogram histogram = (Histogram) registered.get("score{<agent>=desk}");
    assertEquals(301, histogram.getCount());
    assertEquals(4, histogram.getStatistics().size());
    assertEquals(1.375, histogram.getStatistics().getMean());
    assertEquals(0.625, histogram.getStatistics().getQuantile(0.5));
  }
}
