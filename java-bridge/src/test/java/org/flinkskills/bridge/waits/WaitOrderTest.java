package org.flinkskills.bridge.waits;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.Logger;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Property;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.kit.AgentHarness;
import org.flinkskills.bridge.kit.FakeWorkers;
import org.flinkskills.bridge.kit.FakeWorkers.FakeWorker;
import org.flinkskills.bridge.kit.FakeWorkers.Turn;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Order and state of turns that wait: expired counters, journals, deadlines and watermarks. */
@Timeout(60)
class WaitOrderTest extends WaitBench {
  private static final long DAY = 24 * 3_600_000L;

  private AgentHarness.Builder builder(FakeWorkers of) {
    return new AgentHarness.Builder(of.provider(), tmp).metrics(metrics);
  }

  private int gauge(String name) {
    return ((Number) ((Gauge<?>) metrics.get(name)).getValue()).intValue();
  }

  private Turn take(FakeWorker worker, String event) throws Exception {
    agent.await("turn of " + event, () -> !worker.turns.isEmpty());
    return worker.takeTurn(event);
  }

  private void park(FakeWorker worker, Turn turn, String id, int waits) throws Exception {
    worker.open(turn, id, "");
    worker.park(turn);
    agent.await("the wait", () -> gauge("waiting") == waits);
  }

  private void time(long now) throws Exception {
    agent.setStateTtlProcessingTime(now);
    agent.setProcessingTime(now);
  }

  @Test
  void anEventAfterTheCountersExpiredWaitsBehindTheTurn() throws Exception {
    agent = builder(workers).sessionTtlMs(1000).open();
    FakeWorker worker = workers.only();
    agent.send("a", "a0");
    park(worker, worker.takeTurn("a0"), "w0", 1);
    time(100_000);
    agent.send("a", "a1");
    agent.runMails();
    assertEquals(0, gauge("inFlight"), "a1 must wait behind a0");
    agent.sendAnswer("a", "w0", "x");
    Turn a0 = take(worker, "a0");
    assertEquals(1, a0.number());
    worker.end(a0, "A0");
    assertEquals(2, take(worker, "a1").number());
  }

  @Test
  void theJournalOfTheRunningTurnSurvivesAResumedTurn() throws Exception {
    agent = builder(workers).overtake().open();
    FakeWorker worker = workers.only();
    agent.send("a", "a1");
    park(worker, worker.takeTurn("a1"), "w1", 1);
    agent.send("a", "a2");
    Turn a2 = worker.takeTurn("a2");
    worker.step(a2, false, "step of a2", "a2 has a step");
    agent.awaitEmitted(1);
    agent.sendAnswer("a", "w1", "x");
    OperatorSubtaskState snapshot = agent.snapshot(1, 1);
    agent.close();
    FakeWorkers after = new FakeWorkers();
    agent = builder(after).overtake().open(snapshot);
    worker = after.only();
    List<Turn> turns = new ArrayList<>();
    for (int i = 0; i < 2; i++) {
      FakeWorker of = worker;
      agent.await("a turn", () -> !of.turns.isEmpty());
      Turn turn = worker.takeTurn();
      turns.add(turn);
      worker.end(turn, "x");
    }
    for (Turn turn : turns) {
      assertEquals(
          turn.event().equals("a2") ? List.of("step of a2") : List.of("open w1"),
          turn.journal(),
          turn.event());
    }
  }

  @Test
  void aWaitTimesOutAfterARejectedAnswer() throws Exception {
    agent = builder(workers).open();
    FakeWorker worker = workers.only();
    agent.send("a", "a1");
    Turn turn = worker.takeTurn("a1");
    worker.open(turn, "w1", "", DAY, 0, "waits>w1");
    agent.await("the wait", () -> !agent.emitted("waits").isEmpty());
    agent.sendAnswer("a", "w1", "bad");
    worker.receivedAnswers.take();
    agent.setProcessingTime(DAY);
    worker.change(turn, Frames.WAIT_REJECT, "w1", "", DAY, 0, "", "waits>rejected");
    agent.await("the rejection", () -> agent.emitted("waits").size() == 2);
    agent.setProcessingTime(10 * DAY);
    agent.await("the timeout", () -> !worker.receivedAnswers.isEmpty());
  }

  @Test
  void anEventTimeDeadlineBeforeTheWatermarkIsAnsweredImmediately() throws Exception {
    agent = builder(workers).open();
    FakeWorker worker = workers.only();
    agent.processWatermark(new Watermark(Long.MAX_VALUE));
    agent.send("a", "a1");
    Turn turn = worker.takeTurn("a1");
    worker.open(turn, "w1", "", 50, 1, "waits>w1");
    agent.await("the timeout", () -> !worker.receivedAnswers.isEmpty());
  }

  @Test
  void aWaitInEventTimeWithoutWatermarksIsReported() throws Exception {
    List<String> lines = new ArrayList<>();
    Logger logger = (Logger) LogManager.getLogger(WaitTimers.class);
    AbstractAppender appender =
        new AbstractAppender("kept", null, null, true, Property.EMPTY_ARRAY) {
          @Override
          public void append(LogEvent event) {
            lines.add(event.getMessage().getFormattedMessage());
          }
        };
    appender.start();
    logger.addAppender(appender);
    logger.setLevel(Level.WARN);
    try {
      agent = builder(workers).open();
      FakeWorker worker = workers.only();
      agent.processWatermark(new Watermark(5));
      agent.send("a", "a1", 10);
      Turn turn = worker.takeTurn("a1");
      worker.open(turn, "w1", "shipped", 500, WaitState.EVENT_TIME);
      worker.park(turn);
      agent.await("the wait", () -> gauge("waiting") == 1);
      agent.processWatermark(new Watermark(20));
      agent.setProcessingTime(WaitTimers.SILENCE_MS);
      assertEquals(List.of(), lines);
      agent.setProcessingTime(2 * WaitTimers.SILENCE_MS);
      agent.setProcessingTime(9 * WaitTimers.SILENCE_MS);
      assertEquals(1, lines.size());
      for (String part : List.of("'shipped'", "key a, turn 1", "the last one is 20", "with_idle")) {
        assertTrue(lines.get(0).contains(part), lines.get(0));
      }
      OperatorSubtaskState snapshot = agent.snapshot(1, 1);
      agent.close();
      agent = builder(new FakeWorkers()).open(snapshot);
      agent.setProcessingTime(WaitTimers.SILENCE_MS);
      assertEquals(2, lines.size());
      assertTrue(lines.get(1).contains("none has arrived at all"), lines.get(1));
    } finally {
      logger.removeAppender(appender);
    }
  }

  @Test
  void theHeadKeepsItsJournalWhenItParksWithAnAnswer() throws Exception {
    agent = builder(workers).overtake().open();
    FakeWorker worker = workers.only();
    agent.send("a", "a1");
    park(worker, worker.takeTurn("a1"), "w1", 1);
    agent.send("a", "a2");
    Turn a2 = worker.takeTurn("a2");
    worker.step(a2, false, "step of a2");
    worker.open(a2, "w2", "", "waits>w2");
    agent.await("the wait", () -> !agent.emitted("waits").isEmpty());
    agent.sendAnswer("a", "w1", "x");
    agent.sendAnswer("a", "w2", "y");
    worker.park(a2);
    for (int i = 0; i < 2; i++) {
      agent.await("a turn", () -> !worker.turns.isEmpty());
      Turn turn = worker.takeTurn();
      assertEquals(
          turn.event().equals("a2") ? List.of("step of a2", "open w2") : List.of("open w1"),
          turn.journal(),
          turn.event());
      worker.end(turn, "x");
    }
  }
}
