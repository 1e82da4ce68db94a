package org.flinkskills.bridge.pool;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.flinkskills.bridge.frames.FrameWriter;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.kit.AgentHarness;
import org.flinkskills.bridge.kit.FakeWorkers;
import org.flinkskills.bridge.kit.FakeWorkers.FakeWorker;
import org.flinkskills.bridge.kit.FakeWorkers.Turn;
import org.flinkskills.bridge.plan.AgentSettings;
import org.flinkskills.bridge.pool.WorkerSilence.Verdict;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Workers that run without a response, or send invalid frames. */
@Timeout(60)
class WorkerSilenceTest {
  private static final int TICKS_PER_SECOND = (int) (1000 / WorkerProcess.TICK_MS);

  @TempDir File tmp;

  private final FakeWorkers workers = new FakeWorkers();

  private AgentHarness.Builder builder() {
    return new AgentHarness.Builder(workers.provider(), tmp);
  }

  private static Turn take(FakeWorker worker, AgentHarness agent) throws Exception {
    agent.await("a turn", () -> !worker.turns.isEmpty());
    return worker.takeTurn();
  }

  @Test
  void aWorkerThatDoesNotAnswerIsReplacedAndItsTurnsResume() throws Exception {
    try (AgentHarness agent = builder().maxSilenceMs(500).open()) {
      FakeWorker first = workers.only();
      first.silent = true;
      agent.send("a", "a1");
      Turn turn = take(first, agent);
      first.step(turn, false, "j1");
      FakeWorker second = workers.started(1);
      Turn again = take(second, agent);
      assertEquals(List.of("j1"), again.journal());
      second.end(again, "a1");
      agent.awaitEmitted(1);
      assertEquals("exit code 137", first.exitDescription());
    }
  }

  @Test
  void aWorkerThatAnswersIsKeptWhateverItsTurnsTake() throws Exception {
    try (AgentHarness agent = builder().maxSilenceMs(500).open()) {
      FakeWorker first = workers.only();
      agent.send("a", "a1");
      Turn turn = take(first, agent);
      agent.await("several answers", () -> first.pings.get() >= 3);
      first.end(turn, "a1");
      agent.awaitEmitted(1);
      assertEquals(1, workers.launched.size());
    }
  }

  @Test
  void aFrameOfAnUnknownTypeReplacesTheWorker() throws Exception {
    replacedAfter(new FrameWriter(0xEE).u32(1).frame());
  }

  @Test
  void aFrameThatIsCutOffReplacesTheWorker() throws Exception {
    replacedAfter(new FrameWriter(Frames.EVENTS).u32(1).u32(7).frame());
  }

  @Test
  void figuresThatAreNotJsonReplaceTheWorker() throws Exception {
    byte[] figures = "{".getBytes(StandardCharsets.UTF_8);
    replacedAfter(new FrameWriter(Frames.METRICS).u32(1).bytes(figures).frame());
  }

  private void replacedAfter(byte[] frame) throws Exception {
    try (AgentHarness agent = builder().open()) {
      agent.send("a", "a1");
      FakeWorker first = workers.only();
      take(first, agent);
      first.raw(frame);
      FakeWorker second = workers.started(1);
      second.end(take(second, agent), "a1");
      agent.awaitEmitted(1);
      assertEquals("exit code 137", first.exitDescription());
    }
  }

  @Test
  void onlyTimeInWhichTheReaderWaitsIsSilence() {
    WorkerSilence.Limit limit = new WorkerSilence.Limit();
    limit.allow(2000);
    WorkerSilence silence = new WorkerSilence(limit);
    for (int i = 0; i < 100; i++) {
      assertEquals(Verdict.QUIET, silence.tick());
    }
    silence.reading();
    assertEquals(Verdict.PING, ticksUntilVerdict(silence, TICKS_PER_SECOND));
    assertEquals(Verdict.QUIET, ticksUntilVerdict(silence, 2 * TICKS_PER_SECOND));
    // The answer, a part of a large frame or anything else is a sign of life.
    silence.received();
    silence.reading();
    assertEquals(Verdict.QUIET, silence.tick());
    assertEquals(Verdict.PING, ticksUntilVerdict(silence, TICKS_PER_SECOND));
    assertEquals(Verdict.DEAD, ticksUntilVerdict(silence, 2 * TICKS_PER_SECOND + 1));
  }

  private static Verdict ticksUntilVerdict(WorkerSilence silence, int ticks) {
    Verdict verdict = Verdict.QUIET;
    for (int i = 0; i < ticks && verdict == Verdict.QUIET; i++) {
      verdict = silence.tick();
    }
    return verdict;
  }

  @Test
  void ofSeveralAgentsTheMostPatientOneCounts() {
    WorkerSilence.Limit limit = new WorkerSilence.Limit();
    limit.allow(2000);
    limit.allow(5000);
    limit.allow(3000);
    assertEquals(5000, limit.millis());
    limit.allow(0);
    limit.allow(9000);
    assertEquals(0, limit.millis());
    assertTrue(AgentSettings.defaults().maxSilenceMs() > 600_000);
  }
}
