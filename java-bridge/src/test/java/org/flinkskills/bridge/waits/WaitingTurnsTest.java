package org.flinkskills.bridge.waits;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.hashmap.HashMapStateBackend;
import org.apache.flink.state.rocksdb.EmbeddedRocksDBStateBackend;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.kit.FakeWorkers.FakeWorker;
import org.flinkskills.bridge.kit.FakeWorkers.Turn;
import org.flinkskills.bridge.turns.KeyedTurns;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Turns that wait: they stop, keep their journal, and resume with an answer. */
@Timeout(60)
class WaitingTurnsTest extends WaitBench {
  private static final long DAY = 24 * 3_600_000L;

  @Test
  void aWaitingTurnHasNoSlotAndResumesWithItsJournalAndTheAnswer() throws Exception {
    agent = builder().maxInFlight(1).metrics(metrics).open();
    FakeWorker worker = workers.only();
    park(worker, "a", "1", "w1");
    assertEquals(List.of("question w1"), agent.emitted("waits"));
    agent.send("b", "other");
    worker.end(worker.takeTurn("other"), "other");
    agent.awaitEmitted(1);

    agent.sendAnswer("a", "w1", "yes");
    Turn resumed = worker.takeTurn("1");
    assertEquals(List.of("step of 1", "open w1"), resumed.journal());
    assertEquals(List.of("w1=yes"), resumed.answers());
    assertEquals(1, resumed.number());
    assertNull(resumed.base());
    worker.close(resumed, "w1");
    worker.end(resumed, "done");
    agent.awaitEmitted(2);
    assertEquals(List.of("other", "done"), agent.emitted());
    assertEquals(0, waiting());
    assertEquals(1, counted("resumed"));
  }

  @Test
  void eventsOfTheKeyWaitBehindAWaitingTurnInTheirOrder() throws Exception {
    agent = builder().maxPending(1).metrics(metrics).open();
    FakeWorker worker = workers.only();
    park(worker, "a", "1", "w1");
    for (int i = 2; i <= 5; i++) {
      agent.send("a", Integer.toString(i));
    }
    agent.send("b", "b");
    worker.end(worker.takeTurn("b"), "b");
    agent.awaitEmitted(1);
    workers.onTurn = (of, turn) -> of.end(turn, turn.event() + "#" + turn.number());
    agent.sendAnswer("a", "w1", "yes");
    agent.awaitEmitted(6);
    assertEquals(List.of("b", "1#1", "2#2", "3#3", "4#4", "5#5"), agent.emitted());
    assertEquals(0, agent.keysOf(KeyedTurns.PENDING));
  }

  @Test
  void anAnswerReachesATurnThatRuns() throws Exception {
    agent = builder().metrics(metrics).open();
    FakeWorker worker = workers.only();
    agent.send("a", "1");
    Turn turn = worker.takeTurn("1");
    worker.open(turn, "w1", "approval", "waits>asked");
    agent.await("the question", () -> agent.emitted("waits").size() == 1);
    agent.sendAnswer("a", "approval", "yes");
    assertEquals("w1=yes", worker.receivedAnswers.take().answer());
    // The worker stopped the turn before it received the answer.
    worker.park(turn);
    agent.await("mails", () -> worker.turns.size() == 1);
    Turn again = worker.takeTurn("1");
    assertEquals(List.of("w1=yes"), again.answers());
    assertEquals(0, waiting());
    worker.close(again, "w1");
    worker.end(again, "done");
    agent.awaitEmitted(1);
  }

  @Test
  void anAnswerIsAcceptedWhileEventsWaitBehindTheirKey() throws Exception {
    agent = builder().maxPending(5).maxInFlight(1).metrics(metrics).open();
    FakeWorker worker = workers.only();
    park(worker, "a", "1", "w1");
    for (int i = 2; i <= 40; i++) {
      agent.send("a", Integer.toString(i));
    }
    // Neither the answer nor the next events wait for the turns of the backlog.
    agent.sendAnswer("a", "w1", "yes");
    agent.send("b", "next");
    worker.end(worker.takeTurn("1"), "1");
    for (int i = 2; i <= 40; i++) {
      agent.await("a turn", () -> !worker.turns.isEmpty());
      Turn turn = worker.takeTurn();
      worker.end(turn, turn.event());
    }
    agent.await("a turn", () -> !worker.turns.isEmpty());
    worker.end(worker.takeTurn(), "last");
    agent.awaitEmitted(41);
    assertEquals(0, agent.keysOf(KeyedTurns.PENDING));
  }

  @Test
  void anAnswerPrecedesTheEndOfTheInputs() throws Exception {
    agent = builder().metrics(metrics).open();
    FakeWorker worker = workers.only();
    park(worker, "a", "1", "w1");
    agent.sendAnswer("b", "w3", "yes");
    agent.send("b", "2");
    Turn running = worker.takeTurn("2");
    CompletableFuture<List<String>> answers =
        CompletableFuture.supplyAsync(
            () -> {
              try {
                Turn ended = worker.takeTurn("1");
                worker.open(running, "w2", "approval", "waits>question w2");
                worker.open(running, "w3", "approval", "waits>question w3");
                worker.park(running);
                Turn resumed = worker.takeTurn("2");
                worker.close(resumed, "w3");
                worker.end(resumed, "2");
                worker.end(ended, "1");
                return resumed.answers();
              } catch (Exception e) {
                throw new CompletionException(e);
              }
            });
    agent.endInput();
    assertEquals(List.of("w3=yes"), answers.get());
  }

  @Test
  void anAnswerThatNoTurnUsesIsAnErrorRecord() throws Exception {
    agent = builder().metrics(metrics).waitsKeepMs(1000).open();
    FakeWorker worker = workers.only();
    agent.setProcessingTime(1);
    park(worker, "a", "1", "w1");
    agent.sendAnswer("a", "w1", "yes");
    agent.sendAnswer("a", "w1", "second");
    Turn turn = worker.takeTurn("1");
    worker.close(turn, "w1");
    worker.end(turn, "done");
    agent.awaitEmitted(1);
    agent.sendAnswer("a", "w1", "third");
    agent.sendAnswer("a", "", "no wait");
    agent.sendAnswer("zz", "unknown", "no name");
    agent.sendAnswer("zz", "w7", "early");
    agent.sendAnswer("zz", "w7", "early too");
    assertEquals(4, counted("unusedAnswers"));
    agent.setProcessingTime(1002);
    assertEquals(6, counted("unusedAnswers"));
    List<String> errors = agent.emitted("errors");
    assertTrue(errors.get(0).contains("has an answer already"), errors.get(0));
    assertTrue(errors.get(2).contains("The answer has no wait id"), errors.get(2));
    assertTrue(errors.get(4).contains("No turn has asked for it within"), errors.get(4));
    // Ended waits and early answers leave no state.
    assertEquals(0, agent.keysOf(KeyedWaits.WAITS));
  }

  @Test
  void aRejectedAnswerLeavesTheWaitOpen() throws Exception {
    agent = builder().metrics(metrics).open();
    FakeWorker worker = workers.only();
    park(worker, "a", "1", "w1");
    agent.sendAnswer("a", "w1", "wrong");
    Turn turn = worker.takeTurn("1");
    worker.change(turn, Frames.WAIT_REJECT, "w1", "", WaitState.NO_DEADLINE, 0, "", "errors>wrong");
    worker.park(turn);
    agent.await("the turn waits", () -> waiting() == 1);
    assertEquals(List.of("wrong"), agent.emitted("errors"));
    agent.sendAnswer("a", "w1", "right");
    assertEquals(List.of("w1=right"), worker.takeTurn("1").answers());
  }

  @Test
  void aWaitOfADayTimesOutAtItsDeadline() throws Exception {
    agent = builder().metrics(metrics).open();
    FakeWorker worker = workers.only();
    agent.setProcessingTime(1000);
    agent.send("a", "1");
    Turn turn = worker.takeTurn("1");
    worker.open(turn, "w1", "approval", 1000 + DAY, 0);
    worker.park(turn);
    agent.await("the turn waits", () -> waiting() == 1);
    agent.setProcessingTime(DAY);
    assertTrue(worker.turns.isEmpty());
    agent.setProcessingTime(1001 + DAY);
    Turn resumed = worker.takeTurn("1");
    assertEquals(List.of("w1=#1"), resumed.answers());
    worker.close(resumed, "w1");
    worker.end(resumed, "late");
    agent.awaitEmitted(1);
    assertEquals(1, counted("timedOut"));
    agent.sendAnswer("a", "w1", "too late");
    assertTrue(agent.emitted("errors").get(0).contains("has timed out"));
  }

  @Test
  void aSleepInEventTimeEndsWithTheWatermark() throws Exception {
    agent = builder().metrics(metrics).open();
    FakeWorker worker = workers.only();
    agent.send("a", "1", 100);
    Turn turn = worker.takeTurn("1");
    worker.open(turn, "w1", "sleep", 500, WaitState.EVENT_TIME | WaitState.SLEEP);
    worker.park(turn);
    agent.await("the turn waits", () -> waiting() == 1);
    agent.processWatermark(new Watermark(499));
    assertTrue(worker.turns.isEmpty());
    agent.processWatermark(new Watermark(500));
    Turn resumed = worker.takeTurn("1");
    assertEquals(List.of("w1=#1"), resumed.answers());
    worker.close(resumed, "w1");
    // The watermark has passed the second deadline already.
    worker.open(resumed, "w2", "sleep", 400, WaitState.EVENT_TIME | WaitState.SLEEP);
    agent.await("an answer", () -> !worker.receivedAnswers.isEmpty());
    assertEquals("w2=#1", worker.receivedAnswers.take().answer());
    worker.close(resumed, "w2");
    worker.end(resumed, "done");
    agent.awaitEmitted(3);
    assertEquals("done@100", agent.emitted().get(2));
  }

  @Test
  void aWaitingTurnAndTheEventsBehindItHoldNoWatermark() throws Exception {
    agent = builder().metrics(metrics).open();
    FakeWorker worker = workers.only();
    agent.send("a", "1", 1);
    Turn turn = worker.takeTurn("1");
    agent.send("a", "2", 2);
    agent.processWatermark(new Watermark(10));
    assertEquals(List.of(), agent.emitted());
    worker.open(turn, "w1", "approval");
    worker.park(turn);
    agent.awaitEmitted(1);
    agent.send("a", "3", 12);
    agent.processWatermark(new Watermark(20));
    agent.awaitEmitted(2);
  }

  @Test
  void theNextEventsOvertakeAWaitingTurn() throws Exception {
    agent = builder().overtake().metrics(metrics).open();
    FakeWorker worker = workers.only();
    agent.send("a", "1");
    Turn first = worker.takeTurn("1");
    worker.end(first, Frames.END_OK, Frames.SESSION_REPLACE, List.of("s0"), "", "one");
    agent.awaitEmitted(1);
    Turn waits = park(worker, "a", "2", "w2");
    assertEquals(2, waits.number());
    agent.send("a", "3");
    Turn third = worker.takeTurn("3");
    assertEquals(3, third.number());
    assertEquals(List.of(), third.journal());
    worker.end(third, Frames.END_OK, Frames.SESSION_REPLACE, List.of("s1"), "", "three");
    agent.awaitEmitted(2);
    Turn fourth = park(worker, "a", "4", "w4");
    assertEquals(4, fourth.number());

    agent.sendAnswer("a", "w2", "yes");
    Turn resumed = worker.takeTurn("2");
    assertEquals(2, resumed.number());
    assertEquals(List.of("step of 2", "open w2"), resumed.journal());
    assertEquals(List.of("s0"), resumed.base());
    // An answer for another turn of the key waits for the one that runs.
    agent.sendAnswer("a", "w4", "no");
    agent.runMails();
    assertTrue(worker.turns.isEmpty());
    worker.close(resumed, "w2");
    worker.end(resumed, Frames.END_OK, Frames.SESSION_REPLACE, List.of("s2"), "", "two");
    agent.awaitEmitted(3);
    Turn last = worker.takeTurn("4");
    assertEquals(List.of("step of 4", "open w4"), last.journal());
    assertEquals(List.of("s1"), last.base());
    worker.end(last, "four");
    agent.awaitEmitted(4);
    assertEquals(0, agent.keysOf(KeyedTurns.PENDING));
    agent.send("a", "5");
    assertEquals(5, worker.takeTurn("5").number());
  }

  @Test
  void aCrashOfTheWorkerKeepsOpenWaitsAndTheirAnswers() throws Exception {
    agent = builder().metrics(metrics).open();
    FakeWorker worker = workers.only();
    agent.send("a", "1");
    Turn turn = worker.takeTurn("1");
    worker.open(turn, "w1", "approval", "waits>asked");
    agent.await("the question", () -> agent.emitted("waits").size() == 1);
    agent.sendAnswer("a", "w1", "yes");
    worker.die(1);
    agent.await("another worker", () -> workers.launched.size() == 2);
    FakeWorker next = workers.launched.get(1);
    agent.await("the turn", () -> !next.turns.isEmpty());
    Turn again = next.takeTurn("1");
    assertEquals(List.of("open w1"), again.journal());
    assertEquals(List.of("w1=yes"), again.answers());
    next.end(again, "done");
    agent.awaitEmitted(1);
    agent.sendAnswer("a", "w1", "late");
    assertTrue(agent.emitted("errors").get(0).contains("The turn of the wait has ended"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"hashmap", "rocksdb"})
  void waitingTurnsAreRestoredAndStartOnlyWithAnAnswer(String backend) throws Exception {
    StateBackend states =
        backend.equals("rocksdb") ? new EmbeddedRocksDBStateBackend() : new HashMapStateBackend();
    agent = builder().stateBackend(states).metrics(metrics).open();
    FakeWorker worker = workers.only();
    agent.setProcessingTime(1000);
    park(worker, "a", "1", "w1");
    park(worker, "b", "2", "w2");
    agent.send("b", "behind");
    agent.send("c", "3");
    Turn third = worker.takeTurn("3");
    worker.open(third, "w3", "approval", 5000, 0);
    worker.park(third);
    agent.await("three turns wait", () -> waiting() == 3);
    OperatorSubtaskState snapshot = agent.snapshot(1, 1);
    agent.close();

    metrics.clear();
    agent = builder().stateBackend(states).metrics(metrics).build();
    agent.initializeState(snapshot);
    agent.open();
    agent.setProcessingTime(10_000);
    FakeWorker restored = workers.launched.get(workers.launched.size() - 1);
    // The overdue timer fires.
    Turn overdue = restored.takeTurn("3");
    assertEquals(List.of("w3=#1"), overdue.answers());
    restored.close(overdue, "w3");
    restored.end(overdue, "3");
    agent.awaitEmitted(1);
    assertEquals(2, waiting());
    assertTrue(restored.turns.isEmpty());
    agent.sendAnswer("b", "w2", "yes");
    Turn second = restored.takeTurn("2");
    assertEquals(List.of("step of 2", "open w2"), second.journal());
    restored.end(second, "2");
    agent.awaitEmitted(2);
    restored.end(restored.takeTurn("behind"), "behind");
    agent.sendAnswer("a", "w1", "yes");
    restored.end(restored.takeTurn("1"), "1");
    agent.awaitEmitted(4);
    assertEquals(0, agent.keysOf(KeyedTurns.PENDING));
  }

  @Test
  void anOperatorWithoutWaitsWritesNoStateOfWaits() throws Exception {
    agent = builder().metrics(metrics).open();
    FakeWorker worker = workers.only();
    agent.send("a", "1");
    worker.end(worker.takeTurn("1"), "done");
    agent.awaitEmitted(1);
    assertEquals(0, agent.keysOf(KeyedWaits.WAITS));
    assertEquals(0, agent.numProcessingTimeTimers());
    assertFalse(agent.keysOf("idle") == 0);
  }

  @Test
  void theTimeToLiveOfASessionDoesNotRunWhileATurnWaits() throws Exception {
    agent = builder().sessionTtlMs(1000).metrics(metrics).open();
    FakeWorker worker = workers.only();
    agent.setProcessingTime(1);
    agent.send("a", "1");
    worker.end(
        worker.takeTurn("1"), Frames.END_OK, Frames.SESSION_REPLACE, List.of("kept"), "", "one");
    agent.awaitEmitted(1);
    park(worker, "a", "2", "w2");
    agent.setStateTtlProcessingTime(100_000);
    agent.setProcessingTime(100_000);
    agent.sendAnswer("a", "w2", "yes");
    Turn resumed = worker.takeTurn("2");
    assertEquals(2, resumed.number());
    assertEquals(List.of("kept"), resumed.session());
    worker.end(resumed, "two");
    agent.awaitEmitted(2);
  }
}
