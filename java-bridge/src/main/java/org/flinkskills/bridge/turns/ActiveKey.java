package org.flinkskills.bridge.turns;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.LinkedHashSet;
import java.util.Set;

/** A key with unfinished events, or about to have one, and its counters in the state. */
final class ActiveKey {
  static final long NO_OWNER = -1;
  static final long NOTHING = -1;

  /** The number of the turn that erases the key. It has no event. */
  static final long FORGET = -1;

  final String name;
  long turnsDone;

  /** The number of the first unfinished event. */
  long head;

  /** The number of the next event. */
  long tail;

  long sessionVersion;

  /** The state of the counters is {@code turns} if true, and {@code idle} if false. */
  boolean hasSession;

  /** The counters are in the other one of these states until they are written. */
  boolean moves;

  long countersWrittenAt;
  long sessionRefreshedAt = Long.MIN_VALUE;

  /** The journal may have entries. A key without unfinished events has none. */
  boolean hasJournal;

  /** The first unfinished event if its turn may start immediately, or null. */
  byte[] first;

  /** For each event from the head its position among the watermarks; empty while it waits. */
  final Deque<EventTimeGate.Epoch> epochs = new ArrayDeque<>(2);

  /** The numbers of events before the head whose turns resume, in the order of their answers. */
  final Set<Long> resumed = new LinkedHashSet<>(0);

  /** The number of the event whose turn runs next because the journal has its steps. */
  long owner = NO_OWNER;

  /** The key is erased before its next turn, up to this event; {@link #NOTHING} if it is not. */
  long forgetBefore = NOTHING;

  /** The turn of the head waits, and the events behind it wait for it. */
  boolean blocked;

  /** The state may have waits of an unfinished turn. */
  boolean hasWaits;

  /** The number of turns that can run and have waited, or were behind such a turn. */
  int waited;

  /** The turn that was started and has not ended; null if none was. */
  WorkerSlot.Turn started;

  /** The key is in the queue of ready keys. */
  boolean isReady;

  ActiveKey(String name, TurnState.Counters counters, boolean hasSession, long now) {
    this.name = name;
    this.hasSession = hasSession;
    this.turnsDone = counters.turnsDone();
    this.head = counters.head();
    this.tail = counters.tail();
    this.sessionVersion = counters.sessionVersion();
    this.countersWrittenAt = now;
  }

  /** Leave the entries of the key in memory that are erased in the state. */
  void leaveForgotten() {
    resumed.clear();
    owner = NO_OWNER;
    blocked = false;
    hasWaits = false;
    forgetBefore = NOTHING;
  }

  /** Return the number of the event whose turn starts next. */
  long next() {
    if (forgetBefore != NOTHING) {
      return FORGET;
    }
    long number = head;
    if (owner != NO_OWNER) {
      number = owner;
      owner = NO_OWNER;
    } else if (!resumed.isEmpty()) {
      number = resumed.iterator().next();
    }
    resumed.remove(number);
    return number;
  }

  /** Return true if the turn of an event can run, or will when the turns before it have. */
  boolean resumes(long number) {
    return number == head ? !blocked : owner == number || resumed.contains(number);
  }

  /** Return true if a turn of the key can start. */
  boolean canStart() {
    return started == null && canRun();
  }

  /** Return true if the key has no turn that runs or can run. */
  boolean isIdle() {
    return started == null && !canRun();
  }

  private boolean canRun() {
    return owner != NO_OWNER || !resumed.isEmpty() || !epochs.isEmpty() || forgetBefore != NOTHING;
  }
}
