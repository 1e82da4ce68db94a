package org.flinkskills.bridge.operator;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.hashmap.HashMapStateBackend;
import org.apache.flink.state.rocksdb.EmbeddedRocksDBStateBackend;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.util.OperatorSnapshotUtil;
import org.flinkskills.bridge.AgentRejectedException;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.kit.AgentHarness;
import org.flinkskills.bridge.kit.FakeWorkers;
import org.flinkskills.bridge.kit.FakeWorkers.FakeWorker;
import org.flinkskills.bridge.kit.FakeWorkers.Turn;
import org.flinkskills.bridge.turns.StateFormat;
import org.flinkskills.bridge.turns.TurnState;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(60)
class AgentOperatorRestoreTest {
  private static final long TTL_MS = 1000;

  @TempDir File tmp;

  private AgentHarness.Builder builder(FakeWorkers workers) {
    return new AgentHarness.Builder(workers.provider(), tmp);
  }

  private static StateBackend backend(String name) {
    return name.equals("rocksdb") ? new EmbeddedRocksDBStateBackend() : new HashMapStateBackend();
  }

  @ParameterizedTest
  @ValueSource(strings = {"hashmap", "rocksdb"})
  void unfinishedTurnsGoOnWithTheirJournalSessionAndOrder(String backend) throws Exception {
    FakeWorkers before = new FakeWorkers();
    OperatorSubtaskState snapshot;
    try (AgentHarness agent = builder(before).stateBackend(backend(backend)).open()) {
      FakeWorker worker = before.only();
      agent.send("a", "a1", 1);
      worker.endWithSession(worker.takeTurn("a1"), Frames.SESSION_REPLACE, "s1", "s2");
      agent.awaitEmitted(1);
      agent.send("a", "a2", 2);
      agent.send("a", "a3", 3);
      agent.send("b", "b1");
      agent.send("done", "d");
      Turn a2 = worker.takeTurn("a2");
      worker.step(a2, false, "j1");
      worker.step(a2, false, "j2");
      worker.takeTurn("b1");
      worker.end(worker.takeTurn("d"), "d");
      agent.awaitEmitted(2);
      snapshot = agent.snapshot(1, 1);
      worker.step(a2, false, "after the checkpoint");
      agent.runMails();
    }

    FakeWorkers after = new FakeWorkers();
    try (AgentHarness agent = builder(after).stateBackend(backend(backend)).open(snapshot)) {
      FakeWorker worker = after.only();
      agent.processWatermark(new Watermark(50));
      List<Turn> turns = List.of(worker.takeTurn(), worker.takeTurn());
      Turn a2 = turns.stream().filter(t -> t.key().equals("a")).findFirst().orElseThrow();
      Turn b1 = turns.stream().filter(t -> t.key().equals("b")).findFirst().orElseThrow();
      assertEquals("a2", a2.event());
      assertEquals(2, a2.number());
      assertEquals(2, a2.timestamp());
      assertEquals(List.of("j1", "j2"), a2.journal());
      assertEquals(1, a2.sessionVersion());
      assertEquals(List.of("s1", "s2"), a2.session());
      assertEquals(0, a2.crashes());
      assertEquals(List.of(), b1.journal());
      assertEquals(1, b1.number());

      agent.send("a", "a4", 4);
      worker.end(a2, "A2");
      worker.end(b1, "B1");
      agent.awaitEmitted(2);
      Turn a3 = worker.takeTurn("a3");
      assertEquals(List.of(), a3.journal());
      worker.end(a3, "A3");
      agent.awaitEmitted(4);
      worker.end(worker.takeTurn("a4"), "A4");
      agent.awaitEmitted(5);
      assertEquals(List.of("A2@2", "B1", "A3@3", "Watermark @ 50", "A4@4"), agent.emitted());
    }
  }

  @Test
  void restoredTurnsKeepToTheLimit() throws Exception {
    FakeWorkers before = new FakeWorkers();
    OperatorSubtaskState snapshot;
    try (AgentHarness agent = builder(before).open()) {
      for (int i = 0; i < 20; i++) {
        agent.send("k" + i, "x");
      }
      snapshot = agent.snapshot(1, 1);
    }
    FakeWorkers after = new FakeWorkers();
    try (AgentHarness agent = builder(after).maxInFlight(3).open(snapshot)) {
      FakeWorker worker = after.only();
      List<Turn> turns = new ArrayList<>(List.of(worker.takeTurn(), worker.takeTurn()));
      turns.add(worker.takeTurn());
      agent.runMails();
      assertTrue(worker.turns.isEmpty());
      for (int ended = 0; ended < 20; ended++) {
        worker.end(turns.remove(0), "x");
        agent.awaitEmitted(ended + 1);
        if (ended < 17) {
          turns.add(worker.takeTurn());
        }
      }
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"hashmap", "rocksdb"})
  void unfinishedTurnsFollowTheirKeysWhenTheParallelismChanges(String backend) throws Exception {
    FakeWorkers before = new FakeWorkers();
    OperatorSubtaskState snapshot;
    try (AgentHarness agent = builder(before).stateBackend(backend(backend)).open()) {
      for (int i = 0; i < 20; i++) {
        agent.send("k" + i, "first");
        agent.send("k" + i, "second");
      }
      FakeWorker worker = before.only();
      for (int i = 0; i < 20; i++) {
        Turn turn = worker.takeTurn("first");
        worker.step(turn, false, "journal of " + turn.key());
      }
      // Steps are in state when the mail that carries them has run; the last one shows that.
      worker.end(lastOf(worker, agent), "done");
      agent.awaitEmitted(1);
      snapshot = agent.snapshot(1, 1);
    }
    Set<String> seen = new HashSet<>();
    int total = 0;
    for (int subtask = 0; subtask < 2; subtask++) {
      OperatorSubtaskState part =
          AgentHarness.repartitionOperatorState(
              snapshot, AgentHarness.MAX_PARALLELISM, 1, 2, subtask);
      FakeWorkers after = new FakeWorkers();
      after.onTurn = (worker, turn) -> worker.end(turn, turn.key() + turn.event() + turn.journal());
      try (AgentHarness agent =
          builder(after).stateBackend(backend(backend)).subtask(subtask, 2).open(part)) {
        agent.endInput();
        seen.addAll(agent.emitted());
        total += agent.emitted().size();
      }
    }
    assertEquals(40, total);
    assertEquals(40, seen.size());
    assertTrue(seen.contains("k7first[journal of k7]"), seen.toString());
    assertTrue(seen.contains("k7second[]"), seen.toString());
  }

  private static Turn lastOf(FakeWorker worker, AgentHarness agent) throws Exception {
    agent.send("probe", "probe");
    return worker.takeTurn("probe");
  }

  @Test
  void anIdleSessionExpiresAndItsKeyBeginsAnew() throws Exception {
    FakeWorkers workers = new FakeWorkers();
    try (AgentHarness agent = builder(workers).sessionTtlMs(TTL_MS).open()) {
      FakeWorker worker = workers.only();
      agent.send("a", "1");
      worker.endWithSession(worker.takeTurn("1"), Frames.SESSION_REPLACE, "s");
      agent.awaitEmitted(1);
      setTime(agent, TTL_MS + 1);
      agent.send("a", "2");
      Turn turn = worker.takeTurn("2");
      assertEquals(1, turn.number());
      assertEquals(0, turn.sessionVersion());
      worker.needSession(turn);
      agent.await("SESSION", () -> !worker.sessions.isEmpty());
      assertEquals(List.of(), worker.sessions.take().chunks());
    }
  }

  @Test
  void aSessionInUseLivesAsAWhole() throws Exception {
    FakeWorkers workers = new FakeWorkers();
    try (AgentHarness agent = builder(workers).sessionTtlMs(TTL_MS).open()) {
      FakeWorker worker = workers.only();
      List<String> expected = new ArrayList<>();
      for (int i = 0; i < 12; i++) {
        setTime(agent, i * (TTL_MS - 100));
        agent.send("a", "e" + i);
        worker.endWithSession(worker.takeTurn("e" + i), Frames.SESSION_APPEND, "s" + i);
        expected.add("s" + i);
        agent.awaitEmitted(i + 1);
      }
      agent.send("a", "last");
      Turn turn = worker.takeTurn("last");
      assertFalse(turn.hasSession());
      worker.needSession(turn);
      agent.await("SESSION", () -> !worker.sessions.isEmpty());
      assertEquals(expected, worker.sessions.take().chunks());
    }
  }

  private static final long DAY_MS = 24L * 60 * 60 * 1000;

  @ParameterizedTest
  @ValueSource(strings = {"hashmap", "rocksdb"})
  void onlyKeysWithASessionStayByDefault(String backend) throws Exception {
    FakeWorkers workers = new FakeWorkers();
    try (AgentHarness agent = builder(workers).stateBackend(backend(backend)).open()) {
      FakeWorker worker = workers.only();
      agent.send("none", "1");
      worker.end(worker.takeTurn("1"), "x");
      agent.send("some", "2");
      worker.endWithSession(worker.takeTurn("2"), Frames.SESSION_APPEND, "s");
      agent.send("cleared", "3");
      worker.endWithSession(worker.takeTurn("3"), Frames.SESSION_REPLACE, "s");
      agent.awaitEmitted(3);
      agent.send("cleared", "4");
      worker.endWithSession(worker.takeTurn("4"), Frames.SESSION_CLEAR);
      agent.awaitEmitted(4);
      setTime(agent, 29 * DAY_MS);
      assertEquals(2, numberOf(agent, worker, "none"));
      assertEquals(2, numberOf(agent, worker, "some"));
      assertEquals(3, numberOf(agent, worker, "cleared"));
      setTime(agent, 100 * DAY_MS);
      assertEquals(1, numberOf(agent, worker, "none"));
      assertEquals(3, numberOf(agent, worker, "some"));
      assertEquals(1, numberOf(agent, worker, "cleared"));
    }
  }

  /** Runs one more turn of a key, which leaves its session as it is. */
  private static long numberOf(AgentHarness agent, FakeWorker worker, String key) throws Exception {
    int before = agent.getOutput().size();
    agent.send(key, "more");
    Turn turn = worker.takeTurn("more");
    worker.end(turn, "x");
    agent.awaitEmitted(before + 1);
    return turn.number();
  }

  @Test
  void keysThatNeverReturnLeaveNothing() throws Exception {
    FakeWorkers workers = new FakeWorkers();
    workers.onTurn = (worker, turn) -> worker.end(turn, "x");
    try (AgentHarness agent = builder(workers).open()) {
      for (int i = 0; i < 200; i++) {
        agent.send("k" + i, "e");
      }
      agent.awaitEmitted(200);
      assertEquals(200, agent.keysOf("idle") + agent.keysOf("turns"));
      setTime(agent, 31 * DAY_MS);
      // Flink removes some that have expired at each access.
      for (int i = 0; i < 200; i++) {
        agent.send("one", "e");
        agent.awaitEmitted(201 + i);
      }
      assertEquals(1, agent.keysOf("idle") + agent.keysOf("turns"));
    }
  }

  @Test
  void waitingEventsOutliveTheTimeToLive() throws Exception {
    FakeWorkers before = new FakeWorkers();
    OperatorSubtaskState snapshot;
    try (AgentHarness agent = builder(before).sessionTtlMs(TTL_MS).open()) {
      FakeWorker worker = before.only();
      for (int i = 1; i <= 12; i++) {
        agent.send("a", "e" + i);
      }
      worker.endWithSession(worker.takeTurn("e1"), Frames.SESSION_REPLACE, "s");
      agent.awaitEmitted(1);
      Turn second = worker.takeTurn("e2");
      worker.step(second, false, "j");
      worker.needSession(second);
      agent.await("SESSION", () -> !worker.sessions.isEmpty());
      snapshot = agent.snapshot(1, 1);
    }
    FakeWorkers after = new FakeWorkers();
    AgentHarness agent = builder(after).sessionTtlMs(TTL_MS).build();
    try {
      setTime(agent, 100 * TTL_MS);
      agent.initializeState(snapshot);
      agent.open();
      FakeWorker worker = after.only();
      Turn second = worker.takeTurn("e2");
      assertEquals(2, second.number(), "call ids depend on the number");
      assertEquals(List.of("j"), second.journal());
      assertEquals(0, second.sessionVersion());
      worker.end(second, "x");
      for (int i = 3; i <= 12; i++) {
        agent.awaitEmitted(i - 2);
        Turn turn = worker.takeTurn("e" + i);
        assertEquals(i, turn.number());
        worker.end(turn, "x");
      }
      agent.awaitEmitted(11);
    } finally {
      agent.close();
    }
  }

  @ParameterizedTest
  @CsvSource(
      textBlock =
          """
          hashmap, 0, 1000
          hashmap, 1000, 0
          rocksdb, 0, 1000
          rocksdb, 1000, 0
          """)
  void theTimeToLiveMayBeSetAndRemovedBetweenSavepointAndRestore(
      String backend, long ttlBefore, long ttlAfter) throws Exception {
    FakeWorkers before = new FakeWorkers();
    OperatorSubtaskState snapshot;
    try (AgentHarness agent =
        builder(before).stateBackend(backend(backend)).sessionTtlMs(ttlBefore).open()) {
      FakeWorker worker = before.only();
      agent.send("a", "1");
      worker.endWithSession(worker.takeTurn("1"), Frames.SESSION_REPLACE, "s");
      agent.awaitEmitted(1);
      snapshot = agent.snapshot(1, 1);
    }
    FakeWorkers after = new FakeWorkers();
    try (AgentHarness agent =
        builder(after).stateBackend(backend(backend)).sessionTtlMs(ttlAfter).open(snapshot)) {
      agent.send("a", "2");
      Turn turn = after.only().takeTurn("2");
      assertEquals(2, turn.number());
      assertEquals(List.of("s"), turn.session());
    }
  }

  /**
   * State of version 1 in a savepoint of Flink 2.2. The file was written by {@link
   * #writeSnapshotOfVersion1}.
   */
  @Test
  void aSnapshotOfStateVersion1IsRestored() throws Exception {
    OperatorSubtaskState snapshot =
        OperatorSnapshotUtil.readStateHandle(
            getClass().getResource("/state-version-1.snapshot").getPath());
    FakeWorkers workers = new FakeWorkers();
    try (AgentHarness agent = builder(workers).open(snapshot)) {
      FakeWorker worker = workers.only();
      Turn second = worker.takeTurn("a2");
      assertEquals(2, second.number());
      assertEquals(22, second.timestamp());
      assertEquals(1, second.sessionVersion());
      assertEquals(List.of("s1", "s2"), second.session());
      assertEquals(List.of("j1"), second.journal());
      worker.end(second, "A2");
      agent.awaitEmitted(1);
      Turn third = worker.takeTurn("a3");
      assertEquals(0, third.flags());
      worker.end(third, "A3");
      agent.awaitEmitted(2);
      assertEquals(List.of("A2@22", "A3"), agent.emitted());
      assertEquals(2, numberOf(agent, worker, "b"));
    }
  }

  /** Run by hand, with {@code -DwriteSnapshot=true}, when a new state version is released. */
  @Test
  @EnabledIfSystemProperty(named = "writeSnapshot", matches = "true")
  void writeSnapshotOfVersion1() throws Exception {
    FakeWorkers workers = new FakeWorkers();
    try (AgentHarness agent = builder(workers).open()) {
      FakeWorker worker = workers.only();
      agent.send("a", "a1", 11);
      worker.endWithSession(worker.takeTurn("a1"), Frames.SESSION_REPLACE, "s1", "s2");
      agent.awaitEmitted(1);
      agent.send("a", "a2", 22);
      agent.send("a", "a3");
      worker.step(worker.takeTurn("a2"), false, "j1");
      agent.send("b", "probe");
      worker.end(worker.takeTurn("probe"), "probe");
      agent.awaitEmitted(2);
      OperatorSnapshotUtil.writeStateHandle(
          agent.snapshot(1, 1), "src/test/resources/state-version-1.snapshot");
    }
  }

  private static void setTime(AgentHarness agent, long millis) throws Exception {
    agent.setStateTtlProcessingTime(millis);
    agent.setProcessingTime(millis);
  }

  @Test
  void anUnfinishedTurnWithoutASessionKeepsItsNumber() throws Exception {
    FakeWorkers before = new FakeWorkers();
    OperatorSubtaskState snapshot;
    try (AgentHarness agent = builder(before).open()) {
      FakeWorker worker = before.only();
      agent.send("a", "1");
      worker.end(worker.takeTurn("1"), "x");
      agent.awaitEmitted(1);
      agent.send("a", "2");
      worker.takeTurn("2");
      snapshot = agent.snapshot(1, 1);
    }
    FakeWorkers after = new FakeWorkers();
    AgentHarness agent = builder(after).build();
    try {
      setTime(agent, 100 * DAY_MS);
      agent.initializeState(snapshot);
      agent.open();
      assertEquals(2, after.only().takeTurn("2").number(), "call ids depend on the number");
    } finally {
      agent.close();
    }
  }

  @Test
  void aNewerStateFormatIsRefusedWithAMend() {
    byte[] counters = new TurnState.Counters(1, 2, 3, 4).encode();
    assertEquals(new TurnState.Counters(1, 2, 3, 4), TurnState.Counters.decode(counters));
    counters[0] = 2;
    IllegalStateException failure =
        assertThrows(IllegalStateException.class, () -> TurnState.Counters.decode(counters));
    assertTrue(failure.getMessage().contains("'turns'"), failure.getMessage());
    assertTrue(failure.getMessage().contains("version 2"), failure.getMessage());
    byte[] event = TurnState.Event.encode(true, 5, new byte[] {1});
    event[0] = 9;
    failure = assertThrows(IllegalStateException.class, () -> TurnState.Event.decode(event));
    assertTrue(failure.getMessage().contains("'pending'"), failure.getMessage());
  }

  @Test
  void aLaterFormatIsRejectedWithAnyParallelism() throws Exception {
    OperatorSubtaskState[] parts = new OperatorSubtaskState[2];
    for (int subtask = 0; subtask < 2; subtask++) {
      try (AgentHarness agent = builder(new FakeWorkers()).subtask(subtask, 2).open()) {
        assertEquals(1, agent.mark((byte) (StateFormat.VERSION + 1)));
        parts[subtask] = agent.snapshot(1, 1);
      }
    }
    OperatorSubtaskState all = AgentHarness.repackageState(parts);
    for (int parallelism = 1; parallelism <= 2; parallelism++) {
      for (int subtask = 0; subtask < parallelism; subtask++) {
        OperatorSubtaskState part =
            AgentHarness.repartitionOperatorState(
                all, AgentHarness.MAX_PARALLELISM, 2, parallelism, subtask);
        try (AgentHarness agent =
            builder(new FakeWorkers()).subtask(subtask, parallelism).build()) {
          agent.initializeState(part);
          AgentRejectedException failure = assertThrows(AgentRejectedException.class, agent::open);
          String versions = String.format("%d, and", StateFormat.VERSION + 1);
          assertTrue(failure.getMessage().contains("format version " + versions));
          assertTrue(failure.getMessage().contains("up to " + StateFormat.VERSION));
        }
      }
    }
  }

  @Test
  void markersOfAnEarlierFormatAreRaised() throws Exception {
    OperatorSubtaskState snapshot;
    try (AgentHarness agent = builder(new FakeWorkers()).open()) {
      agent.mark((byte) 1);
      snapshot = agent.snapshot(1, 1);
    }
    try (AgentHarness agent = builder(new FakeWorkers()).open(snapshot)) {
      assertEquals(StateFormat.VERSION, agent.marked());
      agent.send("a", "a1");
    }
  }
}
