package org.flinkskills.bridge;

import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.function.LongSupplier;

/**
 * Waiting turns of one operator: their entries in the state, their number, and the age of the
 * oldest wait. Methods use the current key.
 */
final class WaitingTurns {
  private final KeyedTurns turns;
  private final KeyedWaits waits;
  private final AgentSettings settings;
  private final AgentMetrics metrics;
  private final LongSupplier clock;

  /** The number of waiting turns, by the time since which they wait. */
  private final ConcurrentSkipListMap<Long, Integer> since = new ConcurrentSkipListMap<>();

  private volatile int count;

  WaitingTurns(
      KeyedTurns turns,
      KeyedWaits waits,
      AgentSettings settings,
      AgentMetrics metrics,
      LongSupplier clock) {
    this.turns = turns;
    this.waits = waits;
    this.settings = settings;
    this.metrics = metrics;
    this.clock = clock;
    metrics.waiting(this::count, this::oldestMs);
  }

  int count() {
    return count;
  }

  private long oldestMs() {
    Map.Entry<Long, Integer> oldest = since.firstEntry();
    return oldest == null ? 0 : Math.max(0, clock.getAsLong() - oldest.getKey());
  }

  /** Return true if the next events of the key do not wait for the turn. */
  boolean isOvertaken(ActiveKey key, long number) {
    return settings.overtake() || number != key.head;
  }

  /** Write a turn to the state that begins to wait. */
  void park(ActiveKey key, long number) throws Exception {
    long now = clock.getAsLong();
    WaitState.WaitingTurn earlier = waits.turn(number);
    List<byte[]> journal = List.of();
    List<byte[]> session = earlier == null ? null : earlier.session();
    boolean overtaken = isOvertaken(key, number);
    if (overtaken) {
      if (session == null) {
        session = turns.session().chunks();
      }
      journal = number == key.head ? turns.overtake(key) : turns.takeJournal(key);
    } else if (settings.sessionTtlMs() > 0 && key.hasSession) {
      session = turns.session().chunks();
    }
    waits.putTurn(number, new WaitState.WaitingTurn(false, overtaken, now, journal, session));
    add(now);
  }

  /** Write that a turn does not wait any more. Return the answers and the session for its frame. */
  TurnFrame.Resumed start(ActiveKey key, long number) throws Exception {
    if (!key.hasWaits) {
      return TurnFrame.Resumed.NOTHING;
    }
    WaitState.WaitingTurn turn = waits.turn(number);
    List<byte[]> base = null;
    if (turn != null) {
      if (!turn.running()) {
        remove(turn.since());
        metrics.resumed.inc();
        resume(key, number, turn);
      }
      base = turn.overtaken() ? turn.session() : null;
    }
    return new TurnFrame.Resumed(waits.answers(number), base);
  }

  private void resume(ActiveKey key, long number, WaitState.WaitingTurn turn) throws Exception {
    if (turn.overtaken()) {
      turns.putJournal(key, turn.journal());
      waits.putTurn(number, turn.resumed());
      return;
    }
    if (turn.session() != null && !turn.session().isEmpty() && key.sessionVersion == 0) {
      // The counters have expired while the turn waited, and the session with them.
      turns.putSession(key, turn.session());
    }
    waits.removeTurn(number);
  }

  /**
   * Restore a key's turns that have waited.
   *
   * @param key the key, whose unfinished events are added by the caller
   * @param stored its turns that have waited
   */
  void restore(ActiveKey key, TreeMap<Long, WaitState.WaitingTurn> stored) throws Exception {
    key.hasWaits = true;
    boolean isResumed = false;
    for (Map.Entry<Long, WaitState.WaitingTurn> entry : stored.entrySet()) {
      long number = entry.getKey();
      WaitState.WaitingTurn turn = entry.getValue();
      if (!turn.running()) {
        add(turn.since());
      }
      boolean isAnswered = !waits.answers(number).isEmpty();
      if (!turn.overtaken()) {
        key.blocked = !isAnswered && !turn.running();
      } else if (turn.running()) {
        // The key's journal contains this turn's steps.
        key.resumed.addFirst(number);
        isResumed = true;
      } else if (isAnswered) {
        key.resumed.addLast(number);
      }
    }
    key.headFirst =
        !isResumed && !key.blocked && key.head != key.tail && !turns.journal().isEmpty();
  }

  /** Return true if the turn waits, and its answer can start it. */
  boolean isWaiting(long number) throws Exception {
    WaitState.WaitingTurn turn = waits.turn(number);
    return turn != null && !turn.running();
  }

  /** Return the numbers of the turns that later events have overtaken. */
  static Set<Long> overtaken(TreeMap<Long, WaitState.WaitingTurn> stored) {
    Set<Long> numbers = new HashSet<>();
    stored.forEach(
        (number, turn) -> {
          if (turn.overtaken()) {
            numbers.add(number);
          }
        });
    return numbers;
  }

  private void add(long time) {
    count = count + 1;
    since.merge(time, 1, Integer::sum);
  }

  private void remove(long time) {
    count = count - 1;
    since.computeIfPresent(time, (at, number) -> number == 1 ? null : number - 1);
  }
}
