package org.flinkskills.bridge.operator;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.flinkskills.bridge.kit.AgentHarness;
import org.flinkskills.bridge.kit.FakeWorkers;
import org.flinkskills.bridge.kit.FakeWorkers.FakeWorker;
import org.flinkskills.bridge.kit.FakeWorkers.Turn;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Keys while their worker, or the worker of other keys, is absent. */
@Timeout(60)
class AbsentWorkerTest {
  @TempDir File tmp;

  private final FakeWorkers workers = new FakeWorkers();

  private AgentHarness.Builder builder() {
    return new AgentHarness.Builder(workers.provider(), tmp);
  }

  /** Keys of each of two workers, by the worker's index. */
  private List<List<String>> keysByWorker(AgentHarness agent, int count) throws Exception {
    List<List<String>> keys = List.of(new ArrayList<>(), new ArrayList<>());
    for (int i = 0; i < 8 * count; i++) {
      String key = "key" + i;
      agent.send(key, key);
      agent.await(key, () -> workers.launched.stream().anyMatch(each -> !each.turns.isEmpty()));
      for (FakeWorker worker : workers.launched) {
        Turn turn = worker.turns.poll();
        if (turn != null) {
          keys.get(worker.index).add(key);
          worker.end(turn, key);
        }
      }
      int done = i + 1;
      agent.await("its end", () -> agent.getOutput().size() == done);
    }
    assertTrue(keys.stream().allMatch(each -> each.size() >= count), keys.toString());
    agent.getOutput().clear();
    return keys;
  }

  @Test
  void keysOfOtherWorkersGoOnWhileAWorkerIsAbsent() throws Exception {
    try (AgentHarness agent = builder().workers(2).maxInFlight(2).maxPending(50).open()) {
      List<List<String>> keys = keysByWorker(agent, 20);
      FakeWorker absent = workers.of(0);
      FakeWorker other = workers.of(1);
      // Turns of the worker that dies use both places.
      agent.send(keys.get(0).get(0), "lost1");
      agent.send(keys.get(0).get(1), "lost2");
      AgentOperatorCrashTest.take(absent, agent, 2);
      workers.onOpen = (worker, open) -> {};
      absent.die(137);
      FakeWorker back = workers.started(2);
      agent.await("OPEN", () -> !back.opens.isEmpty());
      for (int i = 0; i < 20; i++) {
        if (i > 1) {
          agent.send(keys.get(0).get(i), "waits" + i);
        }
        agent.send(keys.get(1).get(i), "goes" + i);
        other.end(AgentOperatorCrashTest.take(other, agent, 1).get(0), "goes" + i);
      }
      agent.awaitEmitted(20);
      List<String> order = new ArrayList<>();
      workers.onTurn =
          (worker, turn) -> {
            order.add(turn.event());
            worker.end(turn, turn.event());
          };
      back.opened(back.opens.get(0));
      agent.awaitEmitted(40);
      assertEquals(List.of("lost1", "lost2", "waits2", "waits3"), order.subList(0, 4));
    }
  }

  @Test
  void keysOfOtherWorkersGoOnWhileATurnHasAWorkerForItself() throws Exception {
    try (AgentHarness agent =
        builder().workers(2).maxInFlight(2).maxPending(50).maxCrashes(2).open()) {
      List<List<String>> keys = keysByWorker(agent, 20);
      FakeWorker bad = workers.of(0);
      FakeWorker other = workers.of(1);
      agent.send(keys.get(0).get(0), "suspect");
      AgentOperatorCrashTest.take(bad, agent, 1);
      bad.die(137);
      FakeWorker quarantine = workers.started(2);
      Turn suspect = AgentOperatorCrashTest.take(quarantine, agent, 1).get(0);
      assertEquals(1, suspect.crashes());
      for (int i = 1; i < 20; i++) {
        agent.send(keys.get(0).get(i), "waits" + i);
        agent.send(keys.get(1).get(i), "goes" + i);
        other.end(AgentOperatorCrashTest.take(other, agent, 1).get(0), "goes" + i);
      }
      agent.awaitEmitted(19);
      assertTrue(quarantine.turns.isEmpty());
      workers.onTurn = (worker, turn) -> worker.end(turn, turn.event());
      quarantine.end(suspect, "suspect");
      agent.awaitEmitted(39);
    }
  }

  @Test
  void keysOfAnAbsentWorkerWaitInStateUpToTheLimit() throws Exception {
    try (AgentHarness agent = builder().maxPending(3).open()) {
      List<Runnable> late = new ArrayList<>();
      workers.onOpen =
          (worker, open) -> {
            synchronized (late) {
              late.add(() -> worker.opened(open));
            }
          };
      workers.only().die(1);
      FakeWorker second = workers.started(1);
      agent.await("OPEN at the new worker", () -> late.size() == 1);
      for (int i = 0; i < 3; i++) {
        agent.send("k" + i, "e" + i);
      }
      CompletableFuture<Boolean> seenBlocked = AgentOperatorTest.onceBlocked(late.get(0));
      agent.send("k3", "e3");
      assertTrue(seenBlocked.get(10, TimeUnit.SECONDS));
      AgentOperatorCrashTest.take(second, agent, 4);
    }
  }
}
