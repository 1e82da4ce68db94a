package org.flinkskills.bridge.turns;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.LongSupplier;
import org.apache.flink.api.common.state.ListState;
import org.flinkskills.bridge.frames.FrameException;
import org.flinkskills.bridge.frames.Frames;

/**
 * Sessions of keys, in chunks. Methods access the operator's current key.
 *
 * <p>With a time to live, all chunks are written again before the first of them expires.
 */
public final class KeyedSession {
  private static final int MAX_SENT_SESSIONS = 10_000;

  private final ListState<byte[]> chunks;
  private final Map<String, Sent> sent = new SentSessions();
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
  void start(String name) {
    sent.remove(name);
    if (ttlMs > 0) {
      chunks.clear();
    }
  }

  /** Erase the session of a key. */
  void erase(String name) {
    sent.remove(name);
    chunks.clear();
  }

  /** Remember which session the worker of a process has. */
  void remember(ActiveKey key, int epoch) {
    if (key.sessionVersion > 0) {
      sent.put(key.name, new Sent(epoch, key.sessionVersion, key.sessionRefreshedAt));
    }
  }

  /** Return the chunks without a change of the state. */
  public List<byte[]> chunks() throws Exception {
    return listOf(chunks);
  }

  /** Return the chunks of the session, or null if the worker has this version. */
  List<byte[]> toSend(ActiveKey key, int epoch) throws Exception {
    if (key.sessionVersion == 0) {
      return null;
    }
    Sent last = sent.get(key.name);
    if (last == null || last.epoch != epoch || last.version != key.sessionVersion) {
      return read(key);
    }
    key.sessionRefreshedAt = last.refreshedAt;
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
  void apply(ActiveKey key, int op, List<byte[]> changed) throws Exception {
    switch (op) {
      case Frames.SESSION_KEEP -> refresh(key);
      case Frames.SESSION_APPEND -> {
        chunks.addAll(changed);
        if (key.sessionVersion == 0) {
          key.sessionRefreshedAt = clock.getAsLong();
        }
        refresh(key);
      }
      case Frames.SESSION_REPLACE -> {
        chunks.update(changed);
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

  /**
   * The session that a worker has.
   *
   * @param epoch the epoch of the worker
   * @param refreshedAt the time of the last complete write of the session to the state, in
   *     milliseconds
   */
  private record Sent(int epoch, long version, long refreshedAt) {}

  /**
   * Bounded cache of the sessions that the workers have, by key, so that a long conversation is not
   * sent with each turn. It evicts the keys without a recent turn. A worker that has evicted a
   * session requests it.
   */
  private static final class SentSessions extends LinkedHashMap<String, Sent> {
    private static final long serialVersionUID = 1L;

    SentSessions() {
      super(16, 0.75f, true);
    }

    @Override
    protected boolean removeEldestEntry(Map.Entry<String, Sent> eldest) {
      return size() > MAX_SENT_SESSIONS;
    }
  }
}
