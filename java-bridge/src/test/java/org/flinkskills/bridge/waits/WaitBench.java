package org.flinkskills.bridge.waits;

import java.io.File;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.Metric;
import org.flinkskills.bridge.kit.AgentHarness;
import org.flinkskills.bridge.kit.FakeWorkers;
import org.flinkskills.bridge.kit.FakeWorkers.FakeWorker;
import org.flinkskills.bridge.kit.FakeWorkers.Turn;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.io.TempDir;

/** An agent on fake workers, for tests of turns that wait. */
abstract class WaitBench {
  @TempDir File tmp;

  final FakeWorkers workers = new FakeWorkers();
  final Map<String, Metric> metrics = new ConcurrentHashMap<>();
  AgentHarness agent;

  @AfterEach
  void closeAgent() throws Exception {
    if (agent != null) {
      agent.close();
    }
  }

  AgentHarness.Builder builder() {
    return new AgentHarness.Builder(workers.provider(), tmp);
  }

  /** Start the turn of an event, and let it wait. */
  Turn park(FakeWorker worker, String key, String event, String waitId) throws Exception {
    agent.send(key, event);
    Turn turn = worker.takeTurn(event);
    worker.step(turn, false, "step of " + event);
    worker.open(turn, waitId, "approval", "waits>question " + waitId);
    int waiting = waiting();
    worker.park(turn);
    agent.await("the turn waits", () -> waiting() == waiting + 1);
    return turn;
  }

  @SuppressWarnings("unchecked")
  int waiting() {
    return ((Gauge<Integer>) metrics.get("waiting")).getValue();
  }

  long counted(String name) {
    return ((Counter) metrics.get(name)).getCount();
  }
}
