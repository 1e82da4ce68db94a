package org.flinkskills.bridge.pool;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.flinkskills.bridge.AgentOpenException;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.metrics.WorkerReport;
import org.flinkskills.bridge.plan.AgentPlan;

/** Plan of a pool, with the reports of workers that wait for its first operator. */
final class PooledPlan {
  private static final ObjectMapper JSON = new ObjectMapper();

  final int id;
  final AgentPlan source;
  final JsonNode json;
  final Map<String, List<String>> resources;

  /** Workers that have opened the plan. */
  final Set<Integer> openedBy = new HashSet<>();

  /** The latest gauges of each worker. */
  final Map<Integer, Map<String, Number>> gauges = new HashMap<>();

  /** Reports of workers that arrived while the plan had no operator. */
  final List<Map.Entry<Integer, WorkerReport>> reports = new ArrayList<>();

  /** Events outside turns that arrived before the plan had an operator. */
  final List<byte[]> events = new ArrayList<>();

  /** The reason why a worker could not open the plan, or null. */
  AgentOpenException failure;

  PooledPlan(int id, AgentPlan source, JsonNode json, Map<String, List<String>> resources) {
    this.id = id;
    this.source = source;
    this.json = json;
    this.resources = resources;
  }

  /** Report the latest gauges of each worker, and the reports that wait for an operator. */
  void reportMetrics(WorkerListener listener) {
    gauges.forEach((worker, latest) -> listener.onMetrics(worker, WorkerReport.ofGauges(latest)));
    reports.forEach(report -> listener.onMetrics(report.getKey(), report.getValue()));
    reports.clear();
  }

  /** Report the events that wait for an operator. */
  void reportEvents(WorkerListener listener) {
    if (!events.isEmpty()) {
      listener.onEvents(List.copyOf(events));
      events.clear();
    }
  }

  /**
   * Return the JSON with which a worker opens the plan.
   *
   * @param pool the fields that are the same for all plans and workers
   */
  byte[] config(ObjectNode pool, int worker) {
    ObjectNode config = pool.deepCopy();
    config.put("frames", Frames.FORMAT);
    config.set("plan", json);
    config.put("secrets", source.secrets());
    config.set("resources", JSON.valueToTree(resources));
    config.put("worker_index", worker);
    config.put("events", source.events());
    try {
      return JSON.writeValueAsBytes(config);
    } catch (IOException e) {
      throw new IllegalStateException("The plan of an agent cannot be written as JSON.", e);
    }
  }
}
