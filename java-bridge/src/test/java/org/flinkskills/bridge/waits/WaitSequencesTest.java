package org.flinkskills.bridge.waits;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.Metric;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.flinkskills.bridge.kit.AgentHarness;
import org.flinkskills.bridge.kit.FakeWorkers;
import org.flinkskills.bridge.kit.FakeWorkers.FakeWorker;
import org.flinkskills.bridge.kit.FakeWorkers.Turn;
import org.flinkskills.bridge.kit.Waiting;
import org.flinkskills.bridge.turns.KeyedTurns;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Random sequences of events, waits, answers, deaths of the worker and restores, where each restore
 * draws {@code skills.turn.when-waiting}. Every turn ends one time, each attempt has the steps of
 * the attempts before, and turns begin in the order of their events.
 *
 * <p>The system property {@code waits.seeds} is the number of sequences, {@code waits.first} the
 * first seed.
 */
class WaitSequencesTest {
  private static final int SEEDS = Integer.getInteger("waits.seeds", 200);
  private static final int FIRST = Integer.getInteger("waits.first", 1);
  private static final int ACTIONS = 45;
  private static final List<String> KEYS = List.of("a", "b");

  @TempDir File tmp;

  @Test
  void everyTurnEndsWhateverHappens() throws Exception {
    for (int seed = FIRST; seed < FIRST + SEEDS; seed++) {
      Sequence sequence = new Sequence(new Random(seed));
      try {
        sequence.run();
      } catch (AssertionError | Exception failure) {
        throw new AssertionError("seed " + seed + ": " + sequence.log, failure);
      } finally {
        sequence.agent.close();
      }
    }
  }

  /** Event with the expected progress of its turn. */
  private static final class Event {
    final String key;
    final String text;
    final int number;
    final List<String> journal = new ArrayList<>();
    int waitsLeft;
    String wait;
    String answer;
    Turn running;
    boolean isParked;
    boolean isOvertaken;
    boolean hasStarted;
    boolean hasEnded;

    Event(String key, int number, int waits) {
      this.key = key;
      this.number = number;
      this.text = key + number;
      this.waitsLeft = waits;
    }
  }

  private final class Sequence {
    final Random random;
    final List<String> log = new ArrayList<>();
    final Map<String, List<Event>> events = new HashMap<>();
    final List<String> outputs = new ArrayList<>();
    final Map<String, Metric> metrics = new ConcurrentHashMap<>();
    FakeWorkers workers = new FakeWorkers();
    AgentHarness agent;
    FakeWorker worker;
    boolean overtake;
    int waits;
    int acks;

    /** The worker dies at most one time: the operator starts the next ones after pauses. */
    boolean canDie;

    Sequence(Random random) throws Exception {
      this.random = random;
      KEYS.forEach(key -> events.put(key, new ArrayList<>()));
      canDie = random.nextInt(3) == 0;
      overtake = random.nextBoolean();
      log.add(overtake ? "next" : "queue");
      open(null);
    }

    private void open(OperatorSubtaskState snapshot) throws Exception {
      agent =
          new AgentHarness.Builder(workers.provider(), tmp)
              .metrics(metrics)
              .maxCrashes(1000)
              .overtake(overtake)
              .open(snapshot);
      worker = workers.only();
    }

    void run() throws Exception {
      for (int i = 0; i < ACTIONS; i++) {
        act(random.nextInt(20));
        receive();
      }
      Waiting.until("all turns end", this::finish);
      outputs.addAll(agent.emitted());
      List<String> expected = all().stream().map(event -> event.text).sorted().toList();
      assertEquals(expected, outputs.stream().sorted().toList());
      assertEquals(0, waiting());
      assertEquals(0, agent.keysOf(KeyedTurns.PENDING));
    }

    private boolean finish() throws Exception {
      receive();
      for (Event event : all()) {
        if (event.wait != null && event.answer == null) {
          answer(event);
        }
        if (event.running != null) {
          advance(event, true);
        }
      }
      return all().stream().allMatch(event -> event.hasEnded);
    }

    private void act(int action) throws Exception {
      Event event = any();
      if (action < 5) {
        String key = KEYS.get(random.nextInt(KEYS.size()));
        List<Event> of = events.get(key);
        Event added = new Event(key, of.size(), random.nextInt(3));
        of.add(added);
        log.add("event " + added.text);
        agent.send(key, added.text);
      } else if (action == 5 && canDie && all().stream().anyMatch(of -> of.running != null)) {
        die();
      } else if (action == 6) {
        restore();
      } else if (event == null) {
        return;
      } else if (action < 10) {
        if (event.wait != null && event.answer == null) {
          answer(event);
        }
      } else if (event.running != null) {
        advance(event, false);
      }
    }

    private List<Event> all() {
      return events.values().stream().flatMap(List::stream).toList();
    }

    /** An event whose turn can do something, if there is one. */
    private Event any() {
      List<Event> found =
          all().stream().filter(event -> event.running != null || event.wait != null).toList();
      return found.isEmpty() ? null : found.get(random.nextInt(found.size()));
    }

    private int waiting() {
      return ((Number) ((Gauge<?>) metrics.get("waiting")).getValue()).intValue();
    }

    private void answer(Event event) throws Exception {
      event.answer = "answer " + event.wait;
      log.add("answer " + event.wait);
      agent.sendAnswer(event.key, event.wait, event.answer);
      if (random.nextInt(4) == 0) {
        agent.sendAnswer(event.key, event.wait, "doubled");
      }
    }

    private void die() throws Exception {
      canDie = false;
      log.add("die");
      int launched = workers.launched.size();
      all().forEach(event -> event.running = null);
      worker.turns.clear();
      worker.die(1);
      agent.await("another worker", () -> workers.launched.size() > launched);
      worker = workers.launched.get(launched);
    }

    private void restore() throws Exception {
      OperatorSubtaskState snapshot = agent.snapshot(1, 1);
      outputs.addAll(agent.emitted());
      agent.close();
      all().forEach(event -> event.running = null);
      overtake = random.nextBoolean();
      log.add("restore with " + (overtake ? "next" : "queue"));
      workers = new FakeWorkers();
      metrics.clear();
      open(snapshot);
    }

    /** Accept the turns that the operator has sent to the worker. */
    private void receive() throws Exception {
      agent.runMails();
      Turn turn;
      while ((turn = worker.turns.poll()) != null) {
        String text = turn.event();
        Event event = all().stream().filter(of -> of.text.equals(text)).findFirst().orElseThrow();
        log.add("turn " + text);
        assertFalse(event.hasEnded, text + " starts after its end");
        for (Event other : events.get(event.key)) {
          assertNull(other.running, "two turns of one key");
          if (!event.hasStarted && other.number < event.number) {
            assertTrue(other.hasEnded || other.isOvertaken, text + " starts before " + other.text);
          }
        }
        assertEquals(event.number + 1, turn.number());
        assertEquals(event.journal, turn.journal());
        if (event.isParked || !turn.answers().isEmpty()) {
          assertNotNull(event.answer, text + " resumes without an answer");
          assertEquals(List.of(event.wait + "=" + event.answer), turn.answers());
        }
        event.isParked = false;
        event.hasStarted = true;
        event.running = turn;
      }
    }

    private void advance(Event event, boolean finishing) throws Exception {
      Turn turn = event.running;
      String ack = "acks>" + (acks + 1);
      if (event.wait != null && event.answer != null && random.nextInt(3) > 0) {
        log.add("close " + event.wait);
        worker.close(turn, event.wait, ack);
        event.journal.add("close " + event.wait);
        event.wait = null;
        event.answer = null;
      } else if (event.wait != null) {
        park(event);
        return;
      } else if (!finishing && random.nextInt(3) == 0) {
        worker.step(turn, false, "step " + acks, ack);
        event.journal.add("step " + acks);
        log.add("step of " + event.text);
      } else if (event.waitsLeft > 0) {
        event.waitsLeft--;
        event.wait = "w" + ++waits;
        log.add(event.text + " opens " + event.wait);
        worker.open(turn, event.wait, "question", ack);
        event.journal.add("open " + event.wait);
      } else {
        log.add("end of " + event.text);
        event.running = null;
        event.hasEnded = true;
        int before = agent.emitted().size();
        worker.end(turn, event.text);
        agent.awaitEmitted(before + 1);
        return;
      }
      acks++;
      agent.await("the change", () -> agent.emitted("acks").contains(Integer.toString(acks)));
    }

    private void park(Event event) throws Exception {
      log.add("park " + event.text);
      int before = waiting();
      event.isParked = event.answer == null;
      event.isOvertaken |= event.isParked && overtake;
      Turn turn = event.running;
      event.running = null;
      worker.park(turn);
      agent.await(
          "the stop",
          () ->
              waiting() > before
                  || worker.turns.stream().anyMatch(of -> of.key().equals(event.key)));
    }
  }
}
