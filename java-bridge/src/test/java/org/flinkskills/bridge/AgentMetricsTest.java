package org.flinkskills.bridge;

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
  private final AgentMetrics metrics =
      new AgentMetrics(
          TaskManagerMetricGroup.createTaskManagerMetricGroup(
              TestingMetricRegistry.builder()
                  .setRegisterConsumer(
                      (metric, name, group) -> registered.put(name + labels(group), metric))
                  .build(),
              "host",
              ResourceID.generate()),
          () -> 0,
          () -> 0);

  private static Map<String, String> labels(AbstractMetricGroup<?> group) {
    Map<String, String> labels = new TreeMap<>(group.getAllVariables());
    labels.keySet().removeAll(List.of("<host>", "<tm_id>"));
    return labels;
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
}
