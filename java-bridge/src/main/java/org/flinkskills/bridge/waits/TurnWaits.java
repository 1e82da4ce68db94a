package org.flinkskills.bridge.waits;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.function.LongSupplier;
import org.flinkskills.bridge.AgentTurnException;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.metrics.AgentMetrics;
import org.flinkskills.bridge.outputs.AgentOutputs;
import org.flinkskills.bridge.outputs.ErrorRecord;
import org.flinkskills.bridge.plan.AgentSettings;

/**
 * Waits of one operator's turns: their answers, deadlines and ends. It decides which answer counts,
 * and reports the others as error records. Methods use the current key.
 *
 * <p>{@code TurnRunner} stops and resumes the turns.
 */
public final class TurnWaits {
  /** The end of a wait together with its turn. It is in no frame. */
  private static final int TURN_ENDED = 4;

  private static final String IS_SLEEP = "A sleep accepts no answer. It ends at its time.";

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
  public record Delivery(long turn, String waitId, WaitState.Answer answer) {}

  public TurnWaits(
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
  public long now() {
    return clock.getAsLong();
  }

  /** Return the keyed state. */
  public KeyedWaits state() {
    return state;
  }

  /**
   * Restore the waits of the current key, from the state of this or of an earlier release. Return
   * its turns that have waited.
   */
  public Map<Long, WaitState.WaitingTurn> restore(String key) throws Exception {
    KeyedWaits.Entries found = state.restore();
    for (Map.Entry<String, WaitState.Wait> entry : found.waits().entrySet()) {
      if (entry.getValue().isUnanswered()) {
        timers.watch(key, entry.getKey(), entry.getValue());
      }
    }
    return found.turns();
  }

  /** Open a wait. Return its answer if it has one already, else null. */
  public Delivery open(String key, long turn, String id, String name, int flags, long deadline)
      throws Exception {
    WaitState.Wait stored = state.wait(id);
    if (stored != null && stored.isOpen() && stored.turn() == turn) {
      return stored.answer() == null ? null : new Delivery(turn, id, stored.answer());
    }
    long now = clock.getAsLong();
    WaitState.Wait opened = WaitState.Wait.opened(turn, name, flags, now, deadline);
    if (stored != null) {
      timers.delete(id, stored);
    }
    if (stored != null && stored.status() == WaitState.Status.EARLY && opened.isSleep()) {
      dropEarly(key, id, stored, IS_SLEEP);
    } else if (stored != null && stored.status() == WaitState.Status.EARLY) {
      state.addEarly(-stored.answers().size());
      opened = opened.with(stored.answers());
    }
    if (opened.answer() == null && timers.isPast(opened)) {
      opened = opened.and(WaitState.Answer.without(Frames.TIMED_OUT, now));
    }
    timers.register(id, opened);
    state.add(id, opened);
    timers.watch(key, id, opened);
    return opened.answer() == null ? null : new Delivery(turn, id, opened.answer());
  }

  /**
   * End a wait whose answer its turn has consumed, or that its turn has cancelled. Report its other
   * answers.
   *
   * @param answered whether the turn has consumed the current answer
   */
  public void close(String key, String id, boolean answered) throws Exception {
    WaitState.Wait wait = state.wait(id);
    if (wait == null || !wait.isOpen()) {
      return;
    }
    boolean consumed = answered && wait.answer() != null;
    int kind = consumed ? wait.answer().kind() : Frames.CANCELLED;
    rejectAll(key, id, consumed ? wait.next() : wait, ending(kind));
    end(id, wait, kind);
  }

  /**
   * Drop an answer that the turn cannot use. The wait continues with its next answer. Return this
   * answer, or the end of the wait if its deadline has passed, else null.
   */
  public Delivery reject(String key, String id) throws Exception {
    WaitState.Wait wait = state.wait(id);
    if (wait == null || !wait.isOpen() || wait.answer() == null) {
      return null;
    }
    if (!wait.answer().isSent()) {
      // Otherwise the operator would send the same end again.
      throw new AgentTurnException(
          String.format(
              "key %s, turn %d failed: the worker rejects the end of the wait '%s' (%s), and only"
                  + " answers can be rejected. Worker and bridge jar must be of the same release.",
              key, wait.turn() + 1, id, ending(wait.answer().kind())));
    }
    metrics.unusedAnswers.inc();
    WaitState.Wait open = wait.next();
    if (open.answer() != null) {
      state.put(id, open);
      return new Delivery(wait.turn(), id, open.answer());
    }
    state.free(open);
    if (timers.isPast(open)) {
      return endOpen(id, open, Frames.TIMED_OUT);
    }
    // The timer may have fired while the wait had the answer.
    timers.register(id, open);
    state.put(id, open);
    return null;
  }

  /**
   * End the open waits of a turn that ends. Report their answers.
   *
   * @param recorded whether the worker has written the records of these ends
   */
  public void endTurn(String key, long turn, boolean recorded) throws Exception {
    for (Map.Entry<String, WaitState.Wait> open : state.open(turn).entrySet()) {
      String id = open.getKey();
      WaitState.Wait wait = open.getValue();
      rejectAll(key, id, wait, ending(TURN_ENDED));
      end(id, wait, TURN_ENDED);
      if (!recorded && !wait.isSleep()) {
        outputs.emit(null, WaitRecord.outputs(planJson, key, id, wait, clock.getAsLong()));
      }
    }
    state.removeTurn(turn);
  }

  /**
   * Erase the waits and the early answers of the current key. The records of open waits end. Return
   * the turns that have waited.
   */
  public Collection<WaitState.WaitingTurn> forget(String key) throws Exception {
    if (!state.exist()) {
      return List.of();
    }
    KeyedWaits.Entries found = state.read();
    for (Map.Entry<String, WaitState.Wait> entry : found.waits().entrySet()) {
      WaitState.Wait wait = entry.getValue();
      timers.delete(entry.getKey(), wait);
      if (wait.isOpen() && !wait.isSleep()) {
        outputs.emit(
            null, WaitRecord.outputs(planJson, key, entry.getKey(), wait, clock.getAsLong()));
      }
    }
    state.clear();
    return found.turns().values();
  }

  private void rejectAll(String key, String id, WaitState.Wait wait, String reason)
      throws Exception {
    for (WaitState.Answer answer : wait.answers()) {
      if (answer.isSent()) {
        reject(key, id, wait, reason);
      }
    }
  }

  private void end(String id, WaitState.Wait wait, int kind) throws Exception {
    long now = clock.getAsLong();
    timers.delete(id, wait);
    state.leave(wait);
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
   * Store an answer. Return the turn that receives it, or null if no turn does now.
   *
   * @param key the current key
   * @param idOrName the id or the name of the wait
   */
  public Delivery answer(String key, String idOrName, WaitState.Answer answer) throws Exception {
    String id = WaitState.isId(idOrName) ? idOrName : named(key, idOrName, answer);
    if (id == null) {
      return null;
    }
    WaitState.Wait wait = state.wait(id);
    if (wait == null || wait.status() == WaitState.Status.EARLY) {
      storeEarly(key, id, wait, answer);
      return null;
    }
    if (wait.isSleep() && answer.isSent()) {
      reject(key, idOrName, wait, IS_SLEEP);
      return null;
    }
    if (wait.isUnanswered()) {
      state.put(id, wait.and(answer));
      return new Delivery(wait.turn(), id, answer);
    }
    // An ended wait has the kind of its end as its answer.
    if (!wait.isOpen() || !wait.answer().isSent() || !answer.isSent()) {
      reject(key, idOrName, wait, ending(wait.answer().kind()));
    } else if (wait.answers().size() > settings.waitsMaxEarly()) {
      reject(
          key,
          idOrName,
          wait,
          String.format(
              "The wait has skills.waits.max-early = %d further answers already.",
              settings.waitsMaxEarly()));
    } else {
      // The turn may reject the answers before it.
      state.put(id, wait.and(answer));
    }
    return null;
  }

  /** Return the id of the wait that a name stands for. Without one, report the answer. */
  private String named(String key, String name, WaitState.Answer answer) throws Exception {
    if (name.isEmpty()) {
      reject(key, "", null, "The answer has no wait id.");
      return null;
    }
    String id = state.oldest(name, false);
    String approval = state.oldest(name, true);
    if (id == null && !answer.isSent()) {
      // The code of the agent cancels it.
      id = approval;
    }
    if (id == null) {
      String reason =
          approval == null
              ? "No open wait of its key has this name, and an answer with a name is not kept."
              : "An approval accepts its id only.";
      reject(key, name, null, reason + " Set wait_id of the answer to wait_id of the question.");
    }
    return id;
  }

  private void storeEarly(String key, String id, WaitState.Wait stored, WaitState.Answer answer)
      throws Exception {
    if (inputEnded || !answer.isSent()) {
      reject(key, id, null, "No turn waits for it.");
      return;
    }
    if (state.early() >= settings.waitsMaxEarly()) {
      reject(
          key,
          id,
          null,
          String.format(
              "No turn has asked for it, and its key has skills.waits.max-early = %d such answers"
                  + " already.",
              settings.waitsMaxEarly()));
      return;
    }
    state.addEarly(1);
    if (stored != null) {
      state.put(id, stored.and(answer));
      return;
    }
    WaitState.Wait early = WaitState.Wait.early(answer, clock.getAsLong() + settings.waitsKeepMs());
    timers.register(id, early);
    state.put(id, early);
  }

  /** Handle a timer of the current key. Return the turn that receives the end of its wait. */
  public Delivery timer(String key, String id) throws Exception {
    WaitState.Wait wait = state.wait(id);
    if (wait == null) {
      return null;
    }
    if (wait.isOpen()) {
      return wait.answer() == null ? endOpen(id, wait, Frames.TIMED_OUT) : null;
    }
    if (wait.status() == WaitState.Status.EARLY) {
      dropEarly(
          key,
          id,
          wait,
          String.format(
              "No turn has asked for it within skills.waits.keep = %d ms.",
              settings.waitsKeepMs()));
    }
    state.remove(id);
    return null;
  }

  private void dropEarly(String key, String id, WaitState.Wait early, String reason)
      throws Exception {
    state.addEarly(-early.answers().size());
    for (int i = 0; i < early.answers().size(); i++) {
      reject(key, id, null, reason);
    }
  }

  private Delivery endOpen(String id, WaitState.Wait wait, int kind) throws Exception {
    WaitState.Answer answer = WaitState.Answer.without(kind, clock.getAsLong());
    state.put(id, wait.and(answer));
    return new Delivery(wait.turn(), id, answer);
  }

  /** Record that the inputs have ended, and with {@code sleeps} that sleeps end as well. */
  public void endInput(boolean sleeps) {
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
  public List<Delivery> endWaits(long turn) throws Exception {
    List<Delivery> ended = new ArrayList<>();
    if (!inputEnded) {
      return ended;
    }
    for (Map.Entry<String, WaitState.Wait> entry : state.open(turn).entrySet()) {
      WaitState.Wait wait = entry.getValue();
      if (wait.isUnanswered() && isOver(wait)) {
        // The timer of a deadline that passed while the job was down may still have to fire.
        boolean isOverdue = !wait.isEventTime() && wait.deadline() <= clock.getAsLong();
        int kind = isOverdue ? Frames.TIMED_OUT : Frames.INPUT_ENDED;
        ended.add(endOpen(entry.getKey(), wait, kind));
      }
    }
    return ended;
  }

  /** Report the early answers of the current key, whose questions no turn will ask. */
  public void endEarly(String key) throws Exception {
    for (Map.Entry<String, WaitState.Wait> entry : state.all().entrySet()) {
      if (entry.getValue().status() == WaitState.Status.EARLY) {
        timers.delete(entry.getKey(), entry.getValue());
        state.remove(entry.getKey());
        dropEarly(
            key,
            entry.getKey(),
            entry.getValue(),
            "The inputs have ended, and no turn has asked for it.");
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
