package org.flinkskills.bridge;

import java.util.ArrayDeque;
import java.util.Deque;

/** A key with unfinished events, or about to have one, and its counters in the state. */
final class ActiveKey {
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

  /** For each unfinished event its position among the watermarks. */
  final Deque<EventTimeGate.Epoch> epochs = new ArrayDeque<>(2);

  ActiveKey(String name, TurnState.Counters counters, boolean hasSession, long now) {
    this.name = name;
    this.hasSession = hasSession;
    this.turnsDone = counters.turnsDone();
    this.head = counters.head();
    this.tail = counters.tail();
    this.sessionVersion = counters.sessionVersion();
    this.countersWrittenAt = now;
  }
}
