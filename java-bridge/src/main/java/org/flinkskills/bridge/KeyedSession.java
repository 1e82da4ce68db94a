package org.flinkskills.bridge;

import java.util.ArrayList;
import java.util.List;
import java.util.function.LongSupplier;
import org.apache.flink.api.common.state.ListState;

/**
 * Sessions of keys, in chunks. Methods access the operator's current key.
 *
 * <p>With a time to live, all chunks are written again before the first of them expires.
 */
final class KeyedSession {
  private static final int KNOWN_SESSIONS = 10_000;

  private final ListState<byte[]> chunks;
  private final KnownSessions known = new KnownSessions(KNOWN_SESSIONS);
  private final LongSupplier clock;
  private final long ttlMs;

  /**
   * @param clock processing time in milliseconds
   * @param ttlMs the time to live of sessions in milliseconds, or 0
   */
  KeyedSession(ListState<byte[]> chunks, LongSupplier clock, long ttlMs) {
    this.chunks = chunks;
    this.clock = clock;
    this.ttlMs = ttlMs;
  }

  /** Start a key without a session. */
  void begin(String name) {
    known.forget(name);
    if (ttlMs > 0) {
      chunks.clear();
    }
  }

  /** Remember which session the worker of a process has. */
  void remember(ActiveKey key, int epoch) {
    if (key.sessionVersion > 0) {
      known.put(
          key.name, new KnownSessions.Known(epoch, key.sessionVersion, key.sessionRefreshedAt));
    }
  }

  /** Return the chunks without a change of the state. */
  List<byte[]> chunks() throws Exception {
    return listOf(chunks);
  }

  /** Return the chunks of the session, or null if the worker has this version. */
  List<byte[]> toSend(ActiveKey key, int epoch) throws Exception {
    if (key.sessionVersion == 0) {
      return null;
    }
    KnownSessions.Known there = known.find(key.name, epoch, key.sessionVersion);
    if (there == null) {
      return read(key);
    }
    key.sessionRefreshedAt = there.refreshedAt();
    refresh(key);
    return null;
  }

  /** Return the chunks of the session. With a time to live, also write them again. */
  List<byte[]> read(ActiveKey key) throws Exception {
    List<byte[]> found = listOf(chunks);
    if (ttlMs > 0) {
      chunks.update(found);
      key.sessionRefreshedAt = clock.getAsLong();
    }
    return found;
  }

  /** Apply an operation of a turn that has ended. */
  void apply(ActiveKey key, int op, List<byte[]> given) throws Exception {
    switch (op) {
      case Frames.SESSION_KEEP -> refresh(key);
      case Frames.SESSION_APPEND -> {
        chunks.addAll(given);
        if (key.sessionVersion == 0) {
          key.sessionRefreshedAt = clock.getAsLong();
        }
        refresh(key);
      }
      case Frames.SESSION_REPLACE -> {
        chunks.update(given);
        key.sessionRefreshedAt = clock.getAsLong();
      }
      case Frames.SESSION_CLEAR -> {
        chunks.clear();
        key.sessionRefreshedAt = clock.getAsLong();
      }
      default ->
          throw new FrameException(
              "The agent worker requested the unknown session operation " + op + ".");
    }
    if (op != Frames.SESSION_KEEP) {
      key.sessionVersion++;
      boolean hasSession = op != Frames.SESSION_CLEAR;
      key.moves |= hasSession != key.hasSession;
      key.hasSession = hasSession;
    }
  }

  private void refresh(ActiveKey key) throws Exception {
    if (key.sessionVersion > 0 && isStale(clock, key.sessionRefreshedAt, ttlMs)) {
      read(key);
    }
  }

  /** Return true if a state with a time to live must be written again. */
  static boolean isStale(LongSupplier clock, long writtenAt, long ttlMs) {
    return ttlMs > 0 && clock.getAsLong() - ttlMs / 2 > writtenAt;
  }

  /** Return the values of a state. */
  static List<byte[]> listOf(ListState<byte[]> state) throws Exception {
    List<byte[]> values = new ArrayList<>();
    Iterable<byte[]> found = state.get();
    if (found != null) {
      found.forEach(values::add);
    }
    return values;
  }
}
