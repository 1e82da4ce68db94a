package org.flinkskills.bridge;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;

/**
 * Report of a worker about a plan: the current gauges, and the changes of counters and histograms
 * since the last report. Labels alternate between keys and values. A key with an empty value is a
 * group without a value.
 */
record WorkerReport(
    Map<String, Number> gauges,
    List<Increase> increases,
    List<Durations> durations,
    List<Level> levels,
    List<Values> values) {

  record Increase(String name, List<String> labels, long by) {}

  /** Durations in milliseconds: their number, and samples. */
  record Durations(String name, List<String> labels, long count, long[] samples) {}

  /** The value of a gauge that has labels in addition to its worker. */
  record Level(String name, List<String> labels, Number value) {}

  /** Values of a histogram of fractions: their number, and samples. */
  record Values(String name, List<String> labels, long count, double[] samples) {}

  static WorkerReport ofGauges(Map<String, Number> gauges) {
    return new WorkerReport(Map.copyOf(gauges), List.of(), List.of(), List.of(), List.of());
  }

  /** Read a report. Unknown fields are omitted. */
  static WorkerReport of(JsonNode json) {
    Map<String, Number> gauges = new LinkedHashMap<>();
    for (Map.Entry<String, JsonNode> figure : json.properties()) {
      if (figure.getValue().isNumber()) {
        gauges.put(figure.getKey(), figure.getValue().numberValue());
      }
    }
    List<Increase> increases = new ArrayList<>();
    for (JsonNode row : json.path("counters")) {
      increases.add(
          new Increase(
              row.path(0).asText(), texts(row.path(1)), Math.max(0, row.path(2).asLong())));
    }
    List<Durations> durations = new ArrayList<>();
    for (JsonNode row : json.path("histograms")) {
      JsonNode values = row.path(3);
      long[] samples = new long[values.size()];
      for (int i = 0; i < samples.length; i++) {
        samples[i] = values.get(i).asLong();
      }
      durations.add(
          new Durations(row.path(0).asText(), texts(row.path(1)), row.path(2).asLong(), samples));
    }
    List<Level> levels = new ArrayList<>();
    for (JsonNode row : json.path("gauges")) {
      if (row.path(2).isNumber()) {
        levels.add(new Level(row.path(0).asText(), texts(row.path(1)), row.path(2).numberValue()));
      }
    }
    List<Values> values = new ArrayList<>();
    for (JsonNode row : json.path("values")) {
      JsonNode known = row.path(3);
      double[] samples = new double[known.size()];
      for (int i = 0; i < samples.length; i++) {
        samples[i] = known.get(i).asDouble();
      }
      values.add(
          new Values(row.path(0).asText(), texts(row.path(1)), row.path(2).asLong(), samples));
    }
    return new WorkerReport(gauges, increases, durations, levels, values);
  }

  private static List<String> texts(JsonNode array) {
    List<String> texts = new ArrayList<>();
    array.forEach(text -> texts.add(text.asText()));
    return texts;
  }
}
