package org.flinkskills.bridge.metrics;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/**
 * Report of a worker about a plan: the current gauges, and the changes of counters and histograms
 * since the last report. Labels alternate between keys and values. A key with an empty value is a
 * group without a value.
 *
 * @param workerGauges gauges without labels, by name
 * @param gauges gauges that have labels in addition to their worker
 */
public record WorkerReport(
    Map<String, Number> workerGauges,
    List<Level> gauges,
    List<Increase> counters,
    List<Samples> histograms) {

  /** The value of a gauge. */
  record Level(String name, List<String> labels, Number value) {}

  record Increase(String name, List<String> labels, long by) {}

  /** The number of values of a histogram, and samples of them. */
  record Samples(String name, List<String> labels, long count, double[] samples) {}

  public static WorkerReport ofGauges(Map<String, Number> workerGauges) {
    return new WorkerReport(Map.copyOf(workerGauges), List.of(), List.of(), List.of());
  }

  /** Read a report. Unknown fields are omitted. */
  public static WorkerReport of(JsonNode json) {
    Map<String, Number> workerGauges = new LinkedHashMap<>();
    for (Map.Entry<String, JsonNode> field : json.properties()) {
      if (field.getValue().isNumber()) {
        workerGauges.put(field.getKey(), field.getValue().numberValue());
      }
    }
    List<Level> gauges = new ArrayList<>();
    for (JsonNode row : json.path("gauges")) {
      if (row.path(2).isNumber()) {
        gauges.add(new Level(row.path(0).asText(), labels(row), row.path(2).numberValue()));
      }
    }
    List<Increase> counters = new ArrayList<>();
    for (JsonNode row : json.path("counters")) {
      counters.add(
          new Increase(row.path(0).asText(), labels(row), Math.max(0, row.path(2).asLong())));
    }
    List<Samples> histograms = new ArrayList<>();
    // Durations in milliseconds, and the histograms of user code.
    for (String field : List.of("histograms", "values")) {
      for (JsonNode row : json.path(field)) {
        double[] samples = new double[row.path(3).size()];
        for (int i = 0; i < samples.length; i++) {
          samples[i] = row.path(3).get(i).asDouble();
        }
        histograms.add(
            new Samples(row.path(0).asText(), labels(row), row.path(2).asLong(), samples));
      }
    }
    return new WorkerReport(workerGauges, gauges, counters, histograms);
  }

  private static List<String> labels(JsonNode row) {
    List<String> labels = new ArrayList<>();
    row.path(1).forEach(label -> labels.add(label.asText()));
    return labels;
  }
}
