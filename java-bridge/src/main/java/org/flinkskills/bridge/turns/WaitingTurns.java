package org.flinkskills.bridge.turns;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.function.LongSupplier;
import org.flinkskills.bridge.metrics.AgentMetrics;
import org.flinkskills.bridge.plan.AgentSettings;
import org.flinkskills.bridge.waits.KeyedWaits;
import org.flinkskills.bridge.waits.WaitState;

/**
 * Waiting turns of one operator: their entries in the state, their number, and the age of the
 * oldest wait. Methods use the current key.
 */
public final class WaitingTurns {
  private final KeyedTurns turns;
  private final KeyedWaits waits;
  private final AgentSettings settings;
  private final AgentMetrics metrics;
  private final LongSupplier clock;

  /** The number of waiting turns, by the time since which they wait. */
  private final ConcurrentSkipListMap<Long, Integer> since = new ConcurrentSkipListMap<>();

  private volatile int count;

  public WaitingTurns(
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

  /** Write a turn that starts to wait to the state. */
  void park(ActiveKey key, long number) throws Exception {
    long now = clock.getAsLong();
    List<byte[]> session = waits.content(number).session();
    List<byte[]> journal = List.of();
    boolean overtaken = isOvertaken(key, number);
    if (overtaken) {
      if (session == null) {
        session = turns.session().chunks();
      }
      journal = number == key.head ? turns.overtake(key) : turns.takeJournal(key);
    } else if (settings.sessionTtlMs() > 0 && key.hasSession) {
      session = turns.session().chunks();
    }
    waits.putTurn(
        number,
        new WaitState.WaitingTurn(false, overtaken, now),
        new WaitState.Content(journal, session));
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
      WaitState.Content content = waits.content(number);
      if (!turn.running()) {
        remove(turn.since());
        metrics.resumed.inc();
        resume(key, number, turn, content);
      }
      base = turn.overtaken() ? content.session() : null;
    }
    return new TurnFrame.Resumed(waits.answers(number), base);
  }

  private void resume(
      ActiveKey key, long number, WaitState.WaitingTurn turn, WaitState.Content content)
      throws Exception {
    if (turn.overtaken()) {
      keepJournalOfHead(key);
      turns.putJournal(key, content.journal());
      waits.putTurn(
          number,
          new WaitState.WaitingTurn(true, true, turn.since()),
          new WaitState.Content(List.of(), content.session()));
      return;
    }
    if (content.session() != null && !content.session().isEmpty() && key.sessionVersion == 0) {
      // The counters have expired while the turn waited, and the session with them.
      turns.putSession(key, content.session());
    }
    if (!content.journal().isEmpty()) {
      turns.putJournal(key, content.journal());
    }
    waits.removeTurn(number);
  }

  /** Store the journal of a head that waits, before a turn that it follows writes its own. */
  private void keepJournalOfHead(ActiveKey key) throws Exception {
    WaitState.WaitingTurn head = key.head == key.tail ? null : waits.turn(key.head);
    if (head == null) {
      return;
    }
    List<byte[]> journal = turns.takeJournal(key);
    if (!journal.isEmpty()) {
      waits.putTurn(
          key.head, head, new WaitState.Content(journal, waits.content(key.head).session()));
    }
  }

  /**
   * Restore a key's turns that have waited.
   *
   * @param key the key, whose unfinished events are added by the caller
   * @param stored its turns that have waited, by their numbers
   */
  void restore(ActiveKey key, Map<Long, WaitState.WaitingTurn> stored) throws Exception {
    for (WaitState.WaitingTurn turn : stored.values()) {
      if (!turn.running()) {
        add(turn.since());
      }
    }
    derive(key, stored);
  }

  /** Load the turns of a key without unfinished events in memory: its head may wait. */
  void load(ActiveKey key) throws Exception {
    if (key.head != key.tail && waits.exist()) {
      WaitState.WaitingTurn head = waits.turn(key.head);
      derive(key, head == null ? Map.of() : Map.of(key.head, head));
    }
  }

  /**
   * Derive from the state which turns of a key can run, whatever the option was that it was written
   * with.
   *
   * @param stored turns that have waited: all, or only the head if no other one can run
   */
  private void derive(ActiveKey key, Map<Long, WaitState.WaitingTurn> stored) throws Exception {
    key.hasWaits = true;
    key.hasJournal = true;
    for (Map.Entry<Long, WaitState.WaitingTurn> entry : stored.entrySet()) {
      long number = entry.getKey();
      boolean runs = entry.getValue().running() || !waits.answers(number).isEmpty();
      if (number == key.head) {
        key.blocked = !runs;
      } else if (runs) {
        key.resumed.add(number);
        if (entry.getValue().running()) {
          key.owner = number;
        }
      }
    }
    if (key.owner == ActiveKey.NO_OWNER
        && key.head != key.tail
        && !stored.containsKey(key.head)
        && !turns.journal().isEmpty()) {
      key.owner = key.head;
    }
  }

  /** Return true if the turn waits, and its answer can start it. */
  boolean isWaiting(long number) throws Exception {
    WaitState.WaitingTurn turn = waits.turn(number);
    return turn != null && !turn.running();
  }

  /** Remove turns that are erased. */
  void forget(Collection<WaitState.WaitingTurn> erased) {
    for (WaitState.WaitingTurn turn : erased) {
      if (!turn.running()) {
        remove(turn.since());
      }
    }
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
