package org.flinkskills.bridge.operator;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.Metric;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.watermarkstatus.WatermarkStatus;
import org.flinkskills.bridge.AgentTurnException;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.kit.AgentHarness;
import org.flinkskills.bridge.kit.FakeWorkers;
import org.flinkskills.bridge.kit.FakeWorkers.FakeWorker;
import org.flinkskills.bridge.kit.FakeWorkers.Turn;
import org.flinkskills.bridge.kit.Waiting;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
class AgentOperatorTest {
  @TempDir File tmp;

  private final FakeWorkers workers = new FakeWorkers();
  private AgentHarness agent;

  @BeforeEach
  void noAgentYet() {
    agent = null;
  }

  @AfterEach
  void closeAgent() throws Exception {
    if (agent != null) {
      agent.close();
    }
  }

  private AgentHarness.Builder builder() {
    return new AgentHarness.Builder(workers.provider(), tmp);
  }

  @Test
  void turnsOfOneKeyRunInArrivalOrderOneAtATime() throws Exception {
    agent = builder().open();
    FakeWorker worker = workers.only();
    agent.send("a", "1");
    agent.send("a", "2");
    agent.send("a", "3");
    for (int number = 1; number <= 3; number++) {
      Turn turn = worker.takeTurn(Integer.toString(number));
      assertEquals(number, turn.number());
      assertTrue(worker.turns.isEmpty());
      worker.end(turn, "out" + number);
      agent.awaitEmitted(number);
    }
    assertEquals(List.of("out1", "out2", "out3"), agent.emitted());
  }

  @Test
  void keysDoNotWaitForEachOther() throws Exception {
    agent = builder().open();
    FakeWorker worker = workers.only();
    agent.send("a", "a1");
    agent.send("a", "a2");
    agent.send("b", "b1");
    Turn first = worker.takeTurn("a1");
    Turn other = worker.takeTurn("b1");
    worker.end(other, "b1");
    agent.awaitEmitted(1);
    worker.end(first, "a1");
    worker.end(nextTurn(worker, "a2"), "a2");
    agent.awaitEmitted(3);
    assertEquals(List.of("b1", "a1", "a2"), agent.emitted());
  }

  private Turn nextTurn(FakeWorker worker, String event) throws Exception {
    agent.await("turn " + event, () -> !worker.turns.isEmpty());
    return worker.takeTurn(event);
  }

  @Test
  void inputBlocksWhenAllPlacesAreTaken() throws Exception {
    agent = builder().maxInFlight(2).open();
    FakeWorker worker = workers.only();
    agent.send("a", "a");
    agent.send("b", "b");
    Turn first = worker.takeTurn("a");
    worker.takeTurn("b");
    // One event may wait for capacity: a barrier directly behind it passes.
    agent.send("c", "c");
    CompletableFuture<Boolean> seenBlocked = onceBlocked(() -> worker.end(first));
    agent.send("d", "d");
    assertTrue(seenBlocked.get(10, TimeUnit.SECONDS));
    worker.takeTurn("c");
    assertTrue(worker.turns.isEmpty());
  }

  /**
   * Run an unaligned barrier: a mail of the task, with a lower priority than those of operators.
   */
  @Test
  void aCheckpointRunsWhileInputIsBlocked() throws Exception {
    agent = builder().maxInFlight(1).open();
    FakeWorker worker = workers.only();
    agent.send("a", "a");
    agent.send("b", "b");
    Turn first = worker.takeTurn("a");
    List<OperatorSubtaskState> taken = new ArrayList<>();
    CompletableFuture<Boolean> seenBlocked =
        onceBlocked(
            () ->
                agent.inTask(
                    () -> {
                      taken.add(agent.snapshot(1, 1));
                      worker.end(first);
                    }));
    agent.send("c", "c");
    assertTrue(seenBlocked.get(10, TimeUnit.SECONDS));
    agent.close();

    agent = builder().open(taken.get(0));
    for (String key : List.of("a", "b", "c")) {
      workers.started(1).takeTurn(key);
    }
  }

  @Test
  void aFullOperatorDoesNotBlockBehindItsLastTurn() throws Exception {
    agent = builder().maxInFlight(2).open();
    agent.send("a", "a");
    agent.send("b", "b");
    // Both run and nothing else waits: a checkpoint barrier that arrives now passes immediately.
    assertEquals(1, agent.snapshot(1, 1).getManagedKeyedState().size());
  }

  @Test
  void inputBlocksWhenTooManyEventsWaitBehindTheirKey() throws Exception {
    agent = builder().maxPending(2).open();
    FakeWorker worker = workers.only();
    agent.send("a", "1");
    agent.send("a", "2");
    agent.send("a", "3");
    Turn first = worker.takeTurn("1");
    CompletableFuture<Boolean> seenBlocked = onceBlocked(() -> worker.end(first));
    agent.send("a", "4");
    assertTrue(seenBlocked.get(10, TimeUnit.SECONDS));
    worker.takeTurn("2");
  }

  /** Runs the action when this thread waits inside the operator; true when that happened. */
  static CompletableFuture<Boolean> onceBlocked(Runnable action) {
    Thread task = Thread.currentThread();
    return CompletableFuture.supplyAsync(
        () -> {
          try {
            Waiting.until("the input blocks", () -> isYielding(task));
          } catch (Exception e) {
            throw new IllegalStateException(e);
          }
          action.run();
          return true;
        });
  }

  private static boolean isYielding(Thread task) {
    boolean yields = false;
    boolean inOperator = false;
    for (StackTraceElement frame : task.getStackTrace()) {
      yields |= frame.getMethodName().equals("yield");
      inOperator |= frame.getClassName().equals(AgentOperator.class.getName());
    }
    return yields && inOperator && task.getState() != Thread.State.RUNNABLE;
  }

  @Test
  void aWatermarkPassesOnlyAfterTheTurnsBeforeIt() throws Exception {
    agent = builder().open();
    FakeWorker worker = workers.only();
    agent.processWatermark(new Watermark(1));
    agent.send("a", "a", 10);
    agent.send("b", "b", 11);
    agent.processWatermark(new Watermark(20));
    agent.send("c", "c", 21);
    agent.processWatermark(new Watermark(30));
    agent.processWatermark(new Watermark(40));
    Turn a = worker.takeTurn("a");
    Turn b = worker.takeTurn("b");
    Turn c = worker.takeTurn("c");
    worker.end(c, "C");
    worker.end(b, "B");
    agent.awaitEmitted(3);
    assertEquals(List.of("Watermark @ 1", "C@21", "B@11"), agent.emitted());
    worker.end(a, "A");
    agent.awaitEmitted(6);
    List<String> rest = agent.emitted().subList(3, agent.emitted().size());
    assertEquals(List.of("A@10", "Watermark @ 20", "Watermark @ 40"), rest);
  }

  @Test
  void watermarkStatusKeepsItsPlaceAmongTheWatermarks() throws Exception {
    agent = builder().open();
    FakeWorker worker = workers.only();
    agent.send("a", "a", 10);
    agent.processWatermark(new Watermark(20));
    agent.processWatermarkStatus(WatermarkStatus.IDLE);
    agent.processWatermarkStatus(WatermarkStatus.ACTIVE);
    agent.processWatermark(new Watermark(30));
    assertTrue(agent.getOutput().isEmpty());
    worker.end(worker.takeTurn("a"), "A");
    agent.awaitEmitted(5);
    assertEquals(
        List.of(
            "A@10",
            "Watermark @ 20",
            WatermarkStatus.IDLE.toString(),
            WatermarkStatus.ACTIVE.toString(),
            "Watermark @ 30"),
        agent.emitted());
  }

  @Test
  void outputsCarryTheTimestampOfTheirEventOrNone() throws Exception {
    agent = builder().open();
    FakeWorker worker = workers.only();
    agent.send("a", "a", -5);
    agent.send("b", "b");
    Turn timed = worker.takeTurn("a");
    assertEquals(Frames.TURN_HAS_TIMESTAMP, timed.flags());
    assertEquals(-5, timed.timestamp());
    assertEquals(0, worker.takeTurn("b").flags());
    worker.end(timed, "x", "errors>y", "z");
    agent.awaitEmitted(2);
    assertEquals(List.of("x@-5", "z@-5"), agent.emitted());
    assertEquals(List.of("y@-5"), agent.emitted("errors"));
  }

  @Test
  void endOfInputWaitsForAllTurns() throws Exception {
    agent = builder().maxInFlight(2).open();
    FakeWorker worker = workers.only();
    agent.send("a", "a1");
    agent.send("a", "a2");
    agent.send("b", "b1");
    CompletableFuture<Void> answers =
        CompletableFuture.runAsync(
            () -> {
              try {
                for (int i = 0; i < 3; i++) {
                  Turn turn = worker.takeTurn();
                  worker.end(turn, turn.event());
                }
              } catch (InterruptedException e) {
                throw new IllegalStateException(e);
              }
            });
    agent.endInput();
    assertEquals(3, agent.getOutput().size());
    answers.get(1, TimeUnit.SECONDS);
  }

  @Test
  void answersForUnknownTurnsAreIgnored() throws Exception {
    agent = builder().open();
    FakeWorker worker = workers.only();
    agent.send("a", "a");
    Turn turn = worker.takeTurn("a");
    worker.end(turn, "once");
    worker.end(turn, "twice");
    worker.step(turn, false, "late");
    worker.needSession(turn);
    agent.send("a", "b");
    nextTurn(worker, "b");
    agent.runMails();
    assertEquals(List.of("once"), agent.emitted());
    assertTrue(worker.sessions.isEmpty());
  }

  @Test
  void aTurnThatFailsTheJobFailsTheTask() throws Exception {
    agent = builder().open();
    FakeWorker worker = workers.only();
    agent.send("a", "a");
    worker.end(
        worker.takeTurn("a"), Frames.END_FAIL_JOB, 0, List.of(), "the model said no", "never");
    AgentTurnException failure =
        assertThrows(AgentTurnException.class, () -> agent.await("a failure", () -> false));
    assertEquals("the model said no", failure.getMessage());
    assertTrue(agent.emitted().isEmpty());
  }

  @Test
  void theSessionTravelsOnceAndIsAskedForWhenTheWorkerForgotIt() throws Exception {
    agent = builder().open();
    FakeWorker worker = workers.only();
    agent.send("a", "1");
    Turn first = worker.takeTurn("1");
    assertFalse(first.hasSession());
    assertEquals(0, first.sessionVersion());
    worker.endWithSession(first, Frames.SESSION_REPLACE, "s1", "s2");
    agent.awaitEmitted(1);

    agent.send("a", "2");
    Turn second = worker.takeTurn("2");
    assertFalse(second.hasSession(), "the worker has this version already");
    assertEquals(1, second.sessionVersion());
    worker.needSession(second);
    agent.await("SESSION", () -> !worker.sessions.isEmpty());
    FakeWorkers.Session session = worker.sessions.poll();
    assertEquals(List.of("s1", "s2"), session.chunks());
    assertEquals(1, session.version());
    assertEquals(second.id(), session.turn());
    worker.endWithSession(second, Frames.SESSION_APPEND, "s3");
    agent.awaitEmitted(2);

    worker.die(1);
    agent.send("a", "3");
    FakeWorker next = workers.started(1);
    agent.await("turn 3", () -> !next.turns.isEmpty());
    Turn third = next.takeTurn("3");
    assertTrue(third.hasSession(), "a new worker has nothing");
    assertEquals(List.of("s1", "s2", "s3"), third.session());
    assertEquals(2, third.sessionVersion());
    next.endWithSession(third, Frames.SESSION_CLEAR);
    agent.awaitEmitted(3);

    agent.send("a", "4");
    Turn fourth = next.takeTurn("4");
    assertEquals(3, fourth.sessionVersion());
    assertFalse(fourth.hasSession());
    next.needSession(fourth);
    agent.await("SESSION", () -> !next.sessions.isEmpty());
    assertEquals(List.of(), next.sessions.poll().chunks());
  }

  @Test
  void aStepMayClearTheJournalFirst() throws Exception {
    agent = builder().open();
    FakeWorker worker = workers.only();
    agent.send("a", "a");
    Turn turn = worker.takeTurn("a");
    worker.step(turn, false, "old1");
    worker.step(turn, false, "old2");
    worker.step(turn, true, "summary");
    worker.step(turn, false, "new");
    worker.die(1);
    FakeWorker next = workers.started(1);
    agent.await("the turn again", () -> !next.turns.isEmpty());
    Turn again = next.takeTurn("a");
    assertEquals(List.of("summary", "new"), again.journal());
    next.step(again, true, "");
    next.die(1);
    FakeWorker last = workers.started(2);
    agent.await("the turn again", () -> !last.turns.isEmpty());
    assertEquals(List.of(), last.takeTurn("a").journal());
  }

  @Test
  void theJournalEndsWithItsTurn() throws Exception {
    agent = builder().open();
    FakeWorker worker = workers.only();
    agent.send("a", "1");
    agent.send("a", "2");
    Turn first = worker.takeTurn("1");
    worker.step(first, false, "s");
    worker.end(first);
    assertEquals(List.of(), nextTurn(worker, "2").journal());
  }

  @Test
  void aTurnThatEndsWithoutAStepLeavesNothingToRepeat() throws Exception {
    agent = builder().open();
    FakeWorker worker = workers.only();
    agent.send("a", "1");
    agent.send("a", "2");
    worker.end(worker.takeTurn("1"), "first");
    agent.awaitEmitted(1);
    worker.die(1);
    FakeWorker next = workers.started(1);
    agent.await("the second turn again", () -> !next.turns.isEmpty());
    Turn second = next.takeTurn("2");
    assertEquals(List.of(), second.journal());
    next.end(second, "second");
    agent.awaitEmitted(2);
  }

  @Test
  void aStepBehindTheEndOfAnotherTurnIsInTheJournalOfItsOwn() throws Exception {
    agent = builder().open();
    FakeWorker worker = workers.only();
    agent.send("a", "1");
    agent.send("a", "2");
    worker.end(worker.takeTurn("1"), "first");
    Turn second = nextTurn(worker, "2");
    worker.step(second, false, "s");
    worker.die(1);
    FakeWorker next = workers.started(1);
    agent.await("the second turn again", () -> !next.turns.isEmpty());
    assertEquals(List.of("s"), next.takeTurn("2").journal());
  }

  @Test
  void thePlanReachesTheWorkerWithWhatItNeedsToKnow() throws Exception {
    agent = builder().workers(2).open();
    workers.started(1);
    assertEquals(2, workers.launched.size());
    for (FakeWorker worker : workers.launched) {
      assertEquals(1, worker.opens.size());
      String config = worker.opens.get(0).config();
      assertTrue(config.contains("\"plan\":" + AgentHarness.PLAN), config);
      assertTrue(config.contains("\"worker_index\":" + worker.index), config);
      assertTrue(config.contains("\"workers\":2"), config);
      assertTrue(config.contains("\"resources\":{}"), config);
      assertTrue(config.contains(workers.scratch.toString()), config);
    }
  }

  @Test
  void aKeyAlwaysGoesToTheSameWorker() throws Exception {
    Map<String, Set<Integer>> seen = new ConcurrentHashMap<>();
    workers.onTurn =
        (worker, turn) -> {
          seen.computeIfAbsent(turn.key(), key -> ConcurrentHashMap.newKeySet()).add(worker.index);
          worker.end(turn, turn.key());
        };
    agent = builder().workers(2).open();
    for (int i = 0; i < 120; i++) {
      agent.send("key" + i % 40, "x");
    }
    agent.awaitEmitted(120);
    assertTrue(seen.values().stream().allMatch(places -> places.size() == 1), seen.toString());
    assertTrue(seen.containsValue(Set.of(0)) && seen.containsValue(Set.of(1)), seen.toString());
  }

  @Test
  void metricsCountTurnsAndShowWhatWorkersReport() throws Exception {
    Map<String, Metric> metrics = new ConcurrentHashMap<>();
    agent = builder().metrics(metrics).open();
    FakeWorker worker = workers.only();
    agent.send("a", "1");
    agent.send("a", "2");
    agent.send("b", "3");
    assertEquals(2, gauge(metrics, "inFlight"));
    assertEquals(1, gauge(metrics, "pending"));
    worker.end(worker.takeTurn("1"), "out");
    worker.end(worker.takeTurn("3"), Frames.END_ERROR_RECORD, 0, List.of(), "", "errors>no", "out");
    worker.metrics(worker.opens.get(0).plan(), "{\"tokens\": 7, \"name\": \"x\"}");
    worker.metrics(worker.opens.get(0).plan(), "{\"tokens\": 9}");
    agent.awaitEmitted(2);
    agent.await("the figures", () -> metrics.containsKey("tokens"));
    agent.await("the latest figure", () -> gauge(metrics, "tokens").equals(9));
    assertEquals(2, ((Counter) metrics.get("turns")).getCount());
    assertEquals(1, ((Counter) metrics.get("failures")).getCount());
    assertEquals(0, ((Counter) metrics.get("workerRestarts")).getCount());
    assertFalse(metrics.containsKey("name"));
    worker.die(1);
    workers.started(1);
    agent.await("the restart", () -> ((Counter) metrics.get("workerRestarts")).getCount() == 1);
  }

  private static Object gauge(Map<String, Metric> metrics, String name) {
    return ((Gauge<?>) metrics.get(name)).getValue();
  }
}
