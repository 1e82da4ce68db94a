package org.flinkskills.bridge.operator;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.apache.flink.api.common.JobID;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.runtime.io.network.partition.MockResultPartitionWriter;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.flinkskills.bridge.kit.AgentHarness;
import org.flinkskills.bridge.kit.FakeWorkers;
import org.flinkskills.bridge.kit.FakeWorkers.FakeWorker;
import org.flinkskills.bridge.kit.FakeWorkers.Turn;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Answers that arrive while the tasks behind the operator accept no records. */
@Timeout(60)
class BlockedOutputsTest {
  @TempDir File tmp;

  private final FakeWorkers workers = new FakeWorkers();
  private final Gate gate = new Gate();

  /** An output that is open or closed. */
  private static final class Gate extends MockResultPartitionWriter {
    private volatile CompletableFuture<?> available = AVAILABLE;

    /** The operator had an answer and saw that the gate is shut. */
    private volatile boolean foundShut;

    void shut() {
      available = new CompletableFuture<>();
    }

    void open() {
      CompletableFuture<?> before = available;
      available = AVAILABLE;
      before.complete(null);
    }

    @Override
    public CompletableFuture<?> getAvailableFuture() {
      foundShut = foundShut || !available.isDone();
      return available;
    }
  }

  private AgentHarness.Builder builder() {
    return new AgentHarness.Builder(workers.provider(), tmp).writer(gate);
  }

  @Test
  void answersWaitWithTheirStateAndNoTurnStarts() throws Exception {
    OperatorSubtaskState state;
    try (AgentHarness agent = builder().open()) {
      agent.send("a", "a1");
      agent.send("a", "a2");
      agent.send("b", "b1");
      FakeWorker worker = workers.only();
      List<Turn> turns = AgentOperatorCrashTest.take(worker, agent, 2);
      gate.shut();
      worker.step(turns.get(0), false, "step", "of the step");
      worker.end(turns.get(0), "a1");
      agent.await("the answers", () -> gate.foundShut);
      assertEquals(List.of(), agent.emitted());
      // A snapshot has the turn as it was before its answers.
      state = agent.snapshot(1, 1);
      agent.send("c", "c1");
      assertTrue(worker.turns.isEmpty());
      gate.open();
      agent.awaitEmitted(2);
      assertEquals(List.of("of the step", "a1"), agent.emitted());
      List<Turn> next = AgentOperatorCrashTest.take(worker, agent, 2);
      assertEquals(List.of("a2", "c1"), next.stream().map(Turn::event).sorted().toList());
    }
    FakeWorkers others = new FakeWorkers();
    try (AgentHarness again = new AgentHarness.Builder(others.provider(), tmp).open(state)) {
      List<Turn> restored = AgentOperatorCrashTest.take(others.only(), again, 2);
      assertTrue(restored.stream().allMatch(turn -> turn.journal().isEmpty()), restored.toString());
      assertEquals(List.of("a1", "b1"), restored.stream().map(Turn::event).sorted().toList());
    }
  }

  /** Returns the bytes of files with answers. They have no name, so that none is left behind. */
  private static long filesOfAnswers() throws IOException {
    long bytes = 0;
    try (Stream<Path> files = Files.list(Path.of("/proc/self/fd"))) {
      for (Path file : files.toList()) {
        if (Files.exists(file) && Files.readSymbolicLink(file).toString().contains("answers-")) {
          bytes += Files.size(file);
        }
      }
    }
    return bytes;
  }

  @Test
  void answersBeyondTheShareOfTheHeapWaitInAFile() throws Exception {
    int size = 4 << 20;
    int count = (int) (Runtime.getRuntime().maxMemory() / 16 / size) + 5;
    String large = "x".repeat(size);
    try (AgentHarness agent = builder().maxInFlight(count).open()) {
      for (int i = 0; i < count; i++) {
        agent.send("k" + i, "e" + i);
      }
      FakeWorker worker = workers.only();
      List<Turn> turns = AgentOperatorCrashTest.take(worker, agent, count);
      gate.shut();
      for (Turn turn : turns) {
        worker.end(turn, turn.event() + large);
      }
      agent.await("answers in the file", () -> filesOfAnswers() >= 4L * size);
      assertEquals(0, agent.getOutput().size());
      gate.open();
      for (Turn turn : turns) {
        agent.awaitEmitted(1);
        StreamRecord<?> first = (StreamRecord<?>) agent.getOutput().poll();
        assertEquals(
            turn.event() + large, new String((byte[]) first.getValue(), StandardCharsets.UTF_8));
      }
      agent.await("the end of the file", () -> filesOfAnswers() == 0);
    }
  }

  @Test
  void anOperatorThatWaitsForItsOutputsLeavesTheWorkerToTheOneTheyWaitFor() throws Exception {
    JobID job = new JobID();
    try (AgentHarness one = builder().jobId(job).maxCrashes(2).open();
        AgentHarness two =
            new AgentHarness.Builder(workers.provider(), tmp).jobId(job).maxCrashes(2).open()) {
      one.send("a", "a");
      two.send("b", "b");
      AgentOperatorCrashTest.take(workers.only(), one, 2);
      workers.only().die(1);
      FakeWorker second = workers.started(1);
      Turn first = AgentOperatorCrashTest.take(second, one, 1).get(0);
      assertEquals("a", first.event());
      gate.shut();
      second.end(first, "a");
      one.await("the answer", () -> gate.foundShut);
      Turn other = AgentOperatorCrashTest.take(second, two, 1).get(0);
      assertEquals(1, other.crashes());
      second.end(other, "b");
      two.awaitEmitted(1);
      assertEquals(List.of(), one.emitted());
      gate.open();
      one.awaitEmitted(1);
    }
  }
}
