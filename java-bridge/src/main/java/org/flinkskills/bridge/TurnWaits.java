package org.flinkskills.bridge;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.LongSupplier;

/**
 * Waits of one operator's turns: their answers, deadlines and ends. It decides which answer counts,
 * and reports the others as error records. Methods use the current key.
 *
 * <p>{@link TurnRunner} stops and resumes the turns.
 */
final class TurnWaits {
  /** The end of a wait together with its turn. It is in no frame. */
  private static final int TURN_ENDED = 4;

  private final KeyedWaits state;
  private final WaitTimers timers;
  private final AgentOutputs outputs;
  private final AgentMetrics metrics;
  private final AgentSettings settings;
  private final String planJson;
  private final LongSupplier clock;

  /** The inputs have ended, so no answer can arrive. */
  private boolean inputEnded;

  /** Sleeps end together with the inputs. */
  private boolean sleepsEnd;

  /** An answer that a turn receives. */
  record Delivery(long turn, String waitId, WaitState.Answer answer) {}

  TurnWaits(
      KeyedWaits state,
      WaitTimers timers,
      AgentOutputs outputs,
      AgentMetrics metrics,
      AgentSettings settings,
      String planJson,
      LongSupplier clock) {
    this.state = state;
    this.timers = timers;
    this.outputs = outputs;
    this.metrics = metrics;
    this.settings = settings;
    this.planJson = planJson;
    this.clock = clock;
    if (state.exist()) {
      timers.open();
    }
  }

  /** Return the processing time in milliseconds since 1970. */
  long now() {
    return clock.getAsLong();
  }

  /** Return the keyed state. */
  KeyedWaits state() {
    return state;
  }

  /** Open a wait. Return its answer if it has one already, else null. */
  Delivery open(long turn, String id, String name, int flags, long deadline) throws Exception {
    WaitState.Wait known = state.wait(id);
    if (known != null && known.status() == WaitState.Status.OPEN && known.turn() == turn) {
      return known.answer() == null ? null : new Delivery(turn, id, known.answer());
    }
    long now = clock.getAsLong();
    WaitState.Wait opened =
        new WaitState.Wait(WaitState.Status.OPEN, turn, name, flags, now, deadline, null);
    WaitState.Answer answer = takeEarly(id, known);
    if (answer == null && !opened.isSleep()) {
      answer = takeEarly(name, state.wait(name));
    }
    if (answer == null && timers.isPast(opened)) {
      answer = WaitState.Answer.without(Frames.TIMED_OUT, now);
    }
    if (known != null && known.status() == WaitState.Status.DONE) {
      timers.delete(id, known);
    }
    timers.register(id, opened);
    state.put(id, opened.with(answer));
    return answer == null ? null : new Delivery(turn, id, answer);
  }

  private WaitState.Answer takeEarly(String given, WaitState.Wait known) throws Exception {
    if (known == null || known.status() != WaitState.Status.EARLY) {
      return null;
    }
    timers.delete(given, known);
    state.remove(given);
    return known.answer();
  }

  /** End a wait whose answer its turn has consumed, or that its turn has cancelled. */
  void close(String id) throws Exception {
    WaitState.Wait wait = state.wait(id);
    if (wait != null && wait.status() == WaitState.Status.OPEN) {
      end(id, wait, wait.answer() == null ? Frames.CANCELLED : wait.answer().kind());
    }
  }

  /**
   * Drop an answer that the turn cannot use. The wait continues. Return its end if its deadline has
   * passed, else null.
   */
  Delivery reject(String id) throws Exception {
    WaitState.Wait wait = state.wait(id);
    if (wait == null || wait.status() != WaitState.Status.OPEN) {
      return null;
    }
    metrics.unusedAnswers.inc();
    WaitState.Wait open = wait.with(null);
    if (timers.isPast(open)) {
      return endOpen(id, open, Frames.TIMED_OUT);
    }
    // The timer may have fired while the wait had the answer.
    timers.register(id, open);
    state.put(id, open);
    return null;
  }

  /** End the open waits of a turn that ends. */
  void endTurn(long turn) throws Exception {
    for (Map.Entry<String, WaitState.Wait> open : state.open(turn).entrySet()) {
      end(open.getKey(), open.getValue(), TURN_ENDED);
    }
    state.removeTurn(turn);
  }

  private void end(String id, WaitState.Wait wait, int kind) throws Exception {
    long now = clock.getAsLong();
    timers.delete(id, wait);
    if (kind == Frames.TIMED_OUT && !wait.isSleep()) {
      metrics.timedOut.inc();
    }
    if (wait.isSleep()) {
      state.remove(id);
      return;
    }
    WaitState.Wait done = wait.done(kind, now, now + settings.waitsKeepMs());
    timers.register(id, done);
    state.put(id, done);
  }

  /**
   * Store an answer. Return the turn that receives it, or null if no turn does.
   *
   * @param key the current key
   * @param given the id or the wait's name
   */
  Delivery answer(String key, String given, WaitState.Answer answer) throws Exception {
    if (given.isEmpty()) {
      reject(key, "", null, "The answer has no wait id.");
      return null;
    }
    String id = given;
    WaitState.Wait wait = state.wait(id);
    if (wait == null || wait.status() == WaitState.Status.EARLY) {
      String named = oldestWithName(given);
      if (named == null) {
        keepEarly(key, given, wait, answer);
        return null;
      }
      id = named;
      wait = state.wait(id);
    }
    // An ended wait has the kind of its end as its answer.
    if (wait.answer() != null) {
      reject(key, given, wait, ending(wait.answer().kind()));
      return null;
    }
    state.put(id, wait.with(answer));
    return new Delivery(wait.turn(), id, answer);
  }

  private String oldestWithName(String name) throws Exception {
    String oldest = null;
    long since = Long.MAX_VALUE;
    for (Map.Entry<String, WaitState.Wait> entry : state.all().entrySet()) {
      WaitState.Wait wait = entry.getValue();
      if (wait.isUnanswered()
          && !wait.isSleep()
          && wait.name().equals(name)
          && wait.since() < since) {
        oldest = entry.getKey();
        since = wait.since();
      }
    }
    return oldest;
  }

  private void keepEarly(String key, String id, WaitState.Wait known, WaitState.Answer answer)
      throws Exception {
    if (known != null) {
      reject(key, id, null, "An earlier answer waits for the same question.");
    } else if (inputEnded || answer.kind() != Frames.ANSWERED) {
      reject(key, id, null, "No turn waits for it.");
    } else {
      WaitState.Wait early =
          WaitState.Wait.early(answer, clock.getAsLong() + settings.waitsKeepMs());
      timers.register(id, early);
      state.put(id, early);
    }
  }

  /** Handle a timer of the current key. Return the turn that receives the end of its wait. */
  Delivery timer(String key, String id) throws Exception {
    WaitState.Wait wait = state.wait(id);
    if (wait == null) {
      return null;
    }
    if (wait.status() == WaitState.Status.OPEN) {
      return wait.answer() == null ? endOpen(id, wait, Frames.TIMED_OUT) : null;
    }
    if (wait.status() == WaitState.Status.EARLY) {
      reject(
          key,
          id,
          null,
          String.format(
              "No turn has asked for it within skills.waits.keep = %d ms.",
              settings.waitsKeepMs()));
    }
    state.remove(id);
    return null;
  }

  private Delivery endOpen(String id, WaitState.Wait wait, int kind) throws Exception {
    WaitState.Answer answer = WaitState.Answer.without(kind, clock.getAsLong());
    state.put(id, wait.with(answer));
    return new Delivery(wait.turn(), id, answer);
  }

  /** Record that the inputs have ended, and with {@code sleeps} that sleeps end as well. */
  void endInput(boolean sleeps) {
    inputEnded = true;
    sleepsEnd |= sleeps;
  }

  /** Return true if the end of the inputs ends the wait. */
  private boolean isOver(WaitState.Wait wait) {
    return inputEnded && (sleepsEnd || !wait.isSleep());
  }

  /**
   * End the waits of a turn that no answer can reach any more. The turn must not run: it may still
   * open a wait whose answer has arrived, and this answer comes first.
   */
  List<Delivery> endWaits(long turn) throws Exception {
    List<Delivery> ended = new ArrayList<>();
    if (!inputEnded) {
      return ended;
    }
    for (Map.Entry<String, WaitState.Wait> entry : state.open(turn).entrySet()) {
      WaitState.Wait wait = entry.getValue();
      if (wait.isUnanswered() && isOver(wait)) {
        ended.add(endOpen(entry.getKey(), wait, Frames.INPUT_ENDED));
      }
    }
    return ended;
  }

  /** Report the early answers of the current key, for which no turn will ask. */
  void endEarly(String key) throws Exception {
    for (Map.Entry<String, WaitState.Wait> entry : state.all().entrySet()) {
      if (entry.getValue().status() == WaitState.Status.EARLY) {
        timers.delete(entry.getKey(), entry.getValue());
        state.remove(entry.getKey());
        reject(key, entry.getKey(), null, "The inputs have ended, and no turn has asked for it.");
      }
    }
  }

  private void reject(String key, String id, WaitState.Wait wait, String reason) throws Exception {
    metrics.unusedAnswers.inc();
    Long turn = wait == null ? null : wait.turn() + 1;
    outputs.emit(null, ErrorRecord.ofAnswer(planJson, key, turn, id, reason).outputs());
  }

  private static String ending(int kind) {
    return switch (kind) {
      case Frames.ANSWERED -> "The wait has an answer already.";
      case Frames.TIMED_OUT -> "The wait has timed out.";
      case Frames.CANCELLED -> "The wait was cancelled.";
      case Frames.INPUT_ENDED -> "The wait has ended with the inputs.";
      default -> "The turn of the wait has ended.";
    };
  }
}
