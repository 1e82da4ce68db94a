package org.flinkskills.bridge.operator;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.api.common.JobID;
import org.flinkskills.bridge.AgentWorkerException;
import org.flinkskills.bridge.frames.FrameWriter;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.kit.AgentHarness;
import org.flinkskills.bridge.kit.FakeWorkers;
import org.flinkskills.bridge.kit.FakeWorkers.FakeWorker;
import org.flinkskills.bridge.kit.FakeWorkers.Turn;
import org.flinkskills.bridge.outputs.AgentOutputs;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(60)
class AgentOperatorCrashTest {
  @TempDir File tmp;

  private final FakeWorkers workers = new FakeWorkers();

  private AgentHarness.Builder builder() {
    return new AgentHarness.Builder(workers.provider(), tmp);
  }

  static List<Turn> take(FakeWorker worker, AgentHarness agent, int count) throws Exception {
    agent.await(count + " turns", () -> worker.turns.size() >= count);
    List<Turn> turns = new ArrayList<>();
    worker.turns.drainTo(turns);
    assertEquals(count, turns.size(), turns.toString());
    turns.sort(Comparator.comparing(Turn::key));
    return turns;
  }

  @Test
  void turnsGoOnInANewWorkerWithTheirJournal() throws Exception {
    try (AgentHarness agent = builder().open()) {
      FakeWorker first = workers.only();
      agent.send("a", "a1");
      agent.send("a", "a2");
      agent.send("b", "b1");
      List<Turn> turns = take(first, agent, 2);
      first.step(turns.get(0), false, "j1");
      first.end(turns.get(1), "b1");
      first.die(9);
      FakeWorker second = workers.started(1);
      Turn again = take(second, agent, 1).get(0);
      assertEquals("a1", again.event());
      assertEquals(1, again.crashes());
      assertEquals(List.of("j1"), again.journal());
      second.end(again, "a1");
      second.end(take(second, agent, 1).get(0), "a2");
      agent.awaitEmitted(3);
      assertEquals(List.of("b1", "a1", "a2"), agent.emitted());
      assertEquals(2, workers.launched.size());
      assertEquals(1, second.opens.size());
    }
  }

  @Test
  void eventsThatArriveWhileTheWorkerIsAwayWaitForIt() throws Exception {
    try (AgentHarness agent = builder().open()) {
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
      // The input blocks until the worker is back, so another thread starts it again.
      Thread opener = new Thread(late.get(0));
      opener.start();
      agent.send("a", "a1");
      assertEquals("a1", take(second, agent, 1).get(0).event());
      opener.join();
    }
  }

  @Test
  void aTurnIsOnlyBlamedForACrashWhenItRanAlone() throws Exception {
    workers.onTurn =
        (worker, turn) -> {
          if (turn.crashes() >= 3) {
            worker.end(turn, Frames.END_ERROR_RECORD, 0, List.of(), "", "errors>" + turn.key());
          } else if (turn.event().equals("poison")) {
            worker.die(139);
          } else {
            worker.turns.add(turn);
          }
        };
    try (AgentHarness agent = builder().maxCrashes(3).open()) {
      agent.send("good1", "g1");
      agent.send("good2", "g2");
      agent.send("bad", "poison");
      Set<String> done = new HashSet<>();
      agent.await(
          "all turns",
          () -> {
            for (FakeWorker worker : workers.launched) {
              for (Turn turn = worker.turns.poll(); turn != null; turn = worker.turns.poll()) {
                // Good turns only end once the bad one has had two chances to take them down.
                if (turn.crashes() >= 2) {
                  worker.end(turn, turn.event());
                  done.add(turn.key());
                }
              }
            }
            return agent.getOutput().size() == 2 && agent.emitted("errors").size() == 1;
          });
      assertEquals(Set.of("good1", "good2"), done);
      assertEquals(List.of("bad"), agent.emitted("errors"));
      // Two shared crashes and one alone.
      assertEquals(4, workers.launched.size());
    }
  }

  @Test
  void aTurnThatFinishesStepsBetweenCrashesIsNotBlamedForThem() throws Exception {
    try (AgentHarness agent = builder().maxCrashes(3).open()) {
      agent.send("a", "a1");
      for (int i = 0; i < 6; i++) {
        FakeWorker worker = workers.started(i);
        Turn turn = take(worker, agent, 1).get(0);
        assertEquals(i == 0 ? 0 : 1, turn.crashes(), turn.toString());
        assertEquals(i, turn.journal().size());
        worker.step(turn, false, "j" + i);
        worker.die(137);
      }
      // Neither a cleared journal nor a missing entry is progress.
      for (int i = 6; i < 9; i++) {
        FakeWorker worker = workers.started(i);
        Turn turn = take(worker, agent, 1).get(0);
        assertEquals(i - 5, turn.crashes(), turn.toString());
        if (i == 7) {
          worker.step(turn, true, "again");
        }
        worker.die(137);
      }
      FakeWorker last = workers.started(9);
      Turn blamed = take(last, agent, 1).get(0);
      // The turn could have ended with its error record, and crashed the worker again.
      assertEquals(4, blamed.crashes());
      last.end(blamed, Frames.END_ERROR_RECORD, 0, List.of(), "", "errors>a");
      agent.await("the error record", () -> agent.emitted("errors").size() == 1);
    }
  }

  @Test
  void manySuspectsAreDividedUntilTheOneThatCrashesIsAlone() throws Exception {
    int turns = 96;
    AtomicInteger alone = new AtomicInteger();
    workers.onTurn =
        (worker, turn) -> {
          if (turn.crashes() >= 3) {
            worker.end(turn, Frames.END_ERROR_RECORD, 0, List.of(), "", "errors>" + turn.key());
          } else {
            worker.turns.add(turn);
          }
        };
    try (AgentHarness agent = builder().maxCrashes(3).open()) {
      for (int i = 0; i < turns; i++) {
        agent.send("k" + i, i == 77 ? "poison" : "good");
      }
      for (int i = 0; i < 2; i++) {
        take(workers.started(i), agent, turns);
        workers.launched.get(i).die(137);
      }
      List<Integer> shares = new ArrayList<>();
      int worker = 2;
      while (agent.getOutput().size() + agent.emitted("errors").size() < turns) {
        FakeWorker now = workers.started(worker);
        agent.await(
            "turns", () -> !now.turns.isEmpty() || agent.emitted("errors").size() > alone.get());
        agent.runMails();
        List<Turn> share = new ArrayList<>();
        now.turns.drainTo(share);
        if (share.isEmpty()) {
          alone.incrementAndGet();
          continue;
        }
        shares.add(share.size());
        if (share.stream().anyMatch(turn -> turn.event().equals("poison"))) {
          now.die(139);
          worker++;
        } else {
          share.forEach(turn -> now.end(turn, turn.event()));
          int done = agent.getOutput().size() + share.size();
          agent.await("their ends", () -> agent.getOutput().size() >= done);
        }
      }
      assertEquals(List.of("k77"), agent.emitted("errors"));
      assertEquals(turns - 1, agent.getOutput().size());
      // All twice, then a share of 12, then the one alone; the last worker takes what is left.
      assertEquals(5, workers.launched.size());
      assertTrue(shares.size() < 30, shares.toString());
    }
  }

  @Test
  void aSuspectRunsAloneAlsoAmongOperatorsThatShareTheWorker() throws Exception {
    JobID job = new JobID();
    AtomicInteger atOnce = new AtomicInteger();
    Set<String> company = ConcurrentHashMap.newKeySet();
    workers.onTurn =
        (worker, turn) -> {
          int others = atOnce.getAndIncrement();
          if (turn.crashes() > 0 && others > 0) {
            company.add(turn.toString());
          }
          worker.turns.add(turn);
        };
    try (AgentHarness one = builder().jobId(job).maxCrashes(2).subtask(0, 2).open();
        AgentHarness two = builder().jobId(job).maxCrashes(2).subtask(1, 2).open()) {
      FakeWorker first = workers.only();
      one.send(AgentHarness.keyOf(0, 2, "a"), "a");
      one.send(AgentHarness.keyOf(0, 2, "b"), "b");
      two.send(AgentHarness.keyOf(1, 2, "c"), "c");
      take(first, one, 3);
      atOnce.set(0);
      first.die(1);
      FakeWorker second = workers.started(1);
      for (int i = 0; i < 3; i++) {
        one.await(
            "a suspect",
            () -> {
              two.runMails();
              return !second.turns.isEmpty();
            });
        if (i == 0) {
          // The operator accepts this key, so the input does not block.
          two.send(AgentHarness.keyOf(1, 2, "c"), "d");
        }
        Turn turn = second.takeTurn();
        assertEquals(1, turn.crashes(), turn.toString());
        assertTrue(second.turns.isEmpty());
        atOnce.decrementAndGet();
        second.end(turn, turn.event());
      }
      one.await(
          "the new turn",
          () -> {
            two.runMails();
            return !second.turns.isEmpty();
          });
      Turn fresh = second.takeTurn("d");
      assertEquals(0, fresh.crashes());
      second.end(fresh, "d");
      one.awaitEmitted(2);
      two.awaitEmitted(2);
      assertEquals(Set.of(), company);
    }
  }

  @Test
  void aWorkerThatDoesNotComeBackFailsTheTaskWithItsLog() throws Exception {
    try (AgentHarness agent = builder().open()) {
      workers.onOpen =
          (worker, open) -> {
            logged(worker, "ERROR no module named flink_skills");
            worker.die(3);
          };
      agent.send("a", "a");
      workers.only().die(3);
      AgentWorkerException failure =
          assertThrows(AgentWorkerException.class, () -> agent.await("a failure", () -> false));
      assertTrue(failure.getMessage().contains("exited 5 times in a row"), failure.getMessage());
      assertTrue(failure.getMessage().contains("exit code 3"), failure.getMessage());
      assertTrue(
          failure.getMessage().contains("no module named flink_skills"), failure.getMessage());
      assertEquals(6, workers.launched.size());
    }
  }

  @Test
  void aWorkerThatDiesAsSoonAsItIsOpenFailsTheTaskWithItsLog() throws Exception {
    AtomicBoolean dies = new AtomicBoolean();
    workers.onOpen =
        (worker, open) -> {
          worker.opened(open);
          if (dies.get()) {
            logged(worker, "ERROR a thread of the agent called abort()");
            worker.die(134);
          }
        };
    try (AgentHarness agent = builder().open()) {
      dies.set(true);
      workers.only().die(134);
      AgentWorkerException failure =
          assertThrows(AgentWorkerException.class, () -> agent.await("a failure", () -> false));
      assertTrue(failure.getMessage().contains("times in a row"), failure.getMessage());
      assertTrue(failure.getMessage().contains("exit code 134"), failure.getMessage());
      assertTrue(failure.getMessage().contains("called abort()"), failure.getMessage());
      assertTrue(workers.launched.size() <= 6, workers.launched.size() + " starts");
    }
  }

  @Test
  void turnsWaitForAWorkerThatFailsToStartWithoutBlame() throws Exception {
    AtomicBoolean dies = new AtomicBoolean();
    workers.onOpen =
        (worker, open) -> {
          worker.opened(open);
          if (dies.get() && workers.launched.size() < 6) {
            worker.die(134);
          }
        };
    try (AgentHarness agent = builder().maxCrashes(3).open()) {
      agent.send("a", "a1");
      agent.send("b", "b1");
      FakeWorker first = workers.only();
      take(first, agent, 2);
      dies.set(true);
      first.die(134);
      agent.await("a worker that stays", () -> workers.launched.size() == 6);
      FakeWorker stays = workers.started(5);
      List<Turn> turns = new ArrayList<>();
      agent.await(
          "both turns",
          () -> {
            for (Turn turn = stays.turns.poll(); turn != null; turn = stays.turns.poll()) {
              turns.add(turn);
              stays.end(turn, turn.event());
            }
            return turns.size() == 2;
          });
      for (Turn turn : turns) {
        // The first death, and perhaps one before the operator knew of it.
        assertTrue(turn.crashes() <= 2, turn.toString());
      }
      agent.awaitEmitted(2);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"input", "output", "log"})
  void anErrorOnAThreadOfAWorkerIsALostWorker(String stream) throws Exception {
    try (AgentHarness agent = builder().open()) {
      agent.send("a", "a1");
      FakeWorker first = workers.only();
      Turn turn = take(first, agent, 1).get(0);
      workers.failing.put(stream, new OutOfMemoryError("a test's"));
      agent.send("b", "b1");
      if (stream.equals("output")) {
        first.end(turn, "a1");
      }
      if (stream.equals("log")) {
        first.log("INFO a line");
      }
      FakeWorker second = workers.started(1);
      for (Turn again : take(second, agent, 2)) {
        second.end(again, again.event());
      }
      agent.awaitEmitted(2);
      if (!stream.equals("input")) {
        // A worker whose input is closed may end by itself before it is killed.
        assertEquals("exit code 137", first.exitDescription());
      }
      assertEquals(Map.of(), workers.failing);
    }
  }

  private static void logged(FakeWorker worker, String line) {
    try {
      worker.log(line);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Each is an answer of the turn: cut off, with bytes too many, of unknown kinds. */
  @ParameterizedTest
  @ValueSource(
      strings = {
        "84 op id",
        "84 op id 00",
        "84 op id 00 00 00000001 00000005 61",
        "84 op id 00 00 ffffffff",
        "84 op id 09 00 00000000 00000000 00000000",
        "84 op id 00 09 00000000 00000000 00000000",
        "84 op id 00 00 00000000 00000000 00000000 ff",
        "83 op id 00 00000004 61",
        "83 op id 00 00000001 61 00000001",
        "88 op id 7fffffff",
        "85 op",
        "86 0000"
      })
  void aBrokenAnswerReplacesTheWorker(String answer) throws Exception {
    try (AgentHarness agent = builder().open()) {
      agent.send("good", "good");
      agent.send("bad", "bad");
      FakeWorker first = workers.only();
      List<Turn> turns = take(first, agent, 2);
      turns.sort(Comparator.comparing(Turn::key));
      Turn bad = turns.get(0);
      String hex =
          answer
              .replace("op", String.format("%08x", bad.operator()))
              .replace("id", String.format("%016x", bad.id()))
              .replace(" ", "");
      byte[] body = HexFormat.of().parseHex(hex);
      FrameWriter frame = new FrameWriter(body[0] & 0xFF);
      for (int i = 1; i < body.length; i++) {
        frame.u8(body[i]);
      }
      // The frames before it are handled.
      first.step(turns.get(1), false, "done");
      first.answer(frame);
      for (Turn again : take(workers.started(1), agent, 2)) {
        assertEquals(1, again.crashes(), again.toString());
        assertEquals(again.key().equals("bad") ? List.of() : List.of("done"), again.journal());
        workers.started(1).end(again, again.event());
      }
      agent.awaitEmitted(2);
    }
  }

  @Test
  void anUnreadableAnswerCountsAsACrash() throws Exception {
    try (AgentHarness agent = builder().open()) {
      agent.send("a", "a");
      FakeWorker first = workers.only();
      first.takeTurn("a");
      first.raw("print() went to stdout".getBytes(java.nio.charset.StandardCharsets.UTF_8));
      FakeWorker second = workers.started(1);
      Turn again = take(second, agent, 1).get(0);
      assertEquals(1, again.crashes());
      second.end(again, "a");
      agent.awaitEmitted(1);
      assertNull(agent.getSideOutput(AgentOutputs.tag("errors")));
    }
  }
}
